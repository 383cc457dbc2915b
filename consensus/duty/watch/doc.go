// Package watch is the leader's duty that says which worker checks the health of
// which service, and writes down what changes (docs/decisions/023-recovery.md).
//
// Who watches a node follows from its id and those of the agents that can, so
// that a new leader comes to the same, and workers go on with what they do.
package watch
