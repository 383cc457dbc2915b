// Package tree shows a plan as phases and steps and computes the effect of an operator's
// orders: statuses, strategies, candidates, conflicts (docs/spec/plans.md). Only names and
// strategies are stored. Statuses are computed from the tasks when they are read, the order of
// steps is compiled into the graph, and a part is held back by a gate in the plan's state.
package tree
