// Package runs is the leader's duty that carries out runs of programs on clusters of
// their own (engine/profile; docs/decisions/050-profiles-and-runs.md).
//
// What a run is stands in the state before anything is done about it, so that any
// leader goes on where another one ended: it asks the record what comes next, does
// it, and proposes what became of that as an event of the record it was made from.
package runs
