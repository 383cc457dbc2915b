// Package logstore keeps a Raft member's log, votes and snapshots, and never
// lets a sick disk block the member.
//
// Every write passes the guard. A write that does not return within the deadline
// is abandoned with an error, because hashicorp/raft otherwise lets a leader
// whose disk hangs send heartbeats for ever while no entry can be committed
// (raft issues 503, 612, 614, 666). The guard remembers an abandoned write: it
// refuses every other write until the abandoned one has returned, and has been
// undone if it succeeded after all. So the log on disk never holds entries whose
// append Raft believes to have failed.
package logstore
