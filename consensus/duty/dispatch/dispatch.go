package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Conn is the leader's end of a worker's session. Send never blocks; it reports false once
// the session is over.
type Conn interface {
	Send(*pb.LeaderMessage) bool
	Close()
}

// Tasks makes the tasks that workers get for leases. An error means that the task cannot be
// carried out; the attempt fails with it.
type Tasks interface {
	Task(v *state.View, op *model.Operation, s *plan.State, vertex uint32) (*pb.Task, error)
	// Needs returns what a task requires of an agent.
	Needs(v *state.View, op *model.Operation, g *plan.Graph, vertex uint32) Needs
}

// Needs is what a task requires of the agent that gets it.
type Needs struct {
	Plugin  string // the key of the plugin type
	Machine string // the machine that the agent must be on, "" for any
	Limit   string // the name of the provider's limit on tasks at a time, "" for none
	Most    int    // the limit, 0 for none
}

// Config configures a Dispatcher. Zero times take the defaults.
type Config struct {
	Machine *state.Machine
	// Propose commits commands in one entry and returns an answer for each.
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Tasks   Tasks
	// Seal encrypts the sensitive ones among the results or saved values of a plugin's task, before they are proposed. plugin is the
	// key of the plugin's type. A nil Seal leaves them as they are.
	Seal   func(ctx context.Context, tenant, plugin string, values map[string]any) (map[string]any, error)
	Logger *slog.Logger
	// A TTL of 0 means 5 s, and a Grace of 0 means the TTL again.
	lease.Timing
	// Backoff is the first pause before a failed task is tried again, doubled
	// each time; 0 means 500 ms.
	Backoff time.Duration
	// Jitter returns a random number in [0,1).
	Jitter func() float64
}

// Dispatcher leases tasks to workers. It is made for one term.
type Dispatcher struct {
	cfg   Config
	seals sealer

	mail  loop.Mailbox[func()] // calls for the owner
	queue *loop.Queue[job]     // one job at a time

	book  // owned by the queue's jobs, or by Restore before them
	work  sync.WaitGroup
	ctx   context.Context
	ended chan struct{} // closed when Run has returned
}

// book has the sessions, and the tasks that are leased to them or wait for a lease. It follows
// the state, and commits and sends nothing but cancels.
type book struct {
	sessions map[string]*session
	queues   map[string]*queue
	ending   map[string][]ending // by node: attempts that workers were told to end
	tenants  []*tenant           // by name; those that have a queue
	limits   map[string]int      // tasks that run under a provider's limit
	delayed  delays
	again    bool // something may be grantable
}

// ErrOver means that the term of this dispatcher has ended.
var ErrOver = problem.New(problem.NoLeader, "this agent does not lead any more")

// New returns the dispatcher of one term.
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
	d := &Dispatcher{
		cfg: cfg, ended: make(chan struct{}),
		book: book{sessions: map[string]*session{}, queues: map[string]*queue{}, ending: map[string][]ending{}, limits: map[string]int{}},
	}
	d.seals = sealer{cfg: &d.cfg, waits: map[attempt]string{}}
	d.queue = loop.New(loop.Config[job]{Reconcile: d.do})
	return d
}

// job is what the owner of the book does.
type job int

const (
	calls   job = iota // handle all calls, and lease what can be leased
	silence            // look for silent sessions as well
)

// Name returns the name of the duty.
func (d *Dispatcher) Name() string { return "dispatcher" }

// post has the owner make a call. It reports false if the term is over.
func (d *Dispatcher) post(fn func()) bool {
	if !d.mail.Post(fn) {
		return false
	}
	d.queue.Add(calls)
	return true
}

// Restore builds queues and sessions from the state. Sessions are restored without a
// connection: their agents have the TTL and the grace to return.
func (d *Dispatcher) Restore(context.Context) error {
	v := d.cfg.Machine.View()
	d.expect(v)
	for _, op := range v.ActiveOperations() {
		d.refresh(v, op.ID, nil, true)
	}
	return nil
}

// expect adds the sessions of earlier terms. Their workers send nothing in these sessions any more:
// a worker returns in time with a new session, or loses the old one. The silence of a session began
// when its term ended, whatever terms have followed: otherwise a dead agent's leases would live for
// ever where terms are short. A machine that has not seen that moment counts from now.
func (d *Dispatcher) expect(v *state.View) {
	now := time.Now()
	for id, in := range v.Sessions() {
		if d.sessions[id] != nil {
			continue
		}
		ended, seen := d.cfg.Machine.TermEnded(in.Epoch)
		d.sessions[id] = &session{id: id, agent: in.Agent, heard: d.cfg.Inherited(now, ended, seen), missed: lease.Checks}
	}
}

// meet adds the sessions of this term that are in the state but not in the book: an agent
// may die while its session is being committed.
func (b *book) meet(v *state.View) {
	for id, in := range v.Sessions() {
		if b.sessions[id] == nil {
			b.sessions[id] = &session{id: id, agent: in.Agent, heard: time.Now()}
		}
	}
}

// Run owns the dispatcher until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.ctx = ctx
	stop := d.cfg.Machine.Watch(func(b state.Batch) { d.post(func() { d.changed(b) }) })
	defer d.end()
	defer stop()
	// Operations that were committed between Restore and Watch.
	v := d.cfg.Machine.View()
	for _, op := range v.ActiveOperations() {
		d.refresh(v, op.ID, nil, true)
	}
	d.again = true
	d.queue.Add(silence)
	return d.queue.Run(ctx)
}

// do carries out a job. It returns when the job is due again.
func (d *Dispatcher) do(_ context.Context, what job) (again time.Time, _ error) {
	for mail := d.mail.Take(); len(mail) > 0; mail = d.mail.Take() {
		for _, fn := range mail {
			fn()
		}
	}
	if what == silence { // after all that has arrived
		d.expire(time.Now())
		again = time.Now().Add(d.cfg.TTL / lease.Checks)
	}
	d.due(time.Now())
	if d.again {
		d.again = false
		d.grant()
	}
	if len(d.delayed.list) > 0 {
		d.queue.AddAt(calls, d.delayed.list[0].at)
	}
	return again, nil
}

// end closes every session, so that workers look for the next leader.
func (d *Dispatcher) end() {
	d.mail.Close()
	close(d.ended)
	for _, s := range d.sessions {
		if s.conn != nil {
			s.conn.Close()
		}
	}
	d.work.Wait()
}

// changed follows a committed batch.
func (d *Dispatcher) changed(b state.Batch) {
	v := d.cfg.Machine.View()
	if b.Restored {
		clear(d.queues)
		d.tenants = nil
		clear(d.limits)
		for _, s := range d.sessions {
			s.held = 0
			// The snapshot may have leases that the worker ended since, or never got. The
			// worker's next hello lists those that it holds.
			if s.conn != nil {
				s.conn.Close()
				s.conn = nil
			}
		}
		// A snapshot has the sessions of the moment at which it was taken, also of agents
		// that do not exist any more. Only this dispatcher ends those.
		d.expect(v)
	}
	if b.Anew() {
		for _, op := range v.ActiveOperations() {
			d.refresh(v, op.ID, nil, true)
		}
	}
	if b.Agents || b.Restored {
		d.meet(v)
		d.forget(v)
	}
	d.revoked(b.Revoked)
	d.over(b.Ended)
	for op, ready := range b.Operations {
		d.refresh(v, op, ready, false)
	}
	d.leased(v, b.Leases)
	d.again = true
}

// async runs a proposal in a goroutine of its own.
func (d *Dispatcher) async(fn func(ctx context.Context)) {
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		fn(d.ctx)
	}()
}
