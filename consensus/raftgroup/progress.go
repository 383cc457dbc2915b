package raftgroup

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Progress is the leader's latest knowledge of another member. It comes from the answers to the
// heartbeats and needs no messages of its own.
type Progress struct {
	// Contact is when the member last answered; zero means never.
	Contact time.Time
	// Asked is when the message was sent that the member answered.
	Asked time.Time
	// LastIndex is the newest entry that the member held at that time.
	LastIndex uint64
	// Term is the term of the member at that time.
	Term uint64
}

// Progress returns the latest knowledge of member id since this process started. It grows stale while
// this member does not lead.
func (g *Group) Progress(id string) Progress {
	g.trans.mu.Lock()
	defer g.trans.mu.Unlock()
	return g.trans.heard[raft.ServerID(id)].Progress
}

// watchedTransport records the state of each member from its answers to AppendEntries. Heartbeats
// always use AppendEntries, also while entries are pipelined.
type watchedTransport struct {
	raft.Transport
	waits  *timeouts
	mu     sync.Mutex
	heard  map[raft.ServerID]heard
	round  uint64        // number of the last round that checks the leadership, see verify
	news   chan struct{} // closed at the next answer while a goroutine waits for it, else nil
	asked  map[raft.ServerID]*asking
	askers sync.WaitGroup
	over   bool // ask sends no more heartbeats
	inbox  *inbox
	// damaged returns the fault of a log that has lost an entry, or nil. The library's messages may be
	// short of that entry, so none is sent then, and a leader loses its lease.
	damaged func() error
}

// asking is a heartbeat that ask has sent to a member and that is not answered yet.
type asking struct {
	again *raft.AppendEntriesRequest // the heartbeat of a round that has begun since
}

type heard struct {
	Progress
	round uint64 // the last round that was open when the message was sent
	// sent is the newest entry that the member confirmed when entries were sent to it in sentIn, a term. The library's next entry for the
	// member is the one after it.
	sent, sentIn uint64
}

// sends reports whether a request is one of those that send entries, also none at times, and no heartbeat.
func sends(r *raft.AppendEntriesRequest) bool {
	return len(r.Entries) > 0 || r.PrevLogEntry > 0 || r.LeaderCommitIndex > 0
}

// preVoting keeps the transport's pre-vote, which the library detects by type.
type preVoting struct {
	*watchedTransport
	raft.WithPreVote
}

// watchTransport wraps t. Late heartbeats are reported to waits.
func watchTransport(t raft.Transport, waits *timeouts) *watchedTransport {
	return &watchedTransport{Transport: t, waits: waits, heard: make(map[raft.ServerID]heard), asked: make(map[raft.ServerID]*asking),
		inbox: newInbox(waits), damaged: func() error { return nil }}
}

// forRaft returns the transport for the library.
func (w *watchedTransport) forRaft() raft.Transport {
	if p, ok := w.Transport.(raft.WithPreVote); ok {
		return &preVoting{watchedTransport: w, WithPreVote: p}
	}
	return w
}

// AppendEntries passes the library's call on. It delays a heartbeat until the next one is due.
func (w *watchedTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	if err := w.damaged(); err != nil {
		return err
	}
	if sends(args) {
		return w.noted(id, target, args, resp)
	}
	w.pace(id)
	if extra := w.waits.extra(); extra > 0 {
		return w.patient(id, target, args, resp, extra)
	}
	asked := time.Now()
	err := w.noted(id, target, args, resp)
	if now := time.Now(); err == nil {
		w.waits.note(now, now.Sub(asked))
	}
	return err
}

// errLate is the error of a heartbeat that a member has not answered in time.
var errLate = errors.New("the member is late with its answer")

// patient sends a heartbeat for a leader that is patient, and answers the library with the last answer of the member if that one
// was to a heartbeat of at most extra ago. So a leader that hears late from a majority goes on for longer. The answers serve for
// nothing else: this package has checks of its own of what a majority has confirmed.
func (w *watchedTransport) patient(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse, extra time.Duration) error {
	w.send(id, target, args)
	timer := time.NewTimer(w.waits.timing.HeartbeatTimeout)
	defer timer.Stop()
	for {
		w.mu.Lock()
		last, news := w.heard[id], w.awaited()
		w.mu.Unlock()
		if last.Term > args.Term || last.Term == args.Term && time.Since(last.Asked) < extra {
			// The header is left out: the library decodes the next answer into resp in place, and would write into that of args.
			*resp = raft.AppendEntriesResponse{Term: last.Term, LastLog: last.LastIndex, Success: last.Term == args.Term}
			return nil
		}
		select {
		case <-news:
		case <-timer.C:
			return errLate
		}
	}
}

// noted passes a message on and records the answer.
func (w *watchedTransport) noted(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	asked := time.Now()
	w.mu.Lock()
	round := w.round
	w.mu.Unlock()
	if err := w.Transport.AppendEntries(id, target, args, resp); err != nil {
		return err
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.heard[id]
	if resp.Term != args.Term {
		// The member is in another term: its earlier answers to this leader no longer count.
		last.Contact, last.LastIndex, last.Term = now, resp.LastLog, resp.Term
		w.heard[id] = last
	} else {
		w.heard[id] = heard{
			Progress: Progress{Contact: now, Asked: later(last.Asked, asked), LastIndex: resp.LastLog, Term: resp.Term},
			round:    max(last.round, round), sent: last.sent, sentIn: last.sentIn,
		}
	}
	w.confirms(id, args, resp)
	if w.news != nil {
		close(w.news)
		w.news = nil
	}
	return nil
}

// confirms records what a member has confirmed of the entries that were sent to it. The mutex is held.
func (w *watchedTransport) confirms(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if !sends(args) || !resp.Success || resp.Term != args.Term {
		return
	}
	h, newest := w.heard[id], args.PrevLogEntry
	if n := len(args.Entries); n > 0 {
		newest = args.Entries[n-1].Index
	}
	h.sent, h.sentIn = newest, args.Term
	w.heard[id] = h
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// openRound begins a round that checks the leadership and returns its number.
func (w *watchedTransport) openRound() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round++
	return w.round
}

// ask sends a heartbeat of term to each of the members at once, so that a round need not wait for the
// library's next heartbeat. It is the same message, and only a member that leads in term, or has just
// ceased to lead, sends it. If a member has not answered the last one yet, the next one follows its
// answer.
//
// The library's VerifyLeader would do the same. But a call of it while the library's main loop is busy
// can block the heartbeats, and it blocks them for good when the library is shut down.
func (w *watchedTransport) ask(self string, term uint64, servers []Server) {
	local := w.EncodePeer(raft.ServerID(self), w.LocalAddr())
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: local},
		Term:      term,
	}
	for _, s := range servers {
		if s.ID != self {
			w.send(raft.ServerID(s.ID), raft.ServerAddress(s.Addr), req)
		}
	}
}

// send sends a heartbeat to a member without waiting for the answer, which noted records.
func (w *watchedTransport) send(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if a, ok := w.asked[id]; ok {
		a.again = req
		return
	}
	a := &asking{}
	w.asked[id] = a
	w.askers.Go(func() {
		for {
			asked := time.Now()
			// An error leaves the member unconfirmed.
			if w.noted(id, target, req, &raft.AppendEntriesResponse{}) == nil {
				now := time.Now()
				w.waits.note(now, now.Sub(asked))
			}
			w.mu.Lock()
			if a.again == nil || w.over {
				delete(w.asked, id)
				w.mu.Unlock()
				return
			}
			req, a.again = a.again, nil
			w.mu.Unlock()
		}
	})
}

// stopAsking ends the heartbeats of ask and waits for those under way.
func (w *watchedTransport) stopAsking() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.askers.Wait()
}

// confirmed reports whether a majority of the voters, self included, has answered in term to a message
// sent after the round was opened. If not, news is closed at the next answer.
func (w *watchedTransport) confirmed(round, term uint64, self string, servers []Server) (ok bool, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	yes, voters := 0, 0
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		voters++
		h := w.heard[raft.ServerID(s.ID)]
		if s.ID == self || (h.Term == term && h.round >= round) {
			yes++
		}
	}
	if yes > voters/2 {
		return true, nil
	}
	return false, w.awaited()
}

// holder returns the first of servers that held the entry at index by its last answer in term. If there is none, news is closed at the
// next answer of any member.
func (w *watchedTransport) holder(index, term uint64, servers []Server) (s *Server, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range servers {
		if h := w.heard[raft.ServerID(s.ID)]; h.Term == term && h.LastIndex >= index {
			return &servers[i], nil
		}
	}
	return nil, w.awaited()
}

// upToDate returns the first of servers that was sent every entry up to index in term, confirmed that, and has answered in term since the
// round was opened. If there is none, news is closed at the next answer of any member, and is nil if none of the servers was sent them.
func (w *watchedTransport) upToDate(index, term, round uint64, servers []Server) (s *Server, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range servers {
		h := w.heard[raft.ServerID(s.ID)]
		if h.sentIn != term || h.sent < index {
			continue
		}
		if h.Term == term && h.round >= round {
			return &servers[i], nil
		}
		news = w.awaited()
	}
	return nil, news
}

// awaited returns a channel that is closed at the next answer of any member. The mutex is held.
func (w *watchedTransport) awaited() <-chan struct{} {
	if w.news == nil {
		w.news = make(chan struct{})
	}
	return w.news
}

// SetHeartbeatHandler sets the library's handler of heartbeats, which the transport calls past the inbox, and notes each heartbeat.
func (w *watchedTransport) SetHeartbeatHandler(handle func(raft.RPC)) {
	w.Transport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
			w.waits.hears(req.Term)
		}
		handle(rpc)
	})
}

// promisedSince returns the time of the promise of a majority. By answering a heartbeat, a voter
// promises to follow no other leader for one election timeout after the heartbeat was sent.
func (w *watchedTransport) promisedSince(now time.Time, term uint64, self string, servers []Server) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	var asked []time.Time
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		h := w.heard[raft.ServerID(s.ID)]
		switch {
		case s.ID == self:
			asked = append(asked, now)
		case h.Term == term:
			asked = append(asked, h.Asked)
		default:
			asked = append(asked, time.Time{})
		}
	}
	if len(asked) == 0 {
		return time.Time{}
	}
	slices.SortFunc(asked, func(a, b time.Time) int { return b.Compare(a) })
	return asked[len(asked)/2]
}

// Close closes the wrapped transport. It calls CloseStreams first if the transport has it, because Close
// of the library's network transport leaves the pooled connections open. A transport without a Close
// method stays as it is.
func (w *watchedTransport) Close() error {
	if c, ok := w.Transport.(interface{ CloseStreams() }); ok {
		c.CloseStreams()
	}
	if c, ok := w.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}
