// Package sinks has the leader's controller that delivers the records of the audit log to its sinks: in order, at least once.
//
// How far a sink has come is in the state, recorded at most once a second. So the next leader sends again what the last one had
// sent since then, under the same numbers.
package sinks
