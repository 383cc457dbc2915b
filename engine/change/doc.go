// Package change is one change object: what it is, and what it does about an
// event (docs/spec/changes.md). An Object decides only from its own state and what
// its neighbours told it; Handle takes one event and says what follows, as
// messages and acts, with no clock, no randomness and no I/O.
//
// Around it stand the compiler of sites (site), the objects of one agent (home),
// many homes in simulated time with faults (sim), and the exhaustive search of
// the lock protocol (search; what it covers is said there). Why it is as it is:
// docs/decisions/030-change-objects.md.
package change
