// Package object is the state machine of one change object (docs/spec/changes.md).
// An Object decides from its own state and from the messages of its neighbours only.
// Handle takes one event and returns the messages and acts that follow. It reads no
// clock, draws no random numbers and does no I/O.
//
// The packages around it: site has the documents and the records of a site, compile
// turns a document into definitions of objects, host runs the objects of one agent,
// sim runs the hosts of a site in simulated time with faults, and search checks the
// lock protocol exhaustively for small sites. docs/decisions/030-change-objects.md
// has the reasons for the design.
package object
