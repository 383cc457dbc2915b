package objects

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Performer acts for objects on real machines.
type Performer interface {
	// Check returns the state that an object is in; "" or an error if the state cannot be
	// found out. The note describes the finding for people.
	Check(ctx context.Context, j *Job) (state, note string, err error)
	// Run carries out an action of the object's type.
	Run(ctx context.Context, j *Job, action string) error
}

// Job is the object that a Performer acts for.
type Job struct {
	Tenant, Site string
	// Object has the values of secrets, and Stored references in place of these. What is written down is Stored.
	Object, Stored *site.Object
	// Secrets are the texts in these values.
	Secrets []string
	// Values are the values of references, also of those that the object had in earlier generations.
	Values map[string]json.RawMessage
	// Content is the digest of type and content.
	Content uint64
	// Generation is the generation that Object belongs to.
	Generation uint64
	// Node is how the object's host is reached. It is nil if the host is not a node of a
	// cluster, or if the node's machine does not exist or is not confirmed yet.
	Node *site.Access
	// Held is how long the object's host has been assigned to this agent without a break.
	Held time.Duration
}

// Config configures a Runtime. Everything is required but Parallel.
type Config struct {
	Self string // the agent's id
	// Session returns the id of the worker's session with the leader, or "". InTouch
	// reports whether the session is certainly still valid, so that no other agent has the
	// hosts that were assigned under it.
	Session func() string
	InTouch func() bool
	// Report sends a report to the leader. Reports arrive in order, and none is lost while
	// the session lasts.
	Report func(session string, r *pb.RuntimeReport)
	// Open opens a stream to the runtime of another agent, which serves it with Serve.
	// The stream ends with ctx.
	Open      func(ctx context.Context, agent string) (Stream, error)
	Performer Performer
	Logger    *slog.Logger
	// Parallel bounds the acts that run at a time; 0 means 64.
	Parallel int
}

// Runtime is the host runtime of one agent: it runs the objects of the hosts that the
// leader assigned to the agent.
type Runtime struct {
	cfg     Config
	process string
	begun   time.Time
	slots   chan struct{} // one for each act that runs
	queue   *loop.Queue[siteKey]

	mu      sync.Mutex
	ctx     context.Context // Run's; nil before Run
	runners map[siteKey]*siteRunner
	links   map[string]*link // by agent
	numbers uint64           // the last number of an event that no runner uses
	work    sync.WaitGroup   // acts, and the goroutines of links
	over    bool
}

type siteKey struct{ tenant, name string }

// New returns a runtime without objects.
func New(cfg Config) *Runtime {
	if cfg.Parallel == 0 {
		cfg.Parallel = 64
	}
	r := &Runtime{
		cfg:     cfg,
		process: rand.Text(),
		begun:   time.Now(),
		slots:   make(chan struct{}, cfg.Parallel),
		runners: map[siteKey]*siteRunner{},
		links:   map[string]*link{},
	}
	r.queue = loop.New(loop.Config[siteKey]{Reconcile: r.reconcile, Parallel: max(4, runtime.GOMAXPROCS(0))})
	return r
}

// Process returns a name of this Runtime that no other one has, also not one of an
// earlier process of the same agent. From the name the leader recognizes whether the agent
// still runs the objects that were assigned to it.
func (r *Runtime) Process() string { return r.process }

// now returns the time in milliseconds, by a clock that never goes back and that begins
// as Unix time.
func (r *Runtime) now() int64 { return r.begun.UnixMilli() + time.Since(r.begun).Milliseconds() }

// at returns the moment at which now returns ms.
func (r *Runtime) at(ms int64) time.Time {
	return r.begun.Add(time.Duration(ms-r.begun.UnixMilli()) * time.Millisecond)
}

// Run runs objects until ctx ends. It returns once all acts have stopped.
func (r *Runtime) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	err := r.queue.Run(ctx)
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.work.Wait()
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// reconcile lets the runner of a site start the acts that are due.
func (r *Runtime) reconcile(ctx context.Context, key siteKey) (time.Time, error) {
	r.mu.Lock()
	x := r.runners[key]
	r.mu.Unlock()
	if x == nil {
		return time.Time{}, nil
	}
	next := x.reconcile(ctx, r.now())
	if next == 0 {
		return time.Time{}, nil
	}
	return r.at(next), nil
}

// post has the runner of a site handle a message. The runner is created if there is
// none. The caller holds r.mu.
func (r *Runtime) post(key siteKey, fn message) {
	if r.over {
		return
	}
	x := r.runners[key]
	if x == nil {
		x = newSiteRunner(r, key)
		r.runners[key] = x
	}
	x.post(fn)
}

// drop forgets a runner unless a message waits for it.
func (r *Runtime) drop(x *siteRunner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.mail.CloseIfEmpty() {
		delete(r.runners, x.key)
	}
}

// Orders takes orders of the leader.
func (r *Runtime) Orders(session string, messages []*pb.SiteOrders) {
	list := make([]*site.Orders, 0, len(messages))
	for _, m := range messages {
		o, err := logformat.DecodeOrders(m)
		if err != nil {
			r.cfg.Logger.Error("the leader's orders for sites cannot be read", "site", m.GetSite(), "error", err)
			return
		}
		list = append(list, o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range list {
		if o.Site != "" {
			r.post(siteKey{o.Tenant, o.Site}, func(x *siteRunner, now int64) { x.orders(session, o, now) })
			continue
		}
		// The leader has sent its orders for all sites. This agent runs objects of no
		// others any more.
		for _, x := range r.runners {
			x.post(func(x *siteRunner, _ int64) {
				if x.session != session && x.kept != session {
					x.clear()
				}
			})
		}
	}
}

// Receive takes a packet from the runtime of another agent.
func (r *Runtime) Receive(from string, p *pb.ChangePacket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.post(siteKey{p.Tenant, p.Site}, func(x *siteRunner, now int64) { x.receive(packet{from, p}, now) })
}

// Lost notes that messages to or from another runtime may have been lost.
func (r *Runtime) Lost(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.runners {
		x.post(func(x *siteRunner, now int64) {
			if x.host != nil {
				x.host.Lost(func(id object.ID) bool { return x.routes[id].agent == agent }, now)
			}
		})
	}
}

// send sends a packet to the runtime of another agent.
func (r *Runtime) send(agent string, p *pb.ChangePacket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.link(agent).push(p)
}

// link returns the link to another runtime. The caller holds r.mu.
func (r *Runtime) link(agent string) *link {
	p := r.links[agent]
	if p == nil {
		p = &link{r: r, agent: agent, notify: make(chan struct{}, 1)}
		r.links[agent] = p
		r.work.Go(func() { p.run(r.ctx) })
	}
	return p
}

// mayAct reports whether the hosts that were assigned under a session are certainly
// still this agent's.
func (r *Runtime) mayAct(session string) bool {
	return session != "" && r.cfg.InTouch() && r.cfg.Session() == session
}

func toWire(m *object.Message) *pb.ChangeMessage {
	out := &pb.ChangeMessage{
		From:    uint32(m.From),
		To:      uint32(m.To),
		FromInc: m.FromInc,
		ToInc:   m.ToInc,
		Epoch:   m.Epoch,
		Kind:    uint32(m.Kind),
		State:   uint32(m.State),
	}
	for i, f := range []bool{m.Urgent, m.Held, m.Eager, m.Lazy} {
		if f {
			out.Flags |= 1 << i
		}
	}
	return out
}

// fromWire converts a message. It reports false if the message is malformed.
func fromWire(m *pb.ChangeMessage) (object.Message, bool) {
	if m.Kind < uint32(object.Request) || m.Kind > uint32(object.Resync) || m.State >= object.MaxStates || m.From > 1<<31-1 || m.To > 1<<31-1 {
		return object.Message{}, false
	}
	return object.Message{
		From:    object.ID(m.From),
		To:      object.ID(m.To),
		FromInc: m.FromInc,
		ToInc:   m.ToInc,
		Epoch:   m.Epoch,
		Kind:    object.Kind(m.Kind),
		State:   object.State(m.State),
		Urgent:  m.Flags&1 != 0,
		Held:    m.Flags&2 != 0,
		Eager:   m.Flags&4 != 0,
		Lazy:    m.Flags&8 != 0,
	}, true
}
