package raftgroup

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Progress is what a leader has heard last from another member. The heartbeats
// carry it; no question of its own is asked.
type Progress struct {
	// Contact is when the member last answered; zero means never.
	Contact time.Time
	// LastIndex is the newest entry that it held then.
	LastIndex uint64
	// Term is the term that it knew then.
	Term uint64
}

// Progress gives what was heard from member id since this process runs. It
// grows stale when this member does not lead.
func (g *Group) Progress(id string) Progress {
	g.trans.mu.Lock()
	defer g.trans.mu.Unlock()
	return g.trans.seen[raft.ServerID(id)]
}

// watchedTransport notes what the answers to AppendEntries tell about their
// sender. Heartbeats always come this way, also when entries are pipelined.
type watchedTransport struct {
	raft.Transport
	mu   sync.Mutex
	seen map[raft.ServerID]Progress
}

// preVoting keeps the transport's pre-vote, which the library looks for by type.
type preVoting struct {
	*watchedTransport
	raft.WithPreVote
}

func watchTransport(t raft.Transport) *watchedTransport {
	return &watchedTransport{Transport: t, seen: make(map[raft.ServerID]Progress)}
}

// forRaft is what the library gets.
func (w *watchedTransport) forRaft() raft.Transport {
	if p, ok := w.Transport.(raft.WithPreVote); ok {
		return &preVoting{watchedTransport: w, WithPreVote: p}
	}
	return w
}

// AppendEntries passes the call on and notes the answer.
func (w *watchedTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := w.Transport.AppendEntries(id, target, args, resp); err != nil {
		return err
	}
	now := time.Now()
	w.mu.Lock()
	w.seen[id] = Progress{Contact: now, LastIndex: resp.LastLog, Term: resp.Term}
	w.mu.Unlock()
	return nil
}

// Close closes the transport below, if it can be closed.
func (w *watchedTransport) Close() error {
	if c, ok := w.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}
