package raftgroup

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// fullPipeline has room for one request and one answer, like the library's
// network pipeline with its default settings.
type fullPipeline struct {
	answers chan raft.AppendFuture
	closed  chan struct{}
}

func (f *fullPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	<-f.closed // there is never room
	return nil, raft.ErrPipelineShutdown
}
func (f *fullPipeline) Consumer() <-chan raft.AppendFuture { return f.answers }
func (f *fullPipeline) Close() error {
	select {
	case <-f.closed:
	default:
		close(f.closed)
	}
	return nil
}

type pipelineTransport struct {
	raft.Transport
	inner *fullPipeline
}

func (t pipelineTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return t.inner, nil
}

type answer struct {
	raft.AppendFuture
	resp raft.AppendEntriesResponse
}

func (a answer) Request() *raft.AppendEntriesRequest   { return &raft.AppendEntriesRequest{} }
func (a answer) Response() *raft.AppendEntriesResponse { return &a.resp }

// TestRefusalLetsAWaitingSenderGo: a refusal releases a sender that waits for room, although no answers
// are read any more, because the library's reader ends at the refusal.
func TestRefusalLetsAWaitingSenderGo(t *testing.T) {
	inner := &fullPipeline{answers: make(chan raft.AppendFuture), closed: make(chan struct{})}
	p, err := watchTransport(pipelineTransport{inner: inner}, nil).AppendEntriesPipeline("b", "b")
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{}, nil)
		sent <- err
	}()
	for _, good := range []bool{true, false} {
		inner.answers <- answer{resp: raft.AppendEntriesResponse{Success: good}}
		if f := <-p.Consumer(); f.Response().Success != good {
			t.Fatal("another answer came out")
		}
	}
	select {
	case err := <-sent:
		if !errors.Is(err, raft.ErrPipelineShutdown) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the sender still waits")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A member that stops refuses entries on a pipeline.
func TestRefusedEntries(t *testing.T) {
	_, a := raft.NewInmemTransport("a")
	_, b := raft.NewInmemTransport("b")
	a.Connect("b", b)
	p, err := a.AppendEntriesPipeline("b", "b")
	if err != nil {
		t.Fatal(err)
	}
	sent, err := p.AppendEntries(&raft.AppendEntriesRequest{}, &raft.AppendEntriesResponse{})
	if err != nil {
		t.Fatal(err)
	}
	refuse(<-b.Consumer())
	if err := sent.Error(); !errors.Is(err, raft.ErrRaftShutdown) {
		t.Error(err)
	}
	if err := errors.Join(p.Close(), a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}
