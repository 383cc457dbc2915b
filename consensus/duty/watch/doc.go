// Package watch is the leader's controller that assigns health checks to workers and
// records their verdicts (docs/decisions/023-recovery.md).
//
// The worker that watches a node follows from the node's id and the ids of the agents that
// can do it. A new leader therefore comes to the same assignment, and workers go on with
// what they do.
package watch
