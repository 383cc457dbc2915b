// Package dispatch is the leader's controller that leases ready tasks to workers and takes
// their reports: sessions, leases, fair shares and limits.
//
// Its knowledge lives in memory and is rebuilt from the replicated state in every term. One
// goroutine owns it (Run); all others leave calls in a mailbox. Leases and results are in
// the log: a lease is valid once its entry is committed, and the entry's index is its
// fence. The memory follows the batches of the state, never the answer to a proposal: an
// answer may be lost, and its entry committed all the same. What a proposal was to bring and
// the state does not have is given up when the proposal ends.
//
// The dispatcher is not a reconcile loop over keys (package loop): it is the hot path of
// the leader, and gathers everything that happened into one round of leases and one entry
// of the log. It shares the mailbox with the other controllers.
package dispatch
