// Package directory asks LDAP servers and providers of OpenID Connect who somebody is and which groups they are in. It speaks
// to them only over TLS. What a person types to log in by LDAP is a value in a filter and a password in a bind, and nothing
// else.
package directory
