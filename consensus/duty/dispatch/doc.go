// Package dispatch is the leader's duty that gives ready tasks to workers and
// takes their reports: sessions, leases, fair shares and limits.
//
// What it knows lives in memory and is made anew from the replicated state at
// every term. One goroutine owns it (Run); others leave messages. What is
// granted and what was done is in the log: a lease is valid once its entry is
// committed, and the entry's index is its fence.
package dispatch
