// Package solver decides which services each node of a cluster carries. From a template's
// constraints and a number of nodes (or an existing cluster and a change) it computes the preferred
// layout, or the reason why there is none (docs/spec/solver.md; the algorithm and why it is
// complete: docs/decisions/012-solver.md).
//
// The package is pure: all input is passed by value, and the same input always leads to the same
// answer.
package solver
