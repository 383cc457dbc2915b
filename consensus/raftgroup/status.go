package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// Stats holds the state of a member at one moment, for status pages and metrics.
type Stats struct {
	ID           string    `json:"id"`
	State        string    `json:"state"` // leader, follower, candidate or shutdown
	Term         uint64    `json:"term"`
	LeaderID     string    `json:"leaderId,omitempty"`
	LeaderAddr   string    `json:"leaderAddress,omitempty"`
	LastIndex    uint64    `json:"lastIndex"`
	CommitIndex  uint64    `json:"commitIndex"`
	AppliedIndex uint64    `json:"appliedIndex"` // as Group.AppliedIndex
	LastContact  time.Time `json:"lastContact"`  // with the leader; zero on the leader, or when there was no contact
	// HeartbeatTimeout is the silence of a leader after which this member stands for election.
	HeartbeatTimeout time.Duration `json:"heartbeatTimeout"`
	Pending          int           `json:"pending"` // entries submitted here and not answered yet
	Servers          []Server      `json:"servers"`
	// Snapshot is when the newest snapshot was made here or arrived; zero: there is none, or its time is unknown.
	Snapshot time.Time `json:"snapshot"`
	// Applied is the number of entries that the state machine has applied since the start, and Applying the time that it took.
	Applied  uint64        `json:"applied"`
	Applying time.Duration `json:"applying"`
	Store    logstore.Stats
	// StoreError is the fault of the store, or empty when the store is healthy.
	StoreError string `json:"storeError,omitempty"`
}

// Stats returns the current state of the member.
func (g *Group) Stats() Stats {
	s := Stats{
		ID:               g.cfg.ID,
		Term:             g.raft.CurrentTerm(),
		LastIndex:        g.raft.LastIndex(),
		CommitIndex:      g.raft.CommitIndex(),
		AppliedIndex:     g.AppliedIndex(),
		HeartbeatTimeout: g.timing.HeartbeatTimeout + g.waits.extra(),
		Pending:          g.pending.count(),
		Servers:          g.Servers(),
		Snapshot:         g.state.snapshots.time(),
		Applied:          g.state.applied.Load(),
		Applying:         time.Duration(g.state.applying.Load()),
		Store:            g.cfg.Stores.Guard().Stats(),
	}
	s.LeaderID, s.LeaderAddr = g.Leader()
	switch g.raft.State() {
	case raft.Leader:
		s.State = "leader"
	case raft.Follower:
		s.State = "follower"
	case raft.Candidate:
		s.State = "candidate"
	default:
		s.State = "shutdown"
	}
	if s.State != "leader" {
		s.LastContact = g.raft.LastContact()
	}
	if err := g.cfg.Stores.Guard().Err(); err != nil {
		s.StoreError = err.Error()
	}
	return s
}

// Snapshot takes a snapshot and opens it. If nothing has changed since the last snapshot, it opens
// the last one. It works on any member. The caller closes the reader.
func (g *Group) Snapshot(ctx context.Context) (*raft.SnapshotMeta, io.ReadCloser, error) {
	var f raft.SnapshotFuture
	err := g.ask(ctx, func() raft.Future {
		f = g.raft.Snapshot()
		return f
	})
	if err == nil {
		meta, rc, err := f.Open()
		if err != nil {
			return nil, nil, fmt.Errorf("open the new snapshot: %w", err)
		}
		return meta, rc, nil
	}
	if !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil, nil, fmt.Errorf("take a snapshot: %w", err)
	}
	list, err := g.cfg.Stores.Snapshots.List()
	if err != nil {
		return nil, nil, fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("take a snapshot: %w", raft.ErrNothingNewToSnapshot)
	}
	meta, rc, err := g.cfg.Stores.Snapshots.Open(list[0].ID)
	if err != nil {
		return nil, nil, fmt.Errorf("open the last snapshot: %w", err)
	}
	return meta, rc, nil
}

// Restore replaces the whole replicated state with a snapshot. It uses only Size, Version and Index
// of meta. The log continues after Index or after its own last entry, whichever is higher. Restore
// works on the leader only and is meant for disaster recovery into a group that serves no requests.
// Entries that are being committed fail with ErrUnknownOutcome.
func (g *Group) Restore(ctx context.Context, meta *raft.SnapshotMeta, state io.Reader) error {
	if !g.IsLeader() {
		return fmt.Errorf("restore: %w", g.notLeader())
	}
	err := g.ask(ctx, func() raft.Future { return answered{g.raft.Restore(meta, state, 0)} })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("restore: %w; it continues in the background", err)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", g.outcome(err))
	}
	return nil
}

// answered is a raft.Future whose answer is known already.
type answered struct{ err error }

func (a answered) Error() error { return a.err }
