// Package propose packs many small commands into few log entries, on the leader.
//
// A command is sent at once while fewer than MaxInFlight entries are under way, so a lone
// caller pays nothing for the packing. Under load, commands gather while entries are
// under way, and the next entry carries all of them: the busier the log, the
// larger the entries. Measurements show that this matters far more than any setting of Raft.
package propose

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/problem"
)

// Defaults of Config.
const (
	DefaultInFlight = 4
	DefaultCount    = 4096
	DefaultBytes    = 1 << 20
	DefaultQueue    = 1 << 16
)

// Errors of Propose, in addition to those of raftgroup.
var (
	// ErrTooLarge: the command does not fit into an entry; nothing was done.
	ErrTooLarge = problem.New(problem.TooLarge, "the command is larger than a log entry may be")
	// ErrBusy: too many commands are waiting; nothing was done.
	ErrBusy = problem.New(problem.Busy, "too many commands are waiting for the log")
	// ErrClosed: the proposer is closed; nothing was done.
	ErrClosed = problem.New(problem.NoLeader, "the proposer is closed: %w", raftgroup.ErrShutdown)
)

// Config configures a Proposer. Encode and Apply are required.
type Config[T, R any] struct {
	// Encode encodes commands into one log entry, in their order. An error refuses
	// all of them. It may run on several goroutines at once.
	Encode func([]T) ([]byte, error)
	// Apply submits an entry: (*raftgroup.Group).Apply. The FSM answers an entry
	// with a []R, one for each command in order, or with an error for all of them.
	Apply func([]byte) raftgroup.Future
	// Size returns the approximate size of a command in an entry, in bytes; nil means 256.
	Size func(T) int
	// MaxInFlight is how many entries may be under way at once.
	MaxInFlight int
	// MaxCount and MaxBytes bound one entry.
	MaxCount, MaxBytes int
	// MaxQueue bounds the commands that wait.
	MaxQueue int
}

// Proposer packs commands of type T, each answered with an R. All methods may
// be called from any goroutine.
type Proposer[T, R any] struct {
	cfg Config[T, R]

	mu       sync.Mutex
	queue    []*waiter[T, R]
	inFlight int
	closed   bool
	stats    Stats
}

// Stats counts the entries sent so far and those under way.
type Stats struct {
	Entries  uint64 // answered log entries
	Commands uint64 // commands in them
	Bytes    uint64 // bytes of them
	Waiting  int    // commands that wait now
	InFlight int    // entries under way now
}

type waiter[T, R any] struct {
	cmd    T
	size   int
	done   chan struct{}
	result R
	err    error
	// Owned by Proposer.mu:
	sent bool
	gone bool // the caller has left before the command was sent
}

// New returns a Proposer.
func New[T, R any](cfg Config[T, R]) (*Proposer[T, R], error) {
	if cfg.Encode == nil || cfg.Apply == nil {
		return nil, errors.New("propose: Config.Encode and Config.Apply are required")
	}
	if cfg.Size == nil {
		cfg.Size = func(T) int { return 256 }
	}
	def := func(n *int, to int) {
		if *n <= 0 {
			*n = to
		}
	}
	def(&cfg.MaxInFlight, DefaultInFlight)
	def(&cfg.MaxCount, DefaultCount)
	def(&cfg.MaxBytes, DefaultBytes)
	def(&cfg.MaxQueue, DefaultQueue)
	return &Proposer[T, R]{cfg: cfg}, nil
}

// Propose sends a command and waits for its answer. Errors are those of
// raftgroup (ErrNotLeader, ErrUnknownOutcome, ErrShutdown), those of this
// package, and the FSM's error for the whole entry. When ctx ends while the
// command still waits, the command is withdrawn and Propose returns ctx's error
// alone. When ctx ends later, the command stays under way and the error is an
// ErrUnknownOutcome as well.
func (p *Proposer[T, R]) Propose(ctx context.Context, cmd T) (R, error) {
	var zero R
	w := &waiter[T, R]{cmd: cmd, size: p.cfg.Size(cmd), done: make(chan struct{})}
	if w.size > p.cfg.MaxBytes {
		return zero, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, w.size, p.cfg.MaxBytes)
	}
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		return zero, ErrClosed
	case len(p.queue) >= p.cfg.MaxQueue:
		p.mu.Unlock()
		return zero, ErrBusy
	}
	p.queue = append(p.queue, w)
	mine := p.nextLocked()
	p.mu.Unlock()

	if mine != nil {
		// The caller submits its entry itself, so that an idle proposer needs no
		// second goroutine.
		mine.handIn()
		select {
		case <-mine.done():
			p.land(mine)
			return w.result, w.err
		case <-ctx.Done():
			go func() {
				<-mine.done()
				p.land(mine)
			}()
		}
	} else {
		select {
		case <-w.done:
			return w.result, w.err
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	sent := w.sent
	w.gone = !sent
	p.mu.Unlock()
	if !sent {
		return zero, ctx.Err()
	}
	select {
	case <-w.done: // the answer came at the same moment and takes precedence
		return w.result, w.err
	default:
	}
	return zero, fmt.Errorf("%w: %w", raftgroup.ErrUnknownOutcome, ctx.Err())
}

// flight is one entry under way.
type flight[T, R any] struct {
	p      *Proposer[T, R]
	batch  []*waiter[T, R]
	bytes  int
	err    error            // why the entry could not be encoded, or nil
	future raftgroup.Future // the answer to the entry if err is nil
}

// nextLocked begins an entry if a command waits and fewer than MaxInFlight entries are under way.
// Otherwise it returns nil.
func (p *Proposer[T, R]) nextLocked() *flight[T, R] {
	if p.inFlight >= p.cfg.MaxInFlight {
		return nil
	}
	batch := p.takeLocked()
	if len(batch) == 0 {
		return nil
	}
	p.inFlight++
	return &flight[T, R]{p: p, batch: batch}
}

// handIn encodes the entry and submits it to the log.
func (f *flight[T, R]) handIn() {
	cmds := make([]T, len(f.batch))
	for i, w := range f.batch {
		cmds[i] = w.cmd
	}
	entry, err := f.p.cfg.Encode(cmds)
	if err != nil {
		f.err = fmt.Errorf("encode commands: %w", err)
		return
	}
	f.bytes = len(entry)
	f.future = f.p.cfg.Apply(entry)
}

func (f *flight[T, R]) done() <-chan struct{} {
	if f.future == nil {
		down := make(chan struct{}) // the entry was not submitted
		close(down)
		return down
	}
	return f.future.Done()
}

// takeLocked removes from the queue the commands that fit into one entry, and returns them.
func (p *Proposer[T, R]) takeLocked() []*waiter[T, R] {
	bytes, n := 0, 0
	batch := make([]*waiter[T, R], 0, min(len(p.queue), p.cfg.MaxCount))
	for _, w := range p.queue {
		if len(batch) == p.cfg.MaxCount || (len(batch) > 0 && bytes+w.size > p.cfg.MaxBytes) {
			break
		}
		n++
		if w.gone {
			continue
		}
		w.sent = true
		bytes += w.size
		batch = append(batch, w)
	}
	clear(p.queue[:n])
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	return batch
}

// land starts the next entry and then answers the callers, so that the log does not wait for the
// callers.
func (p *Proposer[T, R]) land(f *flight[T, R]) {
	results, err := f.results()
	p.mu.Lock()
	p.inFlight--
	if f.future != nil {
		p.stats.Entries++
		p.stats.Commands += uint64(len(f.batch))
		p.stats.Bytes += uint64(f.bytes)
	}
	next := p.nextLocked()
	p.mu.Unlock()
	if next != nil {
		go func() {
			next.handIn()
			<-next.done()
			p.land(next)
		}()
	}
	for i, w := range f.batch {
		if w.err = err; err == nil {
			w.result = results[i]
		}
		close(w.done)
	}
}

func (f *flight[T, R]) results() ([]R, error) {
	if f.err != nil {
		return nil, f.err
	}
	if err := f.future.Err(); err != nil {
		return nil, err
	}
	switch r := f.future.Response().(type) {
	case []R:
		if len(r) != len(f.batch) {
			return nil, fmt.Errorf("the state answered %d of %d commands", len(r), len(f.batch))
		}
		return r, nil
	case error:
		return nil, r
	default:
		return nil, fmt.Errorf("the state answered with a %T", r)
	}
}

// Stats returns the counters.
func (p *Proposer[T, R]) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Waiting, s.InFlight = len(p.queue), p.inFlight
	return s
}

// Close refuses further commands and those that wait. It does not wait for entries under way, which end
// at the latest when their member stops.
func (p *Proposer[T, R]) Close() {
	p.mu.Lock()
	p.closed = true
	queue := p.queue
	p.queue = nil
	for _, w := range queue {
		w.sent = true // answered here
	}
	p.mu.Unlock()
	for _, w := range queue {
		w.err = ErrClosed
		close(w.done)
	}
}
