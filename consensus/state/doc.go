// Package state is the replicated state: the machine that applies log entries and is the only writer
// of the tables, the events about changes, and snapshots (docs/architecture.md, "A write, start to
// end"). The tables are in package table, package view reads them, and package auditor makes the
// records of the audit log.
package state
