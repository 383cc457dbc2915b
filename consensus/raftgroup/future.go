package raftgroup

import (
	"context"
	"fmt"
	"sync"

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
		// The entry is refused here to spare the library's main loop. Leadership reports when this
		// member has become the leader.
		if g.raft.State() == raft.Shutdown {
			return failed(ErrShutdown)
		}
		return failed(g.notLeader())
	}
	f := &future{done: make(chan struct{})}
	if !g.pending.add(f) {
		return failed(ErrShutdown)
	}
	rf := do()
	go func() {
		err := rf.Error()
		if a, ok := rf.(raft.ApplyFuture); ok && err == nil {
			g.pending.answer(f, nil, a.Index(), a.Response())
			return
		}
		g.pending.answer(f, g.outcome(err), 0, nil)
	}()
	return f
}

// ask calls the library and returns its answer. The call runs on a goroutine of its own, because even
// starting it may block. Like entries, calls that the library holds when it is shut down may never be
// answered. So ask refuses calls once the member is closing, and Shutdown waits a moment for those
// under way.
func (g *Group) ask(ctx context.Context, do func() raft.Future) error {
	if !g.pending.begin() {
		return ErrShutdown
	}
	got := make(chan error, 1)
	go func() {
		err := do().Error()
		g.pending.end()
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

// pending holds what the library has not answered yet: entries, and calls by ask.
type pending struct {
	mu      sync.Mutex
	closing bool
	entries map[*future]struct{}
	calls   int
	drained chan struct{} // closed when nothing is pending; set while closing
}

func newPending() *pending { return &pending{entries: make(map[*future]struct{})} }

// add reports whether the entry may be submitted; none may while the member is closing.
func (p *pending) add(f *future) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closing {
		p.entries[f] = struct{}{}
	}
	return !p.closing
}

// answer answers an entry, unless abandon has answered it.
func (p *pending) answer(f *future, err error, index uint64, response any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.entries[f]; !ok {
		return
	}
	delete(p.entries, f)
	f.err, f.index, f.response = err, index, response
	close(f.done)
	p.checkLocked()
}

// begin reports whether a call may be made; end follows it.
func (p *pending) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closing {
		p.calls++
	}
	return !p.closing
}

func (p *pending) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls--
	p.checkLocked()
}

func (p *pending) checkLocked() {
	if len(p.entries)+p.calls == 0 && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
}

// close refuses what comes from now on. first reports whether this is the first call; drained is closed
// when nothing is pending, and nil if nothing is pending now.
func (p *pending) close() (first bool, drained <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false, nil
	}
	p.closing = true
	if len(p.entries)+p.calls > 0 {
		p.drained = make(chan struct{})
	}
	return true, p.drained
}

// closed reports whether close was called.
func (p *pending) closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing
}

// count returns the number of entries.
func (p *pending) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.entries)
}

// abandon answers the remaining entries after the library has stopped: their outcome is unknown.
func (p *pending) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.entries {
		delete(p.entries, f)
		f.err = fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrShutdown)
		close(f.done)
	}
	p.drained = nil
}
