package raftgroup

import (
	"time"

	"github.com/hashicorp/raft"
)

// The library beats ten times, or nearly so, in the time after which a follower
// would miss it, and says again every CommitTimeout what it has committed, news
// or none. On an idle mesh that is most of the work. Four beats do: what loses
// heartbeats here is a process that gets no processor, and it gets none for ten
// of them. With three, a machine of two cores with fifteen that want one saw
// more false elections. What is no news is not sent.

// beats is how many heartbeats go to a member in a HeartbeatTimeout.
const beats = 4

// pace lets a heartbeat wait until a beat has passed since the last message to
// the member that it answered.
func (w *watchedTransport) pace(id raft.ServerID) {
	w.mu.Lock()
	last := w.heard[id].Asked
	w.mu.Unlock()
	if wait := w.beat - time.Since(last); wait > 0 {
		time.Sleep(wait)
	}
}

// repeated says that a message of a pipeline tells the member only what it has
// answered to already.
func (p *pipeline) repeated(m *raft.AppendEntriesRequest) bool {
	if len(m.Entries) > 0 || p.sent == 0 || p.answered.Load() < p.sent {
		// Without an answer to everything sent, the message also finds out
		// whether there is anybody to answer.
		return false
	}
	return m.PrevLogEntry == p.told.PrevLogEntry && m.LeaderCommitIndex == p.told.LeaderCommitIndex
}

// AppendEntries sends a message, if there is news in it. The library takes what
// is not answered for what is on its way, and does not wait for it.
func (p *pipeline) AppendEntries(m *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.repeated(m) {
		return nil, nil // nobody looks at it: answers come from Consumer
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
