// Package logstore keeps a Raft member's log, votes and snapshots, and never
// lets a sick disk hold the member up.
//
// Every write passes the guard: one that does not come back within the deadline
// is given up with an error, because hashicorp/raft otherwise lets a leader
// whose disk hangs send heartbeats for ever while nothing can be committed
// (raft issues 503, 612, 614, 666). What was given up is remembered: until that
// write has come back, and has been undone if it landed after all, no other
// write is let through, so the log on disk never holds what Raft was told it
// does not hold.
package logstore
