// Package planner turns an operation on a cluster into the graph of its node-level tasks: which
// actions run on which nodes, and in which order (docs/spec/planner.md; the original's rules:
// docs/spec/coopr.md 5.1 to 5.5).
//
// Work that does not depend on nodes (which action of which service waits for which) is done once
// per pair of service and action. The result is then stamped onto the nodes. If the tasks of many
// nodes wait for the tasks of many others, a barrier connects them, so that the number of edges is
// linear in the number of nodes and not quadratic.
//
// Diff finds the actions that lead from one state of a cluster to another, such as to a new
// template or back to a snapshot. OpConverge plans them.
package planner
