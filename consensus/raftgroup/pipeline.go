package raftgroup

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// AppendEntriesPipeline returns a pipeline that closes itself at the first answer after which the
// library stops reading: a refusal, or a newer term. At that moment the library's sender may be
// waiting for room in the pipeline, which only a reader would make. Then replication to that follower
// would stand still for as long as this member leads, and this member could never be shut down. One
// refused write of a follower whose disk is full is enough to cause it.
func (w *watchedTransport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	inner, err := w.Transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	p := newPipeline(inner, func(f raft.AppendFuture) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.confirms(id, f.Request(), f.Response())
	})
	p.damaged = w.damaged
	return p, nil
}

// newPipeline wraps inner. Each answer is noted when the library has it.
func newPipeline(inner raft.AppendPipeline, note func(raft.AppendFuture)) *pipeline {
	p := &pipeline{AppendPipeline: inner, answers: make(chan raft.AppendFuture), ended: make(chan struct{}), note: note,
		damaged: func() error { return nil }}
	go p.pass()
	return p
}

// pipeline passes answers on until an answer ends it.
type pipeline struct {
	raft.AppendPipeline
	answers chan raft.AppendFuture
	ended   chan struct{}
	once    sync.Once
	note    func(raft.AppendFuture)
	damaged func() error // as watchedTransport.damaged

	// Owned by the sender:
	sent uint64
	told raft.AppendEntriesRequest // the log position and commit index that the last message sent to the member

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
				p.note(f)
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

// Consumer returns the channel of answers.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// Close ends the pipeline and releases a sender that waits in it.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.ended) })
	return p.AppendPipeline.Close()
}
