// Package voters keeps the right agents voting: few, spread over zones, alive.
//
// Three agents vote, five once five are eligible; the others hold no log and are not part of the
// Raft group at all. Decide says, from what the leader sees, the one next change; the Controller, a
// duty of the leader, makes the change and decides again. Health comes from raft-autopilot, fed by
// what the heartbeats tell; the changes are ours, because autopilot's reconciliation makes several
// at a time, ties none to the configuration it was decided on, and promotes before it knows whether
// the quorum can afford it.
//
// # Two agents
//
// With exactly two eligible agents one votes and the other is its standby: a
// member without a vote that holds the whole log. Two voters would be worse: the
// loss of either would stop the group, while now only the loss of the voter
// does, and its copy is on the standby, from which an operator can go on
// (raftgroup.RecoverFile). One voter alone would have no copy. The same holds on
// the way from one to three: the second vote is given only when a third agent
// is ready for its vote too.
//
// # Order of a replacement
//
// A spare is first added without a vote and catches up while the dead voter
// still counts. Only when the spare is ready the dead voter is removed, which
// never makes the quorum harder to reach, and then the spare gets its vote.
package voters
