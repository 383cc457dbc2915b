// Package member runs an agent's part in the replicated state: it keeps a Raft
// member running, starts the first Raft group, and runs the leader's duties for
// as long as this agent leads.
package member
