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
// can have committed anything before the question was put.
//
// The library's VerifyLeader is not enough: it counts answers to messages that
// were sent before it was called. A leader that was stopped for a while finds
// such answers in its sockets when it wakes, long after another has taken over.
// Here only answers to messages sent after the question count.
func (g *Group) verify() (uint64, error) {
	term := g.raft.CurrentTerm()
	if err := g.established(term); err != nil {
		return 0, err
	}
	index := g.raft.CommitIndex()
	round := g.trans.openRound()
	for first := true; ; first = false {
		moved := g.LeaderChanged()
		if !g.IsLeader() || g.raft.CurrentTerm() != term {
			return 0, g.notLeader()
		}
		if first {
			g.trans.ask(g.cfg.ID, term, g.Servers())
		}
		ok, news := g.trans.confirmed(round, term, g.cfg.ID, g.Servers())
		if ok {
			return index, nil
		}
		select {
		case <-news:
		case <-moved:
		case <-g.done:
			return 0, ErrShutdown
		}
	}
}

// established returns when this member, as the leader of term, has applied an
// entry of that term. Before, its commit index may lag behind what its
// predecessor has answered.
func (g *Group) established(term uint64) error {
	g.mu.Lock()
	known := g.firstOf == term
	g.mu.Unlock()
	if known {
		return nil
	}
	if err := g.Barrier(context.Background()); err != nil {
		return err
	}
	if g.raft.CurrentTerm() != term {
		return g.notLeader()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.firstOf = max(g.firstOf, term)
	return nil
}

// HasLease says whether a read from this member's state, as it is now, sees
// every write answered so far, without asking anyone: a majority has promised,
// less than a leader's lease ago, to follow nobody else for an election timeout.
// It trusts the clocks' rates and that the process was not stopped between this
// answer and the read; ReadIndex trusts neither.
func (g *Group) HasLease() bool {
	term := g.raft.CurrentTerm()
	g.mu.Lock()
	known, transferring := g.firstOf == term, g.transfers > 0
	g.mu.Unlock()
	if !known || transferring || !g.IsLeader() {
		return false
	}
	now := time.Now()
	since := g.trans.promisedSince(now, term, g.cfg.ID, g.Servers())
	return now.Sub(since) < g.timing.LeaderLeaseTimeout*2/3 // the rest is for clocks that differ
}

// Confirm returns when every one of the members ids has answered to a message
// sent after the call: they are there now, not a while ago. Leader only.
func (g *Group) Confirm(ctx context.Context, ids ...string) error {
	term := g.raft.CurrentTerm()
	round := g.trans.openRound()
	if !g.IsLeader() {
		return fmt.Errorf("confirm members: %w", g.notLeader())
	}
	g.trans.ask(g.cfg.ID, term, g.Servers())
	for _, id := range ids {
		only := []Server{{ID: id, Voter: true}}
		for {
			moved := g.LeaderChanged()
			if !g.IsLeader() || g.raft.CurrentTerm() != term {
				return fmt.Errorf("confirm members: %w", g.notLeader())
			}
			ok, news := g.trans.confirmed(round, term, g.cfg.ID, only)
			if ok {
				break
			}
			select {
			case <-news:
			case <-moved:
			case <-ctx.Done():
				return fmt.Errorf("member %s does not answer: %w", id, ctx.Err())
			case <-g.done:
				return fmt.Errorf("confirm members: %w", ErrShutdown)
			}
		}
	}
	return nil
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
