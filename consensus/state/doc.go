// Package state is the replicated state: the tables, the machine that applies log entries to them
// and is their only writer, the events about changes, and snapshots (docs/architecture.md, "A
// write, start to end").
package state
