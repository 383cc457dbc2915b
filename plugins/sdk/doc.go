// Package sdk is the kit for plugins in Go. A Provider creates, finds and removes machines; an
// Automator puts services on them. Serve makes a plugin process of one of each, which an agent runs
// (docs/plugins.md).
//
// The kit carries all tasks of the process on one stream and runs each in a goroutine of its own.
// It streams log lines and saved values, cancels contexts, turns errors and panics into outcomes,
// and ends the process when its agent is gone.
package sdk
