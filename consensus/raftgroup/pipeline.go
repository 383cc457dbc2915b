package raftgroup

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// AppendEntriesPipeline gives a pipeline that ends itself at the first answer
// after which the library listens to it no more: a refusal, or a newer term.
// The library stops reading answers then, but its sender may be waiting at that
// moment for room in the pipeline, which only reading would make: replication
// to that member would stand still for as long as this one leads, and the
// member could never be shut down. One refused write of a follower whose disk
// is full is enough.
func (w *watchedTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := w.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return newPipeline(inner), nil
}

func newPipeline(inner raft.AppendPipeline) *pipeline {
	p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture), ended: make(chan struct{})}
	go p.pass()
	return p
}

// pipeline passes answers on until one ends it.
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	ended   chan struct{}
	once    sync.Once

	// Owned by the sender:
	sent uint64
	told raft.AppendEntriesRequest // where the last message left the member

	answered atomic.Uint64
}

func (p *pipeline) pass() {
	for {
		select {
		case f := <-p.AppendPipeline.Consumer():
			last := !f.Response().Success || f.Response().Term > f.Request().Term
			select {
			case p.answers <- f:
				p.answered.Add(1)
			case <-p.ended:
				return
			}
			if last {
				_ = p.Close()
				return
			}
		case <-p.ended:
			return
		}
	}
}

// Consumer gives the answers.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close ends the pipeline; a sender that waits in it is let go.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.ended) })
	return p.AppendPipeline.Close()
}
