// Package plan holds an operation's plan while it is carried out: the graph of
// its tasks, which never changes, and the state of each task, which every
// event moves on (design/architecture.md, "An operation", "A task").
package plan
