package raftgroup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// LeadershipChange says that this member has become the leader of Term, or has
// ceased to be it.
type LeadershipChange struct {
	Leader bool
	Term   uint64
}

// Leadership gives every change from now on, none left out, gained and lost in
// turn; when the member leads already, the first is that. The channel is closed
// after the member has stopped (a leader's last word is that it lost) or when
// ctx ends. A slow reader delays nobody but itself.
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

// IsLeader says whether this member takes itself for the leader just now.
func (g *Group) IsLeader() bool { return g.raft.State() == raft.Leader }

// Term is the member's current term.
func (g *Group) Term() uint64 { return g.raft.CurrentTerm() }

// Leader is the id and address of the leader as this member knows it; both are
// empty when it knows none.
func (g *Group) Leader() (id, addr string) {
	a, i := g.raft.LeaderWithID()
	return string(i), string(a)
}

// LeaderChanged is closed at the next change of what Leader returns. Take the
// channel first, then ask Leader.
func (g *Group) LeaderChanged() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leaderMoved
}

// observe is called by the library on its own goroutine at each observation; it
// must not block. It never lets an observation through to a channel: such
// channels drop what does not fit.
func (g *Group) observe(o *raft.Observation) bool {
	switch v := o.Data.(type) {
	case raft.LeaderObservation:
		g.mu.Lock()
		close(g.leaderMoved)
		g.leaderMoved = make(chan struct{})
		g.mu.Unlock()
	case raft.RaftState:
		if v == raft.Leader {
			// Still in the main loop that has just won: the term is that of the
			// victory. pump reads it before the loop can get to another one.
			g.events.setTerm(o.Raft.CurrentTerm())
		}
	}
	return false
}

// pump takes the library's announcements. They come in strict turns from its
// main loop, which waits for us: nothing is lost and nothing may block here.
func (g *Group) pump() {
	for {
		select {
		case leader := <-g.notify:
			term := g.events.add(leader)
			if leader {
				g.log.Info("became the leader", "term", term)
				go g.probe(term)
			} else {
				g.log.Info("ceased to be the leader", "term", term)
			}
		case <-g.done:
			g.events.end()
			return
		}
	}
}

// probe sees whether a new leader, or one whose transfer has failed, can commit
// at all. After a transfer that ended in an unlucky moment the library refuses
// everything for ever (raft issue 696).
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

// eventLog is a list of changes that any number of readers follow at their own
// pace; what all have read is collected as garbage.
type eventLog struct {
	mu   sync.Mutex
	tail *event
	term uint64
}

type event struct {
	change LeadershipChange // zero in the node that starts the list
	ready  chan struct{}    // closed when next is known; next nil then means the end
	next   *event
}

func newEventLog() *eventLog { return &eventLog{tail: &event{ready: make(chan struct{})}} }

func (l *eventLog) setTerm(t uint64) {
	l.mu.Lock()
	l.term = t
	l.mu.Unlock()
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
		// The next victory may have been noted already.
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

// subscribe gives the node to read on from, and whether its own change is news:
// it is when we lead.
func (l *eventLog) subscribe() (from *event, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail, l.tail.change.Leader
}
