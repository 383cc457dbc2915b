// Package leader runs the duties of a leader for as long as it leads.
//
// A term is one context and one group of goroutines: first a barrier, so that
// the state holds all that earlier leaders have committed; then every duty
// restores itself from the state, in the order given; then the ready flag; then
// all duties run together. Whatever ends the term ends the context, and
// everyone is waited for before the next term begins. There is no list of
// things to stop.
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

// Duty is one thing that a leader does.
type Duty interface {
	// Name is for logs and errors.
	Name() string
	// Restore prepares the duty from the replicated state. It runs alone, after
	// the barrier and after the duties before it.
	Restore(ctx context.Context) error
	// Run does the duty until ctx ends. A nil error before that means that the
	// duty is done and is no fault; any other error ends the term.
	Run(ctx context.Context) error
}

// Group is the part of a Raft member that terms need; *raftgroup.Group is one.
type Group interface {
	Leadership(ctx context.Context) <-chan raftgroup.LeadershipChange
	Barrier(ctx context.Context) error
	Transfer(ctx context.Context, id string) error
}

var _ Group = (*raftgroup.Group)(nil)

// Config is what a Runner is made of. Group and Duties are required.
type Config struct {
	Group Group
	// Duties makes the duties of a term. It is called once at each beginning,
	// so duties need no reset.
	Duties func(term uint64) []Duty
	// Logger may be nil.
	Logger *slog.Logger
	// Backoff is the pause before duties are started again by a leader that
	// could not hand over, doubled with every failure up to sixteen times
	// (default 500 ms).
	Backoff time.Duration
}

// Runner runs terms.
type Runner struct {
	cfg Config

	mu      sync.Mutex
	term    uint64 // of the duties that are ready, else 0
	changed chan struct{}
	running map[string]int // duties that have not returned yet, for the log
}

// New makes a Runner.
func New(cfg Config) (*Runner, error) {
	if cfg.Group == nil || cfg.Duties == nil {
		return nil, errors.New("term: Config.Group and Config.Duties are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Backoff <= 0 {
		cfg.Backoff = 500 * time.Millisecond
	}
	return &Runner{cfg: cfg, changed: make(chan struct{}), running: make(map[string]int)}, nil
}

// Run makes a Runner of the defaults and runs it.
func Run(ctx context.Context, group Group, duties func(term uint64) []Duty) error {
	r, err := New(Config{Group: group, Duties: duties})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// Ready says whether the duties of a term have been restored and are running,
// and of which.
func (r *Runner) Ready() (term uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term, r.term != 0
}

// ReadyChanged is closed at the next change of what Ready says. Take the
// channel first, then ask Ready.
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

// Run follows the leadership until ctx ends or the member stops; then nil is
// returned, after all duties have ended.
func (r *Runner) Run(ctx context.Context) error {
	// Changes are followed to their end even when ctx is over: lead needs them
	// no more then, and the context ends the channel.
	changes := r.cfg.Group.Leadership(ctx)
	for c := range changes {
		if c.Leader {
			r.lead(ctx, c.Term, changes)
		}
	}
	return nil
}

// lead returns when the leadership of the term is over, or ctx is.
func (r *Runner) lead(ctx context.Context, term uint64, changes <-chan raftgroup.LeadershipChange) {
	log := r.cfg.Logger.With("term", term)
	backoff := r.cfg.Backoff
	for {
		err, lost := r.attempt(ctx, term, changes)
		if lost || ctx.Err() != nil {
			return
		}
		// Still the leader, as far as we have heard.
		if errors.Is(err, errNoBarrier) {
			// The duties are not to blame; most likely the loss is on its way.
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
		case <-changes: // it alternates: this is the loss, or the end
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// attempt runs the duties once. It returns when they have all ended: because
// the leadership is lost (or the group or ctx is at its end), or by their own error.
func (r *Runner) attempt(ctx context.Context, term uint64, changes <-chan raftgroup.LeadershipChange) (err error, lost bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.duties(ctx, term) }()
	select {
	case err = <-ended:
		return err, false
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
			return err, true
		case <-slow.C:
			log.Warn("the term is over, but duties have not returned yet", "duties", r.stillRunning())
		}
	}
}

// errNoBarrier: the term did not get as far as its duties.
var errNoBarrier = errors.New("before the duties")

// duties is one life of the duties. It returns only when all of them have.
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
	// Duties may all be done before the term is; readiness is about the term.
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

// PanicError is a duty's panic, turned into the error that ends the term.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap gives the value when it is an error.
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
