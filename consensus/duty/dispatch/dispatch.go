package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Conn is the leader's end of a worker's session. Send never blocks; it gives
// false once the session is over.
type Conn interface {
	Send(*pb.LeaderMessage) bool
	Close()
}

// Tasks makes what a worker gets for a lease. An error says that the task
// cannot be carried out as things are; the attempt fails with it.
type Tasks interface {
	Task(v *state.View, op *model.Operation, s *plan.State, vertex uint32) (*pb.Task, error)
	// Needs tells what a task asks of an agent: the plugin type's key, the
	// machine it must be on ("" for any), and the limit its provider sets on
	// tasks at a time (0: none) under the name of that limit.
	Needs(v *state.View, op *model.Operation, g *plan.Graph, vertex uint32) Needs
}

// Needs is what a task asks of the agent that gets it.
type Needs struct {
	Plugin  string
	Machine string
	Limit   string
	Most    int
}

// Config of a Dispatcher.
type Config struct {
	Machine *state.Machine
	// Propose commits commands in one entry and gives an answer for each.
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Tasks   Tasks
	Logger  *slog.Logger
	// TTL is how long a session lives without a heartbeat; 0 means 5 s. The
	// worker's own deadline counts from when it sent its last heartbeat, so
	// that it stops before the leader gives its leases to others.
	TTL time.Duration
	// Grace is added to the TTL after a change of leader; 0 means the TTL again.
	Grace time.Duration
	// Backoff is the first pause before a failed task is tried again, doubled
	// each time; 0 means 500 ms.
	Backoff time.Duration
	// Jitter gives a number in [0,1); the proposer's only source of chance.
	Jitter func() float64
}

// Dispatcher is the duty. It is made for one term.
type Dispatcher struct {
	cfg Config

	mu   sync.Mutex
	mail []func()      // what others want the owner to do
	wake chan struct{} // one slot
	over bool

	// Owned by Run's goroutine, or by Restore before it.
	sessions map[string]*session
	queues   map[string]*queue
	ending   map[string][]ending // by node's id: what workers were told to end
	tenants  []*tenant           // by name; those that have a queue
	limits   map[string]int      // tasks at work under a provider's limit
	delayed  delays
	again    bool // something may be grantable
	work     sync.WaitGroup
	ctx      context.Context
	ended    chan struct{} // closed when Run has returned
}

// ErrOver says that the term of this dispatcher has ended.
var ErrOver = problem.New(problem.NoLeader, "this agent does not lead any more")

// New makes the dispatcher of one term.
func New(cfg Config) *Dispatcher {
	if cfg.TTL == 0 {
		cfg.TTL = 5 * time.Second
	}
	if cfg.Grace == 0 {
		cfg.Grace = cfg.TTL
	}
	if cfg.Backoff == 0 {
		cfg.Backoff = 500 * time.Millisecond
	}
	return &Dispatcher{
		cfg: cfg, wake: make(chan struct{}, 1), sessions: map[string]*session{}, queues: map[string]*queue{}, ending: map[string][]ending{},
		limits: map[string]int{}, ended: make(chan struct{}),
	}
}

// Name names the duty.
func (d *Dispatcher) Name() string { return "dispatcher" }

// post leaves something for the owner to do, in order.
func (d *Dispatcher) post(fn func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return false
	}
	d.mail = append(d.mail, fn)
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return true
}

func (d *Dispatcher) take() []func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	mail := d.mail
	d.mail = nil
	return mail
}

// Restore makes queues and sessions from the state. Sessions come back with
// nobody behind them: their agents have the TTL and the grace to return.
func (d *Dispatcher) Restore(context.Context) error {
	v := d.cfg.Machine.View()
	d.expect(v)
	for _, op := range v.ActiveOperations() {
		d.refresh(v, op.ID, nil, true)
	}
	return nil
}

// expect makes the sessions known that the state has and this dispatcher has
// not: their agents come back to them in time, or lose them.
func (d *Dispatcher) expect(v *state.View) {
	heard := time.Now().Add(d.cfg.Grace)
	for id, agent := range v.Sessions() {
		if d.sessions[id] == nil {
			d.sessions[id] = &session{id: id, agent: agent, heard: heard}
		}
	}
}

// Run owns the dispatcher until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.ctx = ctx
	stop := d.cfg.Machine.Watch(func(b state.Batch) { d.post(func() { d.changed(b) }) })
	defer d.end()
	defer stop()
	// What was committed between Restore and Watch.
	v := d.cfg.Machine.View()
	for _, op := range v.ActiveOperations() {
		d.refresh(v, op.ID, nil, true)
	}
	d.again = true
	check := time.NewTicker(d.cfg.TTL / 4)
	defer check.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for mail := d.take(); len(mail) > 0; mail = d.take() {
			for _, fn := range mail {
				fn()
			}
		}
		d.due(time.Now())
		if d.again {
			d.again = false
			d.grant()
		}
		timer.Reset(d.delayed.wait(time.Now()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.wake:
		case <-timer.C:
		case <-check.C:
			d.expire(time.Now())
		}
	}
}

// end closes every session: workers look for the next leader.
func (d *Dispatcher) end() {
	d.mu.Lock()
	d.over = true
	d.mail = nil
	d.mu.Unlock()
	close(d.ended)
	for _, s := range d.sessions {
		if s.conn != nil {
			s.conn.Close()
		}
	}
	d.work.Wait()
}

// changed takes what a committed batch did.
func (d *Dispatcher) changed(b state.Batch) {
	v := d.cfg.Machine.View()
	if b.Restored {
		clear(d.queues)
		d.tenants = nil
		clear(d.limits)
		for _, s := range d.sessions {
			s.held = 0
		}
		// A snapshot has the sessions of when it was taken, also of agents that
		// are no more: nobody else would end them.
		d.expect(v)
		for _, op := range v.ActiveOperations() {
			d.refresh(v, op.ID, nil, true)
		}
	}
	if b.Agents || b.Restored {
		d.forget(v)
	}
	d.revoked(b.Revoked)
	for op, ready := range b.Operations {
		d.refresh(v, op, ready, false)
	}
	d.again = true
}

// async runs a proposal beside the owner.
func (d *Dispatcher) async(fn func(ctx context.Context)) {
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		fn(d.ctx)
	}()
}
