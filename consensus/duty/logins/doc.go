// Package logins has the leader's controller of the users whom directories know, such as those of an LDAP server. The
// directory decides who may log in, with which role and which groups; the mesh keeps a user's row, because records, owners and
// policies name users by it.
//
// A directory is asked at each login, at each renewal of a session, and every quarter of an hour about all users who have
// tokens. What it says is written into the row. If it does not answer, rows stay as they are, and nobody logs in and no
// session is renewed.
package logins
