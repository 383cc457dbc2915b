package raftgroup

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// readRounds lets readers share the question whether we still lead: one round
// is under way, all who come meanwhile share the next.
type readRounds struct {
	mu      sync.Mutex
	running bool
	next    *readRound
}

type readRound struct {
	done  chan struct{}
	index uint64
	err   error
}

// ReadIndex gives an index such that a read from a state that has applied it
// (WaitApplied has been called for this member) sees every write that was
// answered before the call. Only the leader can: it asks a majority whether it
// still is. The answer of one question serves all who asked before it.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) {
	round := g.joinRound()
	select {
	case <-round.done:
	case <-ctx.Done():
		return 0, fmt.Errorf("read index: %w", ctx.Err())
	case <-g.done:
		return 0, fmt.Errorf("read index: %w", ErrShutdown)
	}
	if round.err != nil {
		return 0, fmt.Errorf("read index: %w", round.err)
	}
	if err := g.WaitApplied(ctx, round.index); err != nil {
		return 0, fmt.Errorf("read index: %w", err)
	}
	return round.index, nil
}

func (g *Group) joinRound() *readRound {
	r := &g.reads
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &readRound{done: make(chan struct{})}
	}
	mine := r.next
	if !r.running {
		r.running = true
		go g.runRounds()
	}
	return mine
}

func (g *Group) runRounds() {
	for {
		g.reads.mu.Lock()
		round := g.reads.next
		g.reads.next = nil
		if round == nil {
			g.reads.running = false
			g.reads.mu.Unlock()
			return
		}
		g.reads.mu.Unlock()
		round.index, round.err = g.verify()
		close(round.done)
	}
}

// verify takes the commit index, then has a majority confirm that nobody else
// can have committed anything meanwhile.
func (g *Group) verify() (uint64, error) {
	term := g.raft.CurrentTerm()
	g.mu.Lock()
	known := g.established == term
	g.mu.Unlock()
	if !known {
		// A new leader's commit index may lag behind what its predecessor has
		// answered, until an entry of its own term is through.
		if err := g.Barrier(context.Background()); err != nil {
			return 0, err
		}
	}
	index := g.raft.CommitIndex()
	if err := g.await(context.Background(), g.raft.VerifyLeader()); err != nil {
		return 0, g.outcomeOfQuestion(err)
	}
	return index, nil
}

// waitQueued waits until the library has applied index. It has no notice for
// that, and a caller is here only when a follower lags, so it is looked at in
// short turns.
func (g *Group) waitQueued(ctx context.Context, index uint64) error {
	pause := time.Millisecond
	for g.raft.AppliedIndex() < index {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.done:
			return ErrShutdown
		case <-time.After(pause):
			pause = min(2*pause, 20*time.Millisecond)
		}
	}
	return nil
}
