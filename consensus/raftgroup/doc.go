// Package raftgroup runs one member of a Raft group: hashicorp/raft with the
// settings, the safeguards and the typed errors that Coopr needs.
//
// A member with empty stores does nothing until a leader contacts it, so every
// eligible agent may run one and wait to be added (package voters decides which
// are). What the package adds to the library:
//
//   - leadership changes, all of them, each with its term (Leadership);
//   - outcomes that a caller can act on: ErrNotLeader (not done, ask the
//     leader), ErrUnknownOutcome (may or may not be done), ErrShutdown;
//   - linearizable reads (ReadIndex, WaitApplied);
//   - what the leader knows of the others (Progress), read off the heartbeats;
//   - a stop instead of a panic when the disk is sick, and a stop instead of a
//     leader that refuses everything after a broken transfer (raft issue 696);
//   - recovery after the loss of a majority (RecoverFile).
package raftgroup
