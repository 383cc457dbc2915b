// Package plan holds an operation's plan while it is carried out: the graph of
// its tasks, which never changes, and the state of each task, which every
// event and every order about a part of the plan moves on
// (docs/architecture.md, "An operation", "A task"; docs/spec/plans.md).
//
// A plan of a million tasks is an ordinary thing. So the graph is flat columns,
// and the state tables of which an Edit copies what it changes: one result costs
// the same in every plan.
package plan
