// Package hosts is the provider "hosts": nodes are machines that exist already,
// from an inventory in the provider's fields. They are handed out, and taken
// back when their node is deleted, cleaned by a script of the operator's, or
// set aside when that script refuses (docs/plugins/hosts.md).
//
// Who has a machine is written on the machine itself: a claim, a small file
// that only one can make. So agents need no common memory to agree, and what a
// machine says is always true of it.
package hosts
