// Package sdk is what the author of a plugin in Go writes against: a Provider
// makes, finds and removes machines; an Automator puts services on them. Serve
// turns one of each into a plugin process that an agent runs (docs/plugins.md).
//
// The kit carries the tasks of the process on one stream, each task in a
// goroutine of its own; streams logs and saved values; cancels contexts; turns
// errors and panics into outcomes; and ends the process when its agent is gone.
package sdk
