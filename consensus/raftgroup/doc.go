// Package raftgroup runs one member of a Raft group: hashicorp/raft with the
// settings, the safeguards and the typed errors that Coopr needs.
//
// A member with empty stores does nothing until a leader contacts it, so every
// eligible agent may run one and wait to be added (package voters decides which
// agents are added). The package adds to the library:
//
//   - every change of leadership, with its term (Leadership);
//   - outcomes that a caller can act on: ErrNotLeader (not done, ask the
//     leader), ErrUnknownOutcome (may or may not be done), ErrShutdown;
//   - linearizable reads (ReadIndex, WaitApplied);
//   - time-outs that follow how late heartbeats are (package tempo);
//   - the leader's knowledge of the other members (Progress), taken from the heartbeats;
//   - protection against a snapshot that is older than the member's log, and against a loop with a
//     leader that sends such snapshots (inbox);
//   - a stop instead of a panic when the disk is sick, and a stop instead of a
//     leader that refuses every entry after a broken transfer (raft issue 696);
//   - recovery after the loss of a majority (RecoverFile).
package raftgroup
