// Package dispatch is the leader's controller that leases ready tasks to workers and takes
// their reports: sessions, leases, fair shares and limits.
//
// Its knowledge lives in memory and is rebuilt from the replicated state in every term. The
// jobs of its queue own it, one at a time; everybody else leaves calls in a mailbox. Leases and
// results are in the log: a lease is valid once its entry is committed, and the entry's index is
// its fence. The memory follows the batches of the state, never the answer to a proposal: an
// answer may be lost, and its entry committed all the same. What a proposal was to bring and the
// state does not have is given up when the proposal ends.
//
// The keys of the queue (package loop) are jobs, not operations: the dispatcher is the hot path
// of the leader, and gathers everything that happened into one round of leases and one entry of
// the log. Each job begins with all calls that have arrived.
package dispatch
