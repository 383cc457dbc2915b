// Package planner turns an operation on a cluster into the graph of its
// node-level tasks: which actions run on which nodes, and in which order
// (docs/spec/planner.md; the original's rules: docs/spec/coopr.md 5.1 to 5.5).
//
// Work that does not depend on nodes (which action of which service waits for
// which) is done once per pair of service and action; the result is then
// stamped onto the nodes. Where the tasks of many nodes wait for the tasks of
// many others they meet in a barrier, so that edges grow with nodes and not
// with their square.
//
// Diff finds which actions lead from one state of a cluster to another: towards
// a new template or back to a snapshot. OpConverge plans them.
package planner
