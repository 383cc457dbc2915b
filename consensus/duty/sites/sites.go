// Package sites is the leader's duty for sites of change objects: it gives their
// hosts to homes, tells homes what they need to know, lets hosts follow a new
// generation when their removed objects are away, and knows what homes report
// (docs/spec/changes.md rules 18 to 25). Objects decide without it.
package sites

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/host"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config of a Keeper.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Logger  *slog.Logger
	// Node says how a node of a cluster is reached, as JSON of model.TaskConfig, and
	// which machine its agents must be on ("": any). False where there is no such
	// node.
	Node func(v *state.View, tenant, host string) (config json.RawMessage, machine string, ok bool)
	// Paused says that a site rests while a plan is at work; may be nil.
	Paused func(v *state.View, tenant, site string) bool
	// Gather is how long changes are gathered; 0 means 5 ms.
	Gather time.Duration
}

// Home is an agent's home of objects, as its session began.
type Home struct {
	Agent, Name, Machine string
	// Process names the run of the agent; another one knows nothing of what was.
	Process string
	// Send gives false once the session is over.
	Send func(*pb.LeaderMessage) bool
}

// Keeper is the duty. It is made for one term. What it knows beyond the state
// comes from the homes, and comes again when they have a new leader.
type Keeper struct {
	cfg  Config
	wake chan struct{}

	mu     sync.Mutex
	homes  map[string]*homeEnd // by session
	sites  map[state.SiteKey]*known
	dirty  map[state.SiteKey]bool
	all    bool
	events map[state.SiteKey][]*pb.ObjectEvent
	looks  uint64
	// ofNodes says that a site has hosts that are nodes of clusters; clusters that
	// these may have changed.
	ofNodes, clusters bool
	// revision counts what has come, and heard is closed, and made anew, with each.
	revision uint64
	heard    chan struct{}
	over     bool
}

// ErrOver says that the term is over for which a Keeper was made: who waits asks the
// next leader.
var ErrOver = problem.New(problem.NoLeader, "this leader's term is over")

// homeEnd is a Home and what it was told.
type homeEnd struct {
	Home
	told     map[state.SiteKey]*told
	welcomed bool
}

// told is what a home was told of a site.
type told struct {
	version, epoch, look uint64
	call                 uint64
	around               string            // what else it was told: nodes, and whether to rest
	parts                map[uint64]string // hosts of the slices, by generation
	concerns             map[uint64][]object.ID
}

// known is what the keeper knows of a site.
type known struct {
	epoch       uint64
	generations map[uint64]*generation
	reports     map[object.ID]*pb.ObjectReport
	look        uint64
	looked      map[object.ID]*pb.Looked
	settling
}

// generation is one, read and compiled.
type generation struct {
	*site.Generation
	doc  *site.Document
	site *object.Site
}

// New makes the keeper of one term.
func New(cfg Config) *Keeper {
	if cfg.Gather == 0 {
		cfg.Gather = 5 * time.Millisecond
	}
	return &Keeper{cfg: cfg, wake: make(chan struct{}, 1), homes: map[string]*homeEnd{}, sites: map[state.SiteKey]*known{},
		dirty: map[state.SiteKey]bool{}, events: map[state.SiteKey][]*pb.ObjectEvent{}, heard: make(chan struct{})}
}

// Name names the duty.
func (k *Keeper) Name() string { return "sites" }

// Restore looks at all sites once.
func (k *Keeper) Restore(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all, k.clusters = true, true
	// Looks are told apart from those of the leaders before.
	k.looks = k.cfg.Machine.View().Index() << 16
	k.revision = k.looks + 1
	return nil
}

func (k *Keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Join begins a session with a home.
func (k *Keeper) Join(session string, h Home) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.homes[session] = &homeEnd{Home: h, told: map[state.SiteKey]*told{}}
	k.all = true
	k.poke()
}

// Leave ends it. What its objects do is not known any more; whether others take
// them over is decided when the state has the session ended.
func (k *Keeper) Leave(session string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.homes, session)
}

// Hear takes what a home reports.
func (k *Keeper) Hear(session string, reports []*pb.HomeReport) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.homes[session] == nil {
		return
	}
	v := k.cfg.Machine.View()
	for _, r := range reports {
		key := state.SiteKey{Tenant: r.Tenant, Name: r.Site}
		rec, ok := v.Site(r.Tenant, r.Site)
		if !ok || rec.Epoch != r.Epoch {
			continue
		}
		s := k.known(key, rec)
		for _, o := range r.Objects {
			if old := s.reports[object.ID(o.Id)]; old == nil || old.Inc <= o.Inc {
				s.recount(rec, old, o)
				s.reports[object.ID(o.Id)] = o
			}
			if o.Removing && o.Settled {
				k.dirty[key] = true
			}
		}
		for _, l := range r.Looked {
			if l.Look == s.look {
				s.looked[object.ID(l.Id)] = l
			}
		}
		if s.heard(k.homes[session].Agent, r.Calm) {
			k.dirty[key] = true
		}
		k.events[key] = append(k.events[key], r.Events...)
	}
	k.news()
	k.poke()
}

// news wakes who watches.
func (k *Keeper) news() {
	k.revision++
	close(k.heard)
	k.heard = make(chan struct{})
}

// known gives what is known of a site; one that was made anew is another.
func (k *Keeper) known(key state.SiteKey, r *site.Record) *known {
	s := k.sites[key]
	if s == nil || s.epoch != r.Epoch {
		s = &known{epoch: r.Epoch, generations: map[uint64]*generation{}, reports: map[object.ID]*pb.ObjectReport{}, looked: map[object.ID]*pb.Looked{}}
		k.sites[key] = s
	}
	return s
}

// generation reads and compiles one.
func (s *known) generation(v *state.View, r *site.Record, number uint64) (*generation, error) {
	if g := s.generations[number]; g != nil {
		return g, nil
	}
	stored, ok := v.Generation(r.Tenant, r.Name, number)
	if !ok {
		return nil, problem.New(problem.NotFound, "generation %d of site %s is not kept", number, r.Name)
	}
	g := &generation{Generation: stored, doc: &site.Document{}}
	if err := json.Unmarshal(stored.Document, g.doc); err != nil {
		return nil, fmt.Errorf("generation %d of site %s: %w", number, r.Name, err)
	}
	part := site.Part{Generation: number, Document: g.doc, IDs: stored.IDs}
	var err error
	if g.site, err = compile.Part(&part); err != nil {
		return nil, fmt.Errorf("generation %d of site %s: %w", number, r.Name, err)
	}
	for n := range s.generations {
		if n != r.Generation && n != r.Next {
			delete(s.generations, n)
		}
	}
	s.generations[number] = g
	return g, nil
}

// Run does what there is to do whenever something has changed.
func (k *Keeper) Run(ctx context.Context) error {
	stop := k.cfg.Machine.Watch(func(b state.Batch) {
		if len(b.Sites)+len(b.Operations) == 0 && !b.Agents && !b.Restored {
			return
		}
		k.mu.Lock()
		for _, key := range b.Sites {
			k.dirty[key] = true
		}
		k.all = k.all || b.Agents || b.Restored || len(b.Operations) > 0 && k.ofNodes
		k.clusters = k.clusters || len(b.Operations) > 0 || b.Restored
		k.mu.Unlock()
		k.poke()
	})
	defer stop()
	defer k.end()
	k.poke()
	gather := time.NewTimer(0)
	defer gather.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.wake:
		}
		gather.Reset(k.cfg.Gather)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-gather.C:
		}
		if err := k.round(ctx); err != nil {
			k.cfg.Logger.Warn("sites: something could not be committed, and is tried again", "error", err)
			gather.Reset(time.Second)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-gather.C:
			}
			k.mu.Lock()
			k.all = true
			k.mu.Unlock()
			k.poke()
		}
	}
}

// end sends away who waits for news: there will be none.
func (k *Keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	k.news()
}

// round tells homes what has changed, and commits what follows from what is known.
func (k *Keeper) round(ctx context.Context) error {
	if err := k.followClusters(ctx); err != nil {
		return err
	}
	commands := k.look()
	if len(commands) == 0 {
		return nil
	}
	answers, err := k.cfg.Propose(ctx, commands...)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil { // the state has moved on meanwhile: look again
			k.cfg.Logger.Debug("sites: not committed", "error", a.Err)
			k.mu.Lock()
			k.all = true
			k.mu.Unlock()
			k.poke()
		}
	}
	return nil
}

// look goes through the sites that changed, tells homes, and gives what has to be
// committed.
func (k *Keeper) look() []*pb.Command {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.cfg.Machine.View()
	dirty := k.dirty
	if len(dirty) > 0 || k.all {
		k.news()
	}
	if k.all {
		for _, r := range v.Sites("") {
			dirty[state.SiteKey{Tenant: r.Tenant, Name: r.Name}] = true
		}
		for key := range k.sites {
			dirty[key] = true
		}
		for _, h := range k.homes {
			for key := range h.told {
				dirty[key] = true
			}
		}
	}
	k.dirty, k.all = map[state.SiteKey]bool{}, false
	var out []*pb.Command
	// First what has happened: what follows from it may be the end of the site.
	for key, events := range k.events {
		if _, ok := v.Site(key.Tenant, key.Name); ok && len(events) > 0 {
			for _, some := range portions(events) {
				out = append(out, command(key, &pb.ChangeSite{Site: key.Name, Events: &pb.ObjectEvents{Events: some}}))
			}
		}
	}
	clear(k.events)
	orders := map[string][]*site.Orders{}
	order := func(a, b state.SiteKey) int { return strings.Compare(a.Tenant+"\x00"+a.Name, b.Tenant+"\x00"+b.Name) }
	for _, key := range slices.SortedFunc(maps.Keys(dirty), order) {
		r, ok := v.Site(key.Tenant, key.Name)
		if !ok {
			k.gone(key, orders)
			continue
		}
		s := k.known(key, r)
		if s.settle(r, func() uint64 { k.looks++; return k.looks }) {
			k.news()
		}
		k.ofNodes = k.ofNodes || slices.ContainsFunc(r.Hosts, func(h site.Host) bool { return strings.HasPrefix(h.Name, "node:") })
		if err := k.tell(v, key, r, s, orders); err != nil {
			k.cfg.Logger.Error("a site cannot be told to its homes", "site", key.Name, "error", err)
			continue
		}
		if hosts := k.assign(v, r); len(hosts) > 0 {
			b, _ := json.Marshal(hosts) // strings only
			out = append(out, command(key, &pb.ChangeSite{Site: key.Name, Assign: &pb.AssignHosts{Hosts: b, Epoch: r.Epoch}}))
			continue // the rest when that is done
		}
		if groups := r.Ready(func(id object.ID) bool { return s.away(r, id) }); r.Next != 0 && len(groups) > 0 {
			sw := &pb.SwitchGroups{Generation: r.Next}
			for _, g := range groups {
				sw.Groups = append(sw.Groups, uint32(g))
			}
			out = append(out, command(key, &pb.ChangeSite{Site: key.Name, Switch: sw}))
		}
	}
	for session, h := range k.homes {
		if !h.welcomed { // what it has and is not told of is not its own any more
			h.welcomed = true
			orders[session] = append(orders[session], &site.Orders{})
		}
	}
	for session, list := range orders {
		if b, err := json.Marshal(list); err == nil {
			k.homes[session].Send(&pb.LeaderMessage{Sites: b})
		}
	}
	return out
}

// portion is how many bytes of events go into one command: an entry of the log is
// bounded.
const portion = 256 << 10

// portions cuts events into such as fit into a command each.
func portions(events []*pb.ObjectEvent) (out [][]*pb.ObjectEvent) {
	begin, size := 0, 0
	for i, e := range events {
		n := proto.Size(e)
		if i > begin && size+n > portion {
			out, begin, size = append(out, events[begin:i]), i, 0
		}
		size += n
	}
	return append(out, events[begin:])
}

func command(key state.SiteKey, ch *pb.ChangeSite) *pb.Command {
	return &pb.Command{Tenant: key.Tenant, Change: &pb.Command_ChangeSite{ChangeSite: ch}}
}

// gone tells homes of a site that there is not any more.
func (k *Keeper) gone(key state.SiteKey, orders map[string][]*site.Orders) {
	delete(k.sites, key)
	for session, h := range k.homes {
		if t := h.told[key]; t != nil {
			orders[session] = append(orders[session], &site.Orders{Tenant: key.Tenant, Site: key.Name, Epoch: t.epoch, Gone: true})
			delete(h.told, key)
		}
	}
}

// away says whether a removed object is where it should be: it says so itself,
// never ran, or holds nothing by an operator's word.
func (s *known) away(r *site.Record, id object.ID) bool {
	if int(id) >= len(r.Lives) || r.Lives[id].Host < 0 || r.Lives[id].Inc == 0 {
		return true
	}
	if slices.ContainsFunc(r.Released, func(x site.Release) bool { return x.ID == id && r.Holds(x) }) {
		return true
	}
	o := s.reports[id]
	return o != nil && o.Inc == r.Lives[id].Inc && o.Removing && o.Settled
}

// assign says which hosts should have other homes.
func (k *Keeper) assign(v *state.View, r *site.Record) []site.Host {
	byAgent := map[string]*homeEnd{}
	for _, h := range k.homes {
		if n, ok := v.Agent(h.Agent); ok && k.homes[n.Session] == h {
			byAgent[h.Agent] = h
		}
	}
	agents := slices.Sorted(maps.Keys(byAgent))
	var out []site.Host
	for _, at := range r.Hosts {
		var h *homeEnd
		if name, ok := strings.CutPrefix(at.Name, "agent:"); ok {
			for _, id := range agents {
				if byAgent[id].Name == name && (h == nil || id == at.Agent) {
					h = byAgent[id]
				}
			}
		} else if h = byAgent[at.Agent]; h == nil {
			if n, ok := v.Agent(at.Agent); ok && n.Session != "" {
				continue // it has not come to this leader yet
			}
			var fit []string
			_, machine, there := k.cfg.Node(v, r.Tenant, at.Name)
			for _, id := range agents {
				if there && (machine == "" || machine == byAgent[id].Machine) {
					fit = append(fit, id)
				}
			}
			h = byAgent[host.Choose(at.Name, fit)]
		}
		if h == nil || h.Agent == at.Agent && h.Process == at.Process {
			continue
		}
		if n, ok := v.Agent(at.Agent); ok && n.Session != "" && at.Agent != h.Agent {
			continue // an agent of that name, but another still has a lease
		}
		out = append(out, site.Host{Name: at.Name, Agent: h.Agent, Process: h.Process})
	}
	return out
}

// tell makes the orders for every home that has a part in a site.
func (k *Keeper) tell(v *state.View, key state.SiteKey, r *site.Record, s *known, orders map[string][]*site.Orders) error {
	mine := map[string]map[string]bool{} // hosts by agent
	for _, h := range r.Hosts {
		if h.Agent != "" {
			if mine[h.Agent] == nil {
				mine[h.Agent] = map[string]bool{}
			}
			mine[h.Agent][h.Name] = true
		}
	}
	for session, h := range k.homes {
		hosts := mine[h.Agent]
		t := h.told[key]
		if len(hosts) > 0 && !k.current(r, h, hosts) {
			continue // what it ran before is not its own before the new life is committed
		}
		if len(hosts) == 0 {
			if t != nil {
				orders[session] = append(orders[session], &site.Orders{Tenant: key.Tenant, Site: key.Name, Epoch: t.epoch, Gone: true})
				delete(h.told, key)
			}
			continue
		}
		if t == nil || t.epoch != r.Epoch {
			t = &told{epoch: r.Epoch, parts: map[uint64]string{}, concerns: map[uint64][]object.ID{}}
			h.told[key] = t
		}
		nodes, paused := map[string]json.RawMessage{}, k.cfg.Paused != nil && k.cfg.Paused(v, r.Tenant, r.Name)
		for host := range hosts {
			if strings.HasPrefix(host, "node:") {
				if b, _, ok := k.cfg.Node(v, r.Tenant, host); ok {
					nodes[host] = b
				}
			}
		}
		around := fmt.Sprintf("%s%t", nodes, paused)
		if t.version == r.Version && t.look == s.look && t.call == s.call && t.around == around {
			continue
		}
		var parts []site.Part
		concerns := map[object.ID]bool{}
		slice := strings.Join(slices.Sorted(maps.Keys(hosts)), "\x00")
		for _, n := range []uint64{r.Generation, r.Next} {
			if n == 0 {
				continue
			}
			if t.parts[n] != slice {
				g, err := s.generation(v, r, n)
				if err != nil {
					return err
				}
				p := g.Part(g.doc, hosts)
				parts, t.parts[n], t.concerns[n] = append(parts, p), slice, p.IDs
			}
			for _, id := range t.concerns[n] {
				concerns[id] = true
			}
		}
		for n := range t.parts {
			if n != r.Generation && n != r.Next {
				delete(t.parts, n)
				delete(t.concerns, n)
			}
		}
		o := r.Orders(hosts, concerns)
		o.Parts, o.Look, o.Call, o.Nodes, o.Paused = parts, s.look, s.call, nodes, paused
		t.version, t.look, t.call, t.around = r.Version, s.look, s.call, around
		orders[session] = append(orders[session], o)
	}
	return nil
}

// current says whether the hosts are this process's.
func (k *Keeper) current(r *site.Record, h *homeEnd, hosts map[string]bool) bool {
	for _, x := range r.Hosts {
		if hosts[x.Name] && x.Process != h.Process {
			return false
		}
	}
	return true
}
