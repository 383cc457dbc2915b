package raftgroup

import (
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// openPipeline accepts every message; the test answers it.
type openPipeline struct {
	fullPipeline
	sent []*raft.AppendEntriesRequest
}

func (o *openPipeline) AppendEntries(m *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	o.sent = append(o.sent, m)
	return nil, nil
}

// TestNoNewsIsNotSent: facts that the member has acknowledged are not sent again; all other messages
// are sent.
func TestNoNewsIsNotSent(t *testing.T) {
	synctest.Test(t, noNews)
}

func noNews(t *testing.T) {
	inner := &openPipeline{fullPipeline: fullPipeline{answers: make(chan raft.AppendFuture), closed: make(chan struct{})}}
	p := newPipeline(inner, func(raft.AppendFuture) {})
	defer func() { _ = p.Close() }()
	entry := &raft.Log{Index: 8}
	for i, step := range []struct {
		m      raft.AppendEntriesRequest
		answer bool
		sent   int
	}{
		{raft.AppendEntriesRequest{PrevLogEntry: 7, LeaderCommitIndex: 7}, true, 1},
		{raft.AppendEntriesRequest{PrevLogEntry: 7, LeaderCommitIndex: 7}, false, 1},
		{raft.AppendEntriesRequest{PrevLogEntry: 7, LeaderCommitIndex: 7, Entries: []*raft.Log{entry}}, false, 2},
		{raft.AppendEntriesRequest{PrevLogEntry: 8, LeaderCommitIndex: 7}, false, 3}, // the entry is not answered yet
		{raft.AppendEntriesRequest{PrevLogEntry: 8, LeaderCommitIndex: 7}, true, 4},
		{raft.AppendEntriesRequest{PrevLogEntry: 8, LeaderCommitIndex: 8}, true, 5},
		{raft.AppendEntriesRequest{PrevLogEntry: 8, LeaderCommitIndex: 8}, false, 5},
	} {
		if _, err := p.AppendEntries(&step.m, nil); err != nil {
			t.Fatal(err)
		}
		if len(inner.sent) != step.sent {
			t.Fatalf("step %d: %d messages went out, not %d", i, len(inner.sent), step.sent)
		}
		if !step.answer {
			continue
		}
		for range p.sent - p.answered.Load() {
			inner.answers <- answer{resp: raft.AppendEntriesResponse{Success: true}}
			<-p.Consumer()
		}
		synctest.Wait() // the answers are counted
	}
}

// beating is a transport that records when messages are sent.
type beating struct {
	raft.Transport
	times []time.Time
}

func (b *beating) EncodePeer(raft.ServerID, raft.ServerAddress) []byte { return nil }
func (b *beating) LocalAddr() raft.ServerAddress                       { return "a" }

func (b *beating) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, m *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
	b.times = append(b.times, time.Now())
	r.Term, r.Success = m.Term, true
	return nil
}

// TestHeartbeatsKeepTheirBeat: heartbeats of the library wait until one is due. Entries and heartbeats
// of ask do not wait.
func TestHeartbeatsKeepTheirBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &beating{}
		w := watchTransport(b, newTimeouts(Timing{HeartbeatTimeout: beats * 50 * time.Millisecond}, slog.New(slog.DiscardHandler)))
		begin := time.Now()
		send := func(m raft.AppendEntriesRequest) {
			m.Term = 3
			if err := w.AppendEntries("b", "b", &m, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
		}
		beat := raft.AppendEntriesRequest{}
		send(beat)
		send(beat)
		send(raft.AppendEntriesRequest{PrevLogEntry: 4})
		w.ask("a", 3, []Server{{ID: "b"}})
		w.stopAsking()
		send(beat)
		for i, want := range []time.Duration{0, 50, 50, 50, 100} {
			if got := b.times[i].Sub(begin); got != want*time.Millisecond {
				t.Errorf("message %d after %s, not %s", i, got, want*time.Millisecond)
			}
		}
	})
}

// TestPatienceKeepsTheHeader checks that the heartbeats of a leader name it, also after its patience has ended. The library sends
// each heartbeat with the same request, and decodes each answer into the same response.
func TestPatienceKeepsTheHeader(t *testing.T) {
	open := func() *raft.NetworkTransport {
		n, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, time.Minute, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			n.CloseStreams()
			_ = n.Close()
		})
		return n
	}
	lead, member := open(), open()
	var leaders []string // as the member heard them
	member.SetHeartbeatHandler(func(rpc raft.RPC) {
		leaders = append(leaders, string(rpc.Command.(*raft.AppendEntriesRequest).ID))
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ID: []byte("member")}, Term: 3, Success: true}, nil)
	})
	w := watchTransport(lead, newTimeouts(Timing{HeartbeatTimeout: time.Minute}, slog.New(slog.DiscardHandler)))
	req := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("leader"),
		Addr: []byte(lead.LocalAddr())}, Term: 3}
	resp := &raft.AppendEntriesResponse{}
	if err := w.patient("member", member.LocalAddr(), req, resp, time.Hour); err != nil {
		t.Fatal(err)
	}
	w.stopAsking()
	for range 2 {
		if err := w.noted("member", member.LocalAddr(), req, resp); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"leader", "leader", "leader"}; !slices.Equal(leaders, want) {
		t.Errorf("the member heard the leaders %q", leaders)
	}
}
