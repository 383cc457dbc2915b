// Package house holds the tests of the shape of this repository: which package may
// import which (the table of docs/architecture.md), how large packages, files and types
// may be, which words are no longer used, which functions nothing reaches, whether the
// text of an error decides anything, and whether each citation and link leads somewhere.
// Exceptions, each with its reason, are in exceptions_test.go.
package house
