package raftgroup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// LeadershipChange is the event that this member has become the leader of Term, or has ceased to be
// the leader.
type LeadershipChange struct {
	Leader bool
	Term   uint64
}

// Leadership returns a channel of every change from now on, gained and lost in turn. If the member
// leads already, that is the first change. The channel is closed when ctx ends or after the member has
// stopped; a leader that stops reports the loss first. A slow reader delays no other reader.
func (g *Group) Leadership(ctx context.Context) <-chan LeadershipChange {
	out := make(chan LeadershipChange)
	at, fresh := g.events.subscribe()
	go func() {
		defer close(out)
		for {
			if fresh {
				select {
				case out <- at.change:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-at.ready:
				if at, fresh = at.next, true; at == nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// IsLeader reports whether this member currently considers itself the leader.
func (g *Group) IsLeader() bool { return g.raft.State() == raft.Leader }

// Term returns the member's current term.
func (g *Group) Term() uint64 { return g.raft.CurrentTerm() }

// Leader returns the id and address of the leader that this member knows. Both are empty when it
// knows none.
func (g *Group) Leader() (id, addr string) {
	a, i := g.raft.LeaderWithID()
	return string(i), string(a)
}

// LeaderChanged returns a channel that is closed at the next change of Leader. Call it before Leader,
// so that no change is missed.
func (g *Group) LeaderChanged() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leaderMoved
}

// observe handles an observation. The library calls it on the goroutine that makes the observation, so
// it must not block. It always returns false, which keeps observations out of the observer's channel:
// such a channel drops observations when it is full.
func (g *Group) observe(o *raft.Observation) bool {
	switch v := o.Data.(type) {
	case raft.LeaderObservation:
		g.mu.Lock()
		close(g.leaderMoved)
		g.leaderMoved = make(chan struct{})
		g.mu.Unlock()
	case raft.RaftState:
		g.waits.signal()
		if v == raft.Leader {
			// The call comes from the main loop, right after it has won: the term is the one that it
			// won. follow reads it before the main loop can reach another term.
			g.events.setTerm(o.Raft.CurrentTerm())
		}
	}
	return false
}

// probe checks whether a new leader, or one whose transfer has failed, can commit an entry. After a
// transfer that ended at a bad moment, the library refuses every entry for ever (raft issue 696).
func (g *Group) probe(term uint64) {
	patience := max(4*g.timing.ElectionTimeout, time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := g.Barrier(context.Background())
		switch {
		case err == nil:
			g.mu.Lock()
			if g.raft.CurrentTerm() == term {
				g.firstOf = max(g.firstOf, term)
			}
			g.mu.Unlock()
			return
		case !errors.Is(err, ErrTransferring):
			return // not the leader any more, or stopped
		}
		select {
		case <-ctx.Done():
			g.sick(ErrTransferStuck)
			return
		case <-g.done:
			return
		case <-time.After(g.timing.ElectionTimeout / 4):
		}
	}
}

// eventLog is a list of changes that any number of readers follow at their own pace. Changes that all
// readers have passed are garbage-collected.
type eventLog struct {
	mu   sync.Mutex
	tail *event
	term uint64
}

type event struct {
	change LeadershipChange // zero in the node that starts the list
	ready  chan struct{}    // closed when next is known; a nil next then means the end
	next   *event
}

func newEventLog() *eventLog { return &eventLog{tail: &event{ready: make(chan struct{})}} }

func (l *eventLog) setTerm(t uint64) {
	l.mu.Lock()
	l.term = t
	l.mu.Unlock()
}

// follow records the library's announcements of leadership gained and lost. The library's main loop
// sends them in turn and waits for follow each time, so none is lost and follow must not block. It
// starts probe for each term won.
func (l *eventLog) follow(notify <-chan bool, done <-chan struct{}, log *slog.Logger, probe func(term uint64)) {
	for {
		select {
		case leader := <-notify:
			term := l.add(leader)
			if leader {
				log.Info("became the leader", "term", term)
				go probe(term)
			} else {
				log.Info("ceased to be the leader", "term", term)
			}
		case <-done:
			l.end()
			return
		}
	}
}

func (l *eventLog) add(leader bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.appendLocked(leader)
	return l.tail.change.Term
}

func (l *eventLog) appendLocked(leader bool) {
	term := l.term
	if !leader {
		// l.term may hold the term of the next victory already.
		term = l.tail.change.Term
	}
	e := &event{change: LeadershipChange{Leader: leader, Term: term}, ready: make(chan struct{})}
	l.tail.next = e
	close(l.tail.ready)
	l.tail = e
}

func (l *eventLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tail.change.Leader {
		l.appendLocked(false)
	}
	close(l.tail.ready)
}

// subscribe returns the node after which the reader continues. fresh reports whether the reader must
// also deliver the node's own change, which it must when this member leads.
func (l *eventLog) subscribe() (from *event, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail, l.tail.change.Leader
}
