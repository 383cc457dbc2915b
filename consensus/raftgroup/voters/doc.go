// Package voters keeps a small set of live agents voting, spread over zones.
//
// Three agents vote, or five once five are eligible; the others hold no log and are not part of the
// Raft group at all. Decide returns the one next change for the leader's view. The Controller, a
// duty of the leader, makes the change and decides again. Health comes from raft-autopilot, which
// works on data from the heartbeats. This package decides the changes itself, because autopilot's
// reconciliation makes several at a time, ties none to the configuration it was decided on, and
// promotes a member before it knows whether the quorum can afford it.
//
// # Two agents
//
// With exactly two eligible agents one votes and the other is its standby: a
// member without a vote that holds the whole log. Two voters would be worse: the
// loss of either would stop the group. With one voter, only the loss of that voter
// stops it, and the standby holds a copy with which an operator can recover the group
// (raftgroup.RecoverFile). One voter alone would have no copy. The same holds on
// the way from one to three: the second agent gets a vote only when a third agent
// is ready for its vote too.
//
// # Order of a replacement
//
// A spare is first added without a vote and catches up while the dead voter
// still counts. When the spare is ready, the dead voter is removed, which
// never makes the quorum harder to reach. Then the spare gets its vote.
package voters
