// Package sites is the leader's controller for sites of change objects. It assigns the
// hosts of a site to the host runtimes of agents, sends the runtimes their orders, lets
// hosts follow a new generation once the objects that it removes are away, and keeps
// what runtimes report (docs/spec/changes.md rules 18 to 25). Objects decide without it.
package sites

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Controller. Everything is required but Paused, Box, Seal and Gather.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Logger  *slog.Logger
	// Node returns how a node of a cluster is reached, as JSON of model.TaskConfig, and
	// the machine that an agent must be on to reach it ("" for any). It reports false if
	// there is no such node.
	Node func(v *state.View, tenant, host string) (access *site.Access, machine string, ok bool)
	// Paused reports whether the objects of a site must not act, as an operation works on
	// their cluster; may be nil.
	Paused func(v *state.View, tenant, site string) bool
	// Box decrypts the values to which documents have references. Seal returns a document whose secrets are such references. Without
	// them documents are kept as they are.
	Box  *sealed.Box
	Seal func(ctx context.Context, tenant string, doc *site.Document) (*site.Document, error)
	// Gather is how long changes of a site are gathered; 0 means 5 ms.
	Gather time.Duration
}

// parallel is how many keys are reconciled at a time. It bounds how many commits are
// under way; everything else happens under Controller.mu.
const parallel = 8

// retryPause is the pause after a commit that failed.
const retryPause = time.Second

// Runtime is the host runtime of an agent, as its session began.
type Runtime struct {
	Agent, Name, Machine string
	// Process names the process of the agent. Another process of the same agent knows
	// nothing of the objects that this one ran.
	Process string
	// Send sends a message to the agent. It never blocks, and reports false once the
	// session is over.
	Send func(*pb.LeaderMessage) bool
}

// Controller manages sites for one term. Its data beyond the replicated state comes from
// the runtimes, which send it again to a new leader.
type Controller struct {
	cfg     Config
	secrets secrets
	queue   *loop.Queue[key]

	mu       sync.Mutex
	sessions map[string]*session // by id
	sites    map[state.SiteKey]*known
	events   map[state.SiteKey][]event
	// blocked are the clusters whose sites have to follow them once the generation that
	// is on its way is in force, by id.
	blocked map[string]bool
	numbers uint64 // the last number of a probe or a call
	// revision counts changes of what Status returns. changed is closed, and replaced,
	// with each of them.
	revision uint64
	changed  chan struct{}
	over     bool
}

// event is an event of an object that is not committed yet, with the runtime that numbers it; number 0 has none.
type event struct {
	*pb.ObjectEvent
	process string
	number  uint64
}

// key names the thing that is reconciled: the field that is set.
type key struct {
	site    state.SiteKey
	session string // a runtime that has to be welcomed
	cluster string // the id of a cluster that changed
	all     bool   // every site
}

// ErrOver means that the term of this Controller has ended. The next leader has the
// answer.
var ErrOver = problem.New(problem.NoLeader, "this leader's term is over")

// session is a Runtime and the orders that were sent to it.
type session struct {
	Runtime
	told map[state.SiteKey]*told
	// welcomed is set once the runtime has its orders of all sites. Until then it gets
	// none.
	welcomed bool
}

// told describes the latest orders of a site that were sent to a runtime.
type told struct {
	version, epoch, probe uint64
	call                  uint64
	nodes                 map[string]site.Access
	paused                bool
	parts                 map[uint64]string // the hosts of the slices that were sent, by generation
	concerns              map[uint64][]object.ID
	lacks                 bool // a slice was not sent, as a value in it cannot be decrypted
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	if cfg.Gather == 0 {
		cfg.Gather = 5 * time.Millisecond
	}
	c := &Controller{
		cfg:      cfg,
		secrets:  secrets{cfg.Box, cfg.Seal},
		sessions: map[string]*session{},
		sites:    map[state.SiteKey]*known{},
		events:   map[state.SiteKey][]event{},
		blocked:  map[string]bool{},
		changed:  make(chan struct{}),
	}
	c.queue = loop.New(
		loop.Config[key]{Reconcile: c.reconcile, Parallel: parallel, Gather: cfg.Gather, Backoff: retryPause, MaxBackoff: retryPause,
			Failed: func(k key, err error, pause time.Duration) {
				cfg.Logger.Warn("a change of a site could not be committed", "site", k.site.Name, "cluster", k.cluster, "error", err, "again_in", pause)
			}},
	)
	return c
}

// Name returns the name of the duty.
func (c *Controller) Name() string { return "sites" }

// Restore chooses where this term's numbers begin. They must differ from those of
// earlier leaders, as answers to these may still arrive.
func (c *Controller) Restore(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers = c.cfg.Machine.View().Index() << 16
	c.revision = c.numbers + 1
	return nil
}

// Run manages sites until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	stop := c.cfg.Machine.Watch(c.batch)
	defer stop()
	defer c.end()
	c.addAll() // after Watch, so that no change falls between
	return c.queue.Run(ctx)
}

// end releases all readers that wait for changes.
func (c *Controller) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.news()
}

// addAll adds all sites and clusters.
func (c *Controller) addAll() {
	c.queue.Add(key{all: true})
	for _, cl := range c.cfg.Machine.View().Clusters("") {
		c.queue.Add(key{cluster: cl.ID})
	}
}

// batch adds what a batch of the log changed.
func (c *Controller) batch(b state.Batch) {
	if b.Anew() {
		c.addAll()
	}
	if b.Agents {
		c.queue.Add(key{all: true})
	}
	for _, k := range b.Sites {
		c.queue.Add(key{site: k})
	}
	for op := range b.Operations {
		c.queue.Add(key{cluster: string(model.OperationID(op).Cluster())})
	}
}

// Join begins a session with a runtime.
func (c *Controller) Join(id string, r Runtime) {
	c.mu.Lock()
	c.sessions[id] = &session{Runtime: r, told: map[state.SiteKey]*told{}}
	c.mu.Unlock()
	c.queue.Add(key{session: id}, key{all: true})
}

// Leave ends a session. The runtime's objects may still act: their hosts are assigned to
// other runtimes once the state has the session ended.
func (c *Controller) Leave(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, id)
}

// Hear takes the reports of a runtime.
func (c *Controller) Hear(id string, reports []*pb.RuntimeReport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[id] == nil {
		return
	}
	v := c.cfg.Machine.View()
	for _, r := range reports {
		k := state.SiteKey{Tenant: r.Tenant, Name: r.Site}
		rec, ok := v.Site(r.Tenant, r.Site)
		if !ok || rec.Epoch != r.Epoch {
			continue
		}
		s := c.known(k, rec)
		due := len(r.Events) > 0
		for _, o := range r.Objects {
			if old := s.reports[object.ID(o.Id)]; old == nil || old.Inc <= o.Inc {
				s.recount(rec, old, o)
				s.reports[object.ID(o.Id)] = o
			}
			due = due || o.Removing && o.AtRest
		}
		for _, l := range r.Probed {
			if l.Probe == s.probe {
				s.probed[object.ID(l.Id)] = l
			}
		}
		due = s.answer(c.sessions[id].Agent, r.Calm) || due
		c.take(k, s, c.sessions[id], r)
		if due {
			c.queue.Add(key{site: k})
		}
	}
	c.news()
}

// take takes the events of a report. A runtime sends those again of which it does not know that they are committed. The caller holds c.mu.
func (c *Controller) take(k state.SiteKey, s *known, h *session, r *pb.RuntimeReport) {
	for i, e := range r.Events {
		x := event{ObjectEvent: e, process: h.Process}
		if r.FirstEvent > 0 {
			if x.number = r.FirstEvent + uint64(i); x.number <= s.heard[h.Process] {
				continue
			}
			s.heard[h.Process] = x.number
		}
		c.events[k] = append(c.events[k], x)
	}
	if done := s.committed[h.Process]; r.FirstEvent > 0 && r.FirstEvent <= done {
		h.send([]*site.Orders{{Tenant: k.Tenant, Site: k.Name, Epoch: s.epoch, EventsTaken: done}})
	}
}

// forget drops events that are committed, and informs their runtimes. The caller holds c.mu.
func (c *Controller) forget(k state.SiteKey, done []event) {
	left := c.events[k]
	if left = left[min(len(done), len(left)):]; len(left) > 0 { // there are none if the site is gone
		c.events[k] = left
	} else {
		delete(c.events, k)
	}
	s := c.sites[k]
	if s == nil {
		return // the site is gone
	}
	last := map[string]uint64{}
	for _, e := range done {
		if e.number > 0 {
			last[e.process], s.committed[e.process] = e.number, e.number
		}
	}
	for _, h := range c.sessions {
		if n := last[h.Process]; n > 0 {
			h.send([]*site.Orders{{Tenant: k.Tenant, Site: k.Name, Epoch: s.epoch, EventsTaken: n}})
		}
	}
}

// news notifies those who wait for another revision. The caller holds c.mu.
func (c *Controller) news() {
	c.revision++
	close(c.changed)
	c.changed = make(chan struct{})
}

// reconcile brings what a key names up to date.
func (c *Controller) reconcile(ctx context.Context, k key) (time.Time, error) {
	switch {
	case k.all:
		c.addSites()
	case k.session != "":
		c.welcome(k.session)
	case k.cluster != "":
		return c.followCluster(ctx, k.cluster)
	default:
		return c.reconcileSite(ctx, k.site)
	}
	return time.Time{}, nil
}

// addSites adds all sites that exist, and those of which a runtime has orders.
func (c *Controller) addSites() {
	for _, r := range c.cfg.Machine.View().Sites("") {
		c.queue.Add(key{site: state.SiteKey{Tenant: r.Tenant, Name: r.Name}})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.sites {
		c.queue.Add(key{site: k})
	}
	for _, h := range c.sessions {
		for k := range h.told {
			c.queue.Add(key{site: k})
		}
	}
}

// welcome sends a runtime its orders of all sites. The empty orders at the end make it drop
// the objects of all other sites.
func (c *Controller) welcome(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.sessions[id]
	if h == nil || h.welcomed {
		return
	}
	h.welcomed = true
	v := c.cfg.Machine.View()
	var list []*site.Orders
	for _, r := range v.Sites("") {
		k := state.SiteKey{Tenant: r.Tenant, Name: r.Name}
		o, err := c.orders(v, k, r, c.known(k, r), h, hostsByAgent(r)[h.Agent])
		if err != nil {
			c.cfg.Logger.Error("orders for a site cannot be made", "site", r.Name, "agent", h.Agent, "error", err)
			continue
		}
		list = append(list, o...)
		if t := h.told[k]; t != nil && t.lacks {
			c.queue.Add(key{site: k})
		}
	}
	h.send(append(list, &site.Orders{}))
}

// send sends orders to a runtime.
func (h *session) send(list []*site.Orders) {
	m := &pb.LeaderMessage{}
	for _, o := range list {
		if x, err := logformat.EncodeOrders(o); err == nil { // it has no values that cannot be written
			m.Sites = append(m.Sites, x)
		}
	}
	if len(m.Sites) > 0 {
		h.Send(m)
	}
}

// reconcileSite sends the orders of a site to runtimes, and commits the changes that follow
// from their reports.
func (c *Controller) reconcileSite(ctx context.Context, k state.SiteKey) (time.Time, error) {
	commands, events := c.advance(k)
	if len(commands) == 0 {
		return later(c, k), nil
	}
	answers, err := c.cfg.Propose(ctx, commands...)
	if err != nil {
		return time.Time{}, err
	}
	c.mu.Lock()
	if c.forget(k, events); len(c.events[k]) > 0 {
		c.queue.Add(key{site: k})
	}
	c.mu.Unlock()
	for _, a := range answers {
		if a.Err != nil { // the state has changed since
			c.cfg.Logger.Debug("sites: not committed", "error", a.Err)
			return time.Now().Add(c.cfg.Gather), nil
		}
	}
	return later(c, k), nil
}

// advance sends the orders of a site to runtimes, and returns the commands that have to be
// committed for it, with the events that they hold.
func (c *Controller) advance(k state.SiteKey) (out []*pb.Command, events []event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.news()
	v := c.cfg.Machine.View()
	r, ok := v.Site(k.Tenant, k.Name)
	if !ok {
		c.gone(k)
		return nil, nil
	}
	if id, ok := strings.CutPrefix(k.Name, clusterPrefix); ok && r.Next == 0 && c.blocked[id] {
		delete(c.blocked, id)
		c.queue.Add(key{cluster: id})
	}
	// Events first: what follows from them may be the end of the site. They wait here until they are
	// committed. An event is committed twice if a commit seems to fail and happens later.
	if events = portion(c.events[k]); len(events) > 0 {
		list := &pb.ObjectEvents{}
		for _, e := range events {
			list.Events = append(list.Events, e.ObjectEvent)
		}
		out = append(out, command(k, &pb.ChangeSite{Site: k.Name, Change: &pb.ChangeSite_Events{Events: list}}))
		if len(events) < len(c.events[k]) {
			return out, events
		}
	}
	s := c.known(k, r)
	if s.converge(r, c.number) {
		c.news()
	}
	hosts := hostsByAgent(r)
	for _, h := range c.sessions {
		if !h.welcomed {
			continue
		}
		list, err := c.orders(v, k, r, s, h, hosts[h.Agent])
		if err != nil {
			c.cfg.Logger.Error("orders for a site cannot be made", "site", k.Name, "agent", h.Agent, "error", err)
			return out, events
		}
		h.send(list)
	}
	if hosts := c.assign(v, r); len(hosts) > 0 {
		assign := &pb.AssignHosts{Epoch: r.Epoch}
		for _, h := range hosts {
			m, _ := logformat.EncodeHost(&h) // it holds strings only
			assign.Hosts = append(assign.Hosts, m)
		}
		// The commit adds the site again.
		return append(out, command(k, &pb.ChangeSite{Site: k.Name, Change: &pb.ChangeSite_Assign{Assign: assign}})), events
	}
	if groups := r.Ready(func(id object.ID) bool { return s.away(r, id) }); r.Next != 0 && len(groups) > 0 {
		sw := &pb.SwitchGroups{Generation: r.Next}
		for _, g := range groups {
			sw.Groups = append(sw.Groups, uint32(g))
		}
		out = append(out, command(k, &pb.ChangeSite{Site: k.Name, Change: &pb.ChangeSite_Switch{Switch: sw}}))
	}
	return out, events
}

// number returns the next number of a probe or a call. The caller holds c.mu.
func (c *Controller) number() uint64 {
	c.numbers++
	return c.numbers
}

// portionSize is how many bytes of events go into one command, as the size of a log entry is
// bounded.
const portionSize = 256 << 10

// portion returns the first events, as many as fit into a command, and at least one of them.
func portion(events []event) []event {
	size := 0
	for i, e := range events {
		if size += proto.Size(e.ObjectEvent); i > 0 && size > portionSize {
			return events[:i:i]
		}
	}
	return events[:len(events):len(events)]
}

// command returns the command that changes a site.
func command(key state.SiteKey, ch *pb.ChangeSite) *pb.Command {
	return &pb.Command{Tenant: key.Tenant, Change: &pb.Command_ChangeSite{ChangeSite: ch}}
}
