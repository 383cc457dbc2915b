// Package solver decides which services each node of a cluster carries: it
// takes a template's constraints and a number of nodes (or an existing cluster
// and a change) and gives the preferred layout, or the reason why there is none
// (docs/spec/solver.md; the algorithm and why it is complete: docs/decisions/012-solver.md).
//
// It is pure: everything comes in by value, the same input gives the same answer.
package solver
