// Package tree shows a plan as phases and steps and says what an operator's
// orders do to it: statuses, strategies, candidates, conflicts between plans
// (docs/spec/plans.md). Nothing of it is stored but names and strategies: statuses are
// computed from the tasks' when somebody looks, order is compiled into the
// graph, and what holds a part back is a gate of the plan's state.
package tree
