package raftgroup

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"
)

// Future is the answer to a submitted entry.
type Future interface {
	// Done returns a channel that is closed when the answer is known, at the latest when the member stops.
	Done() <-chan struct{}
	// Err waits for the answer. nil means that the entry is committed and applied on this member.
	Err() error
	// Wait is Err with a limit: when ctx ends first, Wait returns ctx's error and the entry stays
	// under way.
	Wait(ctx context.Context) error
	// Index is the entry's index in the log. It is valid after Err has returned nil.
	Index() uint64
	// Response is the value that the FSM's Apply returned. It is valid after Err has returned nil.
	Response() any
}

type future struct {
	done     chan struct{}
	err      error
	index    uint64
	response any
}

var _ Future = (*future)(nil)

func (f *future) Done() <-chan struct{} { return f.done }

func (f *future) Err() error {
	<-f.done
	return f.err
}

func (f *future) Wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	default:
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *future) Index() uint64 {
	<-f.done
	return f.index
}

func (f *future) Response() any {
	<-f.done
	return f.response
}

func failed(err error) *future {
	f := &future{done: make(chan struct{}), err: err}
	close(f.done)
	return f
}

// Apply submits an entry and returns at once. If a whole batch (Timing.MaxAppendEntries) is queued
// already, it waits for room. Entries should stay below 1 MiB.
func (g *Group) Apply(data []byte) Future {
	return g.submit(func() raft.Future { return g.raft.Apply(data, 0) })
}

// Barrier returns when every entry committed before it has been applied on this member. It works on
// the leader only.
func (g *Group) Barrier(ctx context.Context) error {
	if err := g.submit(func() raft.Future { return g.raft.Barrier(0) }).Wait(ctx); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	return nil
}

// submit passes an entry to the library and keeps it in the pending list until it is answered. The
// library may never answer an entry that it held when it was shut down; Shutdown answers the entries
// that are still in the list.
func (g *Group) submit(do func() raft.Future) *future {
	if g.raft.State() != raft.Leader {
		// The entry is refused here to spare the library's main loop. A member that has just become
		// the leader announces it through Leadership.
		if g.raft.State() == raft.Shutdown {
			return failed(ErrShutdown)
		}
		return failed(g.notLeader())
	}
	f := &future{done: make(chan struct{})}
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		return failed(ErrShutdown)
	}
	g.pending[f] = struct{}{}
	g.mu.Unlock()
	rf := do()
	go func() {
		err := rf.Error()
		if a, ok := rf.(raft.ApplyFuture); ok && err == nil {
			g.answer(f, nil, a.Index(), a.Response())
			return
		}
		g.answer(f, g.outcome(err), 0, nil)
	}()
	return f
}

func (g *Group) answer(f *future, err error, index uint64, response any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.pending[f]; !ok {
		return // answered by Shutdown
	}
	delete(g.pending, f)
	f.err, f.index, f.response = err, index, response
	close(f.done)
	g.drainedLocked()
}

func (g *Group) drainedLocked() {
	if len(g.pending)+g.questions == 0 && g.drained != nil {
		close(g.drained)
		g.drained = nil
	}
}

// ask calls the library and returns its answer. The call runs on a goroutine of its own, because even
// starting it may block. Like entries, calls that the library holds when it is shut down may never be
// answered. So ask refuses calls once the member is closing, and Shutdown waits a moment for those
// under way.
func (g *Group) ask(ctx context.Context, do func() raft.Future) error {
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		return ErrShutdown
	}
	g.questions++
	g.mu.Unlock()
	got := make(chan error, 1)
	go func() {
		err := do().Error()
		g.mu.Lock()
		g.questions--
		g.drainedLocked()
		g.mu.Unlock()
		got <- err
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-g.done:
		return ErrShutdown
	}
}

func (g *Group) abandonPending() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for f := range g.pending {
		delete(g.pending, f)
		f.err = fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrShutdown)
		close(f.done)
	}
	g.drained = nil
}
