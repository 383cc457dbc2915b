// Package logins has the leader's controller of the users whom directories know: LDAP servers and providers of OpenID Connect.
// The directory decides who may log in, with which role and which groups; the mesh keeps a user's row, because records, owners
// and policies name users by it.
//
// An LDAP server is asked at each login, at each renewal of a session, and every quarter of an hour about all its users. What
// it says is written into the row. If it does not answer, rows stay as they are, and nobody logs in and no session is renewed.
//
// A provider is asked at each login and, if it gave a refresh token, at each renewal of a session. The token is an encrypted value of the
// mesh, so that every leader has it.
package logins
