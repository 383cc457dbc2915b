// Package runs is the leader's controller that carries out runs of programs on clusters
// of their own (engine/profile; docs/decisions/050-profiles-and-runs.md).
//
// The record of a run is committed before anything is done about the run. The
// controller reads from the record what comes next, does it, and proposes the outcome
// as an event of the version of the record that it read. A new leader therefore goes on
// where the previous one ended.
package runs
