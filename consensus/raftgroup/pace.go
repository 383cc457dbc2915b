package raftgroup

import (
	"time"

	"github.com/hashicorp/raft"
)

// The library sends about ten heartbeats in each HeartbeatTimeout, and repeats its commit index every
// CommitTimeout, changed or not. On an idle mesh that is most of the work. Four heartbeats are enough:
// heartbeats are lost when a process gets no processor time, and such a process misses all ten as well.
// With three, a machine of two cores and fifteen busy processes had more false elections. Messages
// that repeat known facts are not sent.

// beats is the number of heartbeats to a member in a HeartbeatTimeout.
const beats = 4

// pace delays a heartbeat until a beat has passed since the last message that the member has answered
// was sent.
func (w *watchedTransport) pace(id raft.ServerID) {
	w.mu.Lock()
	last := w.heard[id].Asked
	w.mu.Unlock()
	wait := w.waits.beat - time.Since(last)
	if wait <= 0 {
		return
	}
	due := time.Now().Add(wait)
	time.Sleep(wait)
	now := time.Now()
	w.waits.note(now, now.Sub(due))
}

// repeated reports whether a message of a pipeline carries nothing but facts that the member has
// acknowledged already.
func (p *pipeline) repeated(m *raft.AppendEntriesRequest) bool {
	if len(m.Entries) > 0 || p.sent == 0 || p.answered.Load() < p.sent {
		// While answers are missing, the message also tests whether the member still answers.
		return false
	}
	return m.PrevLogEntry == p.told.PrevLogEntry && m.LeaderCommitIndex == p.told.LeaderCommitIndex
}

// AppendEntries sends a message unless it is repeated. To the library, an unsent message looks like one
// that is under way, and the library does not wait for its answer.
func (p *pipeline) AppendEntries(m *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.damaged(); err != nil {
		return nil, err
	}
	if p.repeated(m) {
		return nil, nil // the library does not use the future: answers come from Consumer
	}
	f, err := p.AppendPipeline.AppendEntries(m, resp)
	if err == nil {
		p.sent++
		p.told.PrevLogEntry, p.told.LeaderCommitIndex = m.PrevLogEntry, m.LeaderCommitIndex
		if n := len(m.Entries); n > 0 {
			p.told.PrevLogEntry = m.Entries[n-1].Index
		}
	}
	return f, err
}
