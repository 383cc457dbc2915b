// Package root assembles the coopr command line from its commands, connects it to a mesh, and turns errors
// into messages and exit codes.
package root
