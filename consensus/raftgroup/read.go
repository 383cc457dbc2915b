package raftgroup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// readRounds lets readers share the check that this member still leads. One round is under way; all
// readers that arrive during it share the next round.
type readRounds struct {
	g       *Group
	mu      sync.Mutex
	running bool
	next    *readRound
}

type readRound struct {
	done  chan struct{}
	index uint64
	err   error
}

// ReadIndex returns an index such that a read from a state that has applied it sees every write that
// was answered before the call. This member has applied it when ReadIndex returns. ReadIndex works on
// the leader only: the leader asks a majority whether it still leads. Concurrent calls share one such
// round.
func (g *Group) ReadIndex(ctx context.Context) (uint64, error) {
	round := g.reads.join()
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

func (r *readRounds) join() *readRound {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &readRound{done: make(chan struct{})}
	}
	mine := r.next
	if !r.running {
		r.running = true
		go r.run()
	}
	return mine
}

func (r *readRounds) run() {
	for {
		r.mu.Lock()
		round := r.next
		r.next = nil
		if round == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		round.index, round.err = r.verify()
		close(round.done)
	}
}

// verify reads the commit index. Then a majority confirms that no other leader can have committed an
// entry before the round was opened.
//
// The library's VerifyLeader is not enough: it counts answers to messages that
// were sent before it was called. A leader whose process was stopped for a while finds
// such answers in its sockets when it resumes, long after another leader has taken over.
// verify counts only answers to messages that were sent after the round was opened.
func (r *readRounds) verify() (uint64, error) {
	g := r.g
	term := g.raft.CurrentTerm()
	if err := r.established(term); err != nil {
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

// established returns when this member, as the leader of term, has applied an entry of that term. Until
// then its commit index may be lower than that of writes which its predecessor has answered.
func (r *readRounds) established(term uint64) error {
	g := r.g
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

// HasLease reports, without sending a message, whether a read from this member's current state sees
// every write answered so far. That holds if a majority has promised, less than a leader's lease ago,
// to follow no other leader for an election timeout. HasLease relies on clocks that run at the same
// rate, and on a process that is not stopped between this answer and the read; ReadIndex relies on
// neither.
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
	return now.Sub(since) < g.timing.LeaderLeaseTimeout*2/3 // the rest allows for clocks that differ
}

// Confirm returns nil when each of the members ids has answered a message that was sent after the call
// began, which proves that they are reachable now. Leader only.
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

// waitQueued waits until the library has applied index. The library has no notification for that, so
// waitQueued polls at short intervals. It is reached only on a member that lags.
func waitQueued(ctx context.Context, r *raft.Raft, done <-chan struct{}, index uint64) error {
	pause := time.Millisecond
	for r.AppliedIndex() < index {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-done:
			return ErrShutdown
		case <-time.After(pause):
			pause = min(2*pause, 20*time.Millisecond)
		}
	}
	return nil
}
