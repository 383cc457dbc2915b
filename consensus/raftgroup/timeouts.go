package raftgroup

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/raftgroup/tempo"
)

// timeouts adapts the time-outs of a member to its machine. Where heartbeats are late because processors are short, a follower
// waits longer before it stands for election, and a leader goes on for longer without the answers of a majority. Each member
// decides alone: a new leader needs a majority that has lost its patience, as the others refuse their votes. Reads under a lease
// are not affected: HasLease counts with the shortest time-out.
type timeouts struct {
	timing  Timing // stretched
	beat    time.Duration
	log     *slog.Logger
	changed chan struct{} // receives after a change; buffered

	configuring sync.Mutex // held while the library's settings are changed

	mu       sync.Mutex
	tempo    *tempo.Tempo
	term     uint64    // of the leader that was heard last
	heard    time.Time // when
	mayStand bool      // the member may stand for election
}

func newTimeouts(t Timing, log *slog.Logger) *timeouts {
	return &timeouts{timing: t, beat: t.HeartbeatTimeout / beats, log: log, changed: make(chan struct{}, 1),
		tempo: tempo.New(t.HeartbeatTimeout), mayStand: true}
}

// hears notes a message of the leader of a term. How late it is follows from the pause since the last one, unless another leader sent
// that one.
func (t *timeouts) hears(term uint64) {
	now := time.Now()
	t.mu.Lock()
	last := t.heard
	same := t.term == term
	t.term, t.heard = term, now
	t.mu.Unlock()
	if same {
		t.note(now, now.Sub(last)-t.beat)
	}
}

// note records that a heartbeat or an answer is late.
func (t *timeouts) note(now time.Time, late time.Duration) {
	t.mu.Lock()
	changed := t.tempo.Note(now, late)
	timeout := t.tempo.Timeout()
	t.mu.Unlock()
	if changed {
		t.log.Info("the patience with late heartbeats has changed", "heartbeat_timeout", timeout)
		t.signal()
	}
}

// signal has follow compare the library's time-outs with those that hold now.
func (t *timeouts) signal() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// extra returns by how much the time-out is longer than usual.
func (t *timeouts) extra() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tempo.Timeout() - t.timing.HeartbeatTimeout
}

// abstain has the member stand for no election until stand is called.
func (t *timeouts) abstain(c *raft.Config) {
	c.HeartbeatTimeout, c.ElectionTimeout = never, never
	t.mayStand = false
}

// stand lets the member stand for election.
func (t *timeouts) stand() {
	t.mu.Lock()
	t.mayStand = true
	t.mu.Unlock()
	t.signal()
}

// configure changes settings of the library, one change after the other.
func (t *timeouts) configure(r *raft.Raft, change func(*raft.ReloadableConfig)) error {
	t.configuring.Lock()
	defer t.configuring.Unlock()
	before := r.ReloadableConfig()
	c := before
	if change(&c); c == before {
		return nil
	}
	return r.ReloadConfig(c)
}

// follow keeps the library's time-outs up to date until done is closed.
func (t *timeouts) follow(r *raft.Raft, done <-chan struct{}) {
	for {
		select {
		case <-t.changed:
			t.set(r)
		case <-done:
			return
		}
	}
}

// set brings the library's time-outs up to date. The library of a leader derives the pause between heartbeats from them, so a leader
// has the usual ones.
func (t *timeouts) set(r *raft.Raft) {
	t.mu.Lock()
	want, mayStand := t.tempo.Timeout(), t.mayStand
	t.mu.Unlock()
	if !mayStand {
		return
	}
	if r.State() == raft.Leader {
		want = t.timing.HeartbeatTimeout
	}
	err := t.configure(r, func(c *raft.ReloadableConfig) {
		c.HeartbeatTimeout, c.ElectionTimeout = want, max(want, t.timing.ElectionTimeout)
	})
	if err != nil {
		t.log.Error("the library refuses the time-outs of this member; restart the agent if it does not stand for election", "error", err)
	}
}
