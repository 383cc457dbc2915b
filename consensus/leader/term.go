// Package leader runs the controllers of a leader, its duties, for as long as it leads.
//
// A term is one context and one group of goroutines. It begins with a barrier, so that the
// state holds everything that earlier leaders committed. Then every duty restores itself
// from the state, in the order given. Then the term is ready, and all duties run together.
// The end of the term ends the context, and the next term begins when all duties have
// returned. There is no list of things to stop.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/consensus/raftgroup"
)

// Duty is one controller of a leader.
type Duty interface {
	// Name is for logs and errors.
	Name() string
	// Restore prepares the duty from the replicated state. It is called after the barrier
	// and after the Restore of the duties before it.
	Restore(ctx context.Context) error
	// Run does the duty until ctx ends. If it returns nil before, the duty is done; any
	// other error ends the term.
	Run(ctx context.Context) error
}

// Group is the part of a Raft member that terms need; *raftgroup.Group is one.
type Group interface {
	Leadership(ctx context.Context) <-chan raftgroup.LeadershipChange
	Barrier(ctx context.Context) error
	Transfer(ctx context.Context, id string) error
}

var _ Group = (*raftgroup.Group)(nil)

// Config configures a Runner. Group and Duties are required.
type Config struct {
	Group Group
	// Duties returns the duties of a term. It is called once for each attempt, so that it can
	// return new ones, which need no reset. A duty that keeps data in memory from one term to the
	// next resets it in its Restore.
	Duties func(term uint64) []Duty
	// Logger may be nil.
	Logger *slog.Logger
	// Backoff is the pause before a leader that could not transfer its leadership starts
	// its duties again. It doubles with every failure, up to sixteen times the first pause
	// (default 500 ms).
	Backoff time.Duration
}

// Runner runs terms.
type Runner struct {
	cfg Config

	mu      sync.Mutex
	term    uint64 // the term of the duties that are ready, else 0
	changed chan struct{}
	running map[string]int // duties that have not returned yet, for the log
}

// New returns a Runner.
func New(cfg Config) (*Runner, error) {
	if cfg.Group == nil || cfg.Duties == nil {
		return nil, errors.New("leader: Config.Group and Config.Duties are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Backoff <= 0 {
		cfg.Backoff = 500 * time.Millisecond
	}
	return &Runner{cfg: cfg, changed: make(chan struct{}), running: make(map[string]int)}, nil
}

// Ready reports whether the duties of a term have been restored and are running, and
// returns the term.
func (r *Runner) Ready() (term uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term, r.term != 0
}

// ReadyChanged returns a channel that is closed when the result of Ready changes next. Get
// the channel first, then call Ready.
func (r *Runner) ReadyChanged() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *Runner) setReady(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.term == term {
		return
	}
	r.term = term
	close(r.changed)
	r.changed = make(chan struct{})
}

// Run follows the leadership until ctx ends or the member stops. It returns nil
// after all duties have ended.
func (r *Runner) Run(ctx context.Context) error {
	// The channel is closed when ctx ends.
	changes := r.cfg.Group.Leadership(ctx)
	for c := range changes {
		if c.Leader {
			r.lead(ctx, c.Term, changes)
		}
	}
	return nil
}

// lead runs a term. It returns when the leadership is lost or ctx ends.
func (r *Runner) lead(ctx context.Context, term uint64, changes <-chan raftgroup.LeadershipChange) {
	log := r.cfg.Logger.With("term", term)
	backoff := r.cfg.Backoff
	for {
		lost, err := r.attempt(ctx, term, changes)
		if lost || ctx.Err() != nil {
			return
		}
		// The loss of the leadership is not known yet.
		if errors.Is(err, errNoBarrier) {
			// The duties have not failed; the leadership is probably lost already.
			log.Info("a new leader could not commit yet", "error", err, "pause", backoff)
		} else {
			log.Error("the leader's duties have failed, handing over", "error", err)
			if terr := r.cfg.Group.Transfer(ctx, ""); terr != nil {
				log.Warn("could not hand over, starting the duties again", "error", terr, "pause", backoff)
			}
		}
		pause := time.NewTimer(backoff)
		backoff = min(2*backoff, 16*r.cfg.Backoff)
		select {
		case <-changes: // changes alternate, so this is the loss, or the channel is closed
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// attempt runs the duties once. It returns when all of them have ended: after the loss of
// the leadership, after the end of the group or of ctx, or after an error of a duty.
func (r *Runner) attempt(ctx context.Context, term uint64, changes <-chan raftgroup.LeadershipChange) (lost bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.duties(ctx, term) }()
	select {
	case err = <-ended:
		return false, err
	case <-changes:
	}
	cancel()
	r.setReady(0)
	log := r.cfg.Logger.With("term", term)
	slow := time.NewTicker(10 * time.Second)
	defer slow.Stop()
	for {
		select {
		case err = <-ended:
			if err != nil && !errors.Is(err, context.Canceled) {
				log.Info("the term is over, a duty ended with an error", "error", err)
			}
			return true, err
		case <-slow.C:
			log.Warn("the term is over, but duties have not returned yet", "duties", r.stillRunning())
		}
	}
}

// errNoBarrier means that the term ended before its duties began.
var errNoBarrier = errors.New("before the duties")

// duties restores and runs the duties. It returns when all of them have returned.
func (r *Runner) duties(ctx context.Context, term uint64) error {
	defer r.setReady(0)
	if err := r.cfg.Group.Barrier(ctx); err != nil {
		return fmt.Errorf("%w: %w", errNoBarrier, err)
	}
	var list []Duty
	if err := guarded(func() error { list = r.cfg.Duties(term); return nil }); err != nil {
		return err
	}
	for _, d := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.tracked(d.Name(), "restore", func() error { return d.Restore(ctx) }); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.setReady(term)
	r.cfg.Logger.Info("the leader's duties are running", "term", term, "duties", len(list))
	all, ctx := errgroup.WithContext(ctx)
	for _, d := range list {
		all.Go(func() error {
			return r.tracked(d.Name(), "run", func() error { return d.Run(ctx) })
		})
	}
	// All duties may be done before the term ends; the term stays ready.
	all.Go(func() error {
		<-ctx.Done()
		return nil
	})
	if err := all.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (r *Runner) tracked(duty, what string, f func() error) error {
	name := duty + " " + what
	r.count(name, 1)
	defer r.count(name, -1)
	if err := guarded(f); err != nil {
		return fmt.Errorf("duty %s: %s: %w", duty, what, err)
	}
	return nil
}

func (r *Runner) count(name string, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[name] += by; r.running[name] == 0 {
		delete(r.running, name)
	}
}

func (r *Runner) stillRunning() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.running))
	for n := range r.running {
		names = append(names, n)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// PanicError is the error that ends the term after a panic of a duty.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f()
}
