package objects

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Performer does what objects want done, on real things.
type Performer interface {
	// Check finds the state that an object is in; "" or an error where it cannot
	// tell. The note says what it saw, for people.
	Check(ctx context.Context, j *Job) (state, note string, err error)
	// Run carries out an action of the object's type.
	Run(ctx context.Context, j *Job, action string) error
}

// Job is the object that something is done for.
type Job struct {
	Tenant, Site string
	Object       *site.Object
	// Content is the digest of type and content.
	Content uint64
	// Generation is that of Object.
	Generation uint64
	// Node says how the object's host is reached, where that is a node of a
	// cluster, as JSON of model.TaskConfig.
	Node json.RawMessage
	// Held is for how long the object's host has been this home's, without doubt.
	Held time.Duration
}

// Config of a Runner. Everything is required but Parallel.
type Config struct {
	Self string // the agent's id
	// Session is the worker's session with the leader, "" while it has none;
	// InTouch says whether what was given to this agent under it is certainly its
	// own now.
	Session func() string
	InTouch func() bool
	// Report tells the leader, in order; nothing is lost while a session stands.
	Report func(session string, r *pb.HomeReport)
	// Open opens a stream to the home of another agent, which Accepts it. It ends
	// with ctx.
	Open      func(ctx context.Context, agent string) (Stream, error)
	Performer Performer
	Logger    *slog.Logger
	// Parallel bounds the acts that run at a time; 0 means 64.
	Parallel int
}

// Runner is the home of one agent's objects.
type Runner struct {
	cfg     Config
	process string
	begun   time.Time
	slots   chan struct{}

	mu    sync.Mutex
	ctx   context.Context // of Run; nil before
	early []func()        // what came before Run
	cells map[siteKey]*cell
	peers map[string]*peer
	work  sync.WaitGroup
	over  bool
}

type siteKey struct{ tenant, name string }

// New makes a home without objects.
func New(cfg Config) *Runner {
	if cfg.Parallel == 0 {
		cfg.Parallel = 64
	}
	return &Runner{cfg: cfg, process: rand.Text(), begun: time.Now(), slots: make(chan struct{}, cfg.Parallel), cells: map[siteKey]*cell{}, peers: map[string]*peer{}}
}

// Process returns a name of this Runner that no other one has, also not one of an
// earlier process of the same agent. The leader learns from it whether the objects
// that it gave to the agent still run.
func (r *Runner) Process() string { return r.process }

// now is a clock that does not go back, in milliseconds; it begins as Unix time.
func (r *Runner) now() int64 { return r.begun.UnixMilli() + time.Since(r.begun).Milliseconds() }

// Run runs the home until ctx ends; what runs then is stopped.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.ctx = ctx
	for _, fn := range r.early { // before anything that comes now
		fn()
	}
	r.early = nil
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.work.Wait()
	return nil
}

// cell gives a site's cell, which is made if there is none; nil when it is too
// late. The caller holds r.mu.
func (r *Runner) cell(key siteKey) *cell {
	if r.over {
		return nil
	}
	c := r.cells[key]
	if c == nil {
		c = newCell(r, key)
		r.cells[key] = c
		r.work.Add(1)
		go func() {
			defer r.work.Done()
			c.run(r.ctx)
		}()
	}
	return c
}

// drop forgets a cell that has nothing and that nobody wants anything of; it says
// whether it has.
func (r *Runner) drop(c *cell) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mail) > 0 {
		return false
	}
	delete(r.cells, c.key)
	return true
}

// Orders takes what the leader says, as JSON of []site.Orders.
func (r *Runner) Orders(session string, data []byte) {
	var list []*site.Orders
	if err := json.Unmarshal(data, &list); err != nil {
		r.cfg.Logger.Error("orders for sites cannot be read", "error", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		r.early = append(r.early, func() { r.orders(session, list) })
		return
	}
	r.orders(session, list)
}

// orders is Orders with r.mu held.
func (r *Runner) orders(session string, list []*site.Orders) {
	for _, o := range list {
		if o.Site == "" { // that was all: what no order was about is not ours any more
			for _, c := range r.cells {
				c.post(func(now int64) {
					if c.session != session {
						c.clear()
					}
				})
			}
			continue
		}
		if c := r.cell(siteKey{o.Tenant, o.Site}); c != nil {
			c.post(func(now int64) { c.orders(session, o, now) })
		}
	}
}

// Receive takes a packet from another agent's home.
func (r *Runner) Receive(from string, p *pb.ChangePacket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		return // it is asked for again
	}
	if c := r.cell(siteKey{p.Tenant, p.Site}); c != nil {
		c.post(func(now int64) { c.receive(packet{from, p}, now) })
	}
}

// Lost says that what another home sent, or was sent, may have been lost.
func (r *Runner) Lost(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.cells {
		c.post(func(now int64) {
			if c.home != nil {
				c.home.Lost(func(id object.ID) bool { return c.routes[id].home == agent }, now)
			}
		})
	}
}

// send puts a packet on its way to another agent's home.
func (r *Runner) send(agent string, p *pb.ChangePacket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.peer(agent).push(p)
}

// peer gives the talk with another home. The caller holds r.mu.
func (r *Runner) peer(agent string) *peer {
	p := r.peers[agent]
	if p == nil {
		p = &peer{r: r, agent: agent, wake: make(chan struct{}, 1)}
		r.peers[agent] = p
		r.work.Add(1)
		go func() {
			defer r.work.Done()
			p.run(r.ctx)
		}()
	}
	return p
}

// mayAct says whether what was ordered under a session is certainly ours now.
func (r *Runner) mayAct(session string) bool {
	return session != "" && r.cfg.InTouch() && r.cfg.Session() == session
}

func toWire(m *object.Message) *pb.ChangeMessage {
	out := &pb.ChangeMessage{From: uint32(m.From), To: uint32(m.To), FromInc: m.FromInc, ToInc: m.ToInc, Epoch: m.Epoch, Kind: uint32(m.Kind), State: uint32(m.State)}
	for i, f := range []bool{m.Urgent, m.Held, m.Eager, m.Lazy} {
		if f {
			out.Flags |= 1 << i
		}
	}
	return out
}

// fromWire reads a message; false for one that can be none.
func fromWire(m *pb.ChangeMessage) (object.Message, bool) {
	if m.Kind < uint32(object.Request) || m.Kind > uint32(object.Resync) || m.State >= object.MaxStates || m.From > 1<<31-1 || m.To > 1<<31-1 {
		return object.Message{}, false
	}
	return object.Message{From: object.ID(m.From), To: object.ID(m.To), FromInc: m.FromInc, ToInc: m.ToInc, Epoch: m.Epoch, Kind: object.Kind(m.Kind),
		State: object.State(m.State), Urgent: m.Flags&1 != 0, Held: m.Flags&2 != 0, Eager: m.Flags&4 != 0, Lazy: m.Flags&8 != 0}, true
}
