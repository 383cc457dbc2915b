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
//
// A separate file, the watermark, records how far the log has reached. A member whose log has lost entries
// keeps its term and its vote, and votes again only when the leader has sent the entries again
// (Guard.Abstains).
//
// Every log entry has a checksum, which is verified whenever the entry is read from the disk. A damaged
// entry makes the store sick, and a damaged database is not opened. The snapshots have checksums too,
// which are verified when one is opened. Damaged stores can be put aside (PutAside); the member then
// begins with empty ones and the leader sends the state.
package logstore
