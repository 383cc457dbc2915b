// Package plan holds the plan of an operation while it is carried out: the graph of its tasks,
// which never changes, and the state of each task, which changes with every event and every
// order about a part of the plan (docs/architecture.md, "An operation", "A task";
// docs/spec/plans.md).
//
// Plans may have a million tasks. The graph therefore consists of flat columns, and the state
// consists of tables of which an Edit copies only what it changes. One result costs the same
// in every plan.
package plan
