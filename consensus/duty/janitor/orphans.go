package janitor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/mask"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Finder lists and removes the machines of providers.
type Finder interface {
	// List returns the machines that a provider has for one tenant of this mesh. If the
	// provider's machines are on the agents' hosts, each host is asked: asked has the hosts
	// that answered, and whole reports whether all did. found is valid with an error, too.
	List(ctx context.Context, p *model.Provider, tenant string) (found []*pb.Resource, asked map[string]bool, whole bool, err error)
	// Remove removes a machine. The fence of r is that of the removal.
	Remove(ctx context.Context, p *model.Provider, tenant string, r *pb.Resource) error
}

// OrphansConfig configures an Orphans. Zero times take the defaults.
type OrphansConfig struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	// Opener decrypts the secrets of providers.
	Opener state.Opener
	Finder Finder
	Logger *slog.Logger
	// Every is how often the providers are asked; default ten minutes.
	Every time.Duration
	// Delete has orphans of known clusters removed once they have been found for the Grace
	// (default one hour), by this leader or earlier ones. Otherwise they are only reported.
	Delete bool
	Grace  time.Duration
}

// Orphans is the duty that compares the machines of providers to those in the state.
type Orphans struct {
	cfg OrphansConfig

	turn  chan struct{} // holds a token while no search is under way
	queue *loop.Queue[step]

	mu     sync.Mutex
	last   model.OrphanReport
	found  map[orphanKey]*orphan
	faults map[orphanKey]string // of removals
}

// heldPause is how soon the search looks again whether the mesh is still held.
const heldPause = 10 * time.Second

// step is what the queue of an Orphans does.
type step int

const (
	search step = iota // ask the providers, if that is due
	remove             // remove the orphans whose grace is over
)

// orphanKey identifies a machine.
type orphanKey struct{ tenant, providertype, id string }

// orphan is an orphan that was seen, with its provider.
type orphan struct {
	model.Orphan
	provider *model.Provider
	hide     *mask.Mask // of the provider's passwords
}

// ErrNoOrphan means that a machine is not among the orphans that were found last.
var ErrNoOrphan = problem.New(problem.NotFound, "it is not among the orphans that were found last")

// ErrNotRemoved means that the removal of an orphan was recorded, but its provider has not
// removed it.
var ErrNotRemoved = problem.New(problem.Conflict, "its provider has not removed it")

// NewOrphans returns the duty of one term.
func NewOrphans(cfg OrphansConfig) *Orphans {
	cfg.Every = cmp.Or(cfg.Every, 10*time.Minute)
	cfg.Grace = cmp.Or(cfg.Grace, time.Hour)
	o := &Orphans{cfg: cfg, turn: make(chan struct{}, 1), found: map[orphanKey]*orphan{}, faults: map[orphanKey]string{}}
	o.turn <- struct{}{}
	o.queue = loop.New(loop.Config[step]{Reconcile: o.reconcile})
	return o
}

// Name returns the name of the duty.
func (o *Orphans) Name() string { return "orphans" }

// Restore does nothing: orphans are found again. The state has the time of the latest search, and
// when each of them was found first, as terms may be shorter than both.
func (o *Orphans) Restore(context.Context) error { return nil }

// Run looks for orphans at fixed times until ctx ends.
func (o *Orphans) Run(ctx context.Context) error {
	o.queue.Add(search)
	return o.queue.Run(ctx)
}

// reconcile carries out a step. It returns when the step is due again.
func (o *Orphans) reconcile(ctx context.Context, what step) (time.Time, error) {
	now := time.Now()
	switch held := o.cfg.Machine.View().Hold() != nil; {
	case held && what == remove:
		return time.Time{}, nil // the first search after the hold adds it
	case held:
		return now.Add(heldPause), nil
	case what == remove:
		o.removeDue(ctx)
		return time.Time{}, nil
	}
	last := time.UnixMilli(o.cfg.Machine.View().Orphans().At)
	// A time in the future comes from an earlier leader's clock.
	if due := last.Add(o.cfg.Every); due.After(now) && last.Before(now.Add(o.cfg.Every)) {
		return due, nil
	}
	_, err := o.Find(ctx)
	return time.Now().Add(o.cfg.Every), err // only the end of the term is an error
}

// removeDue removes the orphans whose grace is over.
func (o *Orphans) removeDue(ctx context.Context) {
	for _, x := range o.Report().Orphans {
		if x.DeleteAt == 0 || x.DeleteAt > time.Now().UnixMilli() {
			continue
		}
		if _, err := o.Remove(ctx, model.Caller{Tenant: x.Tenant, Actor: model.Self, Role: model.RoleAdmin}, x.ID,
			"the policy: it belongs to no node ("+string(x.Why)+")"); err != nil && ctx.Err() == nil {
			o.cfg.Logger.Warn("an orphan could not be removed", "machine", x.ID, "cluster", x.Cluster, "node", x.Node, "error", err)
		}
	}
}

// Report returns the report of the last search.
func (o *Orphans) Report() model.OrphanReport {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// listed is the answer of one provider.
type listed struct {
	provider *model.Provider
	hide     *mask.Mask // of its passwords
	tenant   string
	shut     error // its credentials could not be decrypted
	found    []*pb.Resource
	asked    map[string]bool
	whole    bool
	err      error
}

// Find asks all providers now. The report has a fault for each provider that did not
// answer.
func (o *Orphans) Find(ctx context.Context) (model.OrphanReport, error) {
	select {
	case <-o.turn:
		defer func() { o.turn <- struct{}{} }()
	case <-ctx.Done():
		return model.OrphanReport{}, ctx.Err()
	}
	lists := o.ask(ctx, providers(o.cfg.Machine.View(), o.cfg.Opener))
	if ctx.Err() != nil {
		return model.OrphanReport{}, ctx.Err()
	}
	// Read the state after the lists: the record of a node is older than its machine.
	suspects := suspects(o.cfg.Machine.View(), lists)
	if len(suspects) > 0 {
		// A provider that was removed between the two is none.
		again := o.ask(ctx, slices.Collect(suspectProviders(suspects)))
		if ctx.Err() != nil {
			return model.OrphanReport{}, ctx.Err()
		}
		still := keysOf(again)
		maps.DeleteFunc(suspects, func(k orphanKey, _ *orphan) bool { return !still[k] })
		// A provider that went away between the two was not heard: keep leaves its orphans as they were.
		for _, a := range again {
			i := slices.IndexFunc(lists, func(l listed) bool { return l.provider == a.provider && l.tenant == a.tenant })
			if i >= 0 && a.err != nil {
				lists[i].err = a.err
			}
		}
	}
	r := o.keep(ctx, lists, suspects)
	o.queue.Add(remove)
	return r, nil
}

// providers returns the providers of all tenants: those that are defined now, and those that
// clusters and runs were created with. Providers with the same values appear once.
func providers(v *state.View, o state.Opener) []listed {
	var out []listed
	seen := map[string]bool{}
	add := func(tenant string, stored *model.Provider) {
		p := *stored
		var hide *mask.Mask
		if model.HasSealedRef(p.Provisioner) {
			fields, err := o.OpenFields(v.SealedView, tenant, p.Provisioner)
			if err != nil {
				out = append(out, listed{provider: stored, tenant: tenant, shut: err})
				return
			}
			p.Provisioner, hide = fields, mask.New(sealed.RevealedBy(stored.Provisioner, fields)...)
		}
		b, err := json.Marshal(p.Provisioner)
		if key := tenant + "\x00" + p.ProviderType + "\x00" + string(b); err == nil && p.ProviderType != "" && !seen[key] {
			seen[key] = true
			out = append(out, listed{provider: &p, hide: hide, tenant: tenant})
		}
	}
	for _, t := range v.Tenants() {
		for _, d := range v.Definitions(t.Name, model.KindProvider) {
			if def, err := model.Restore(d.Kind, d.Body); err == nil {
				if p, ok := def.Value.(*model.Provider); ok {
					add(t.Name, p)
				}
			}
		}
		for _, cl := range v.Clusters(t.Name) {
			if cl.Status != model.ClusterTerminated {
				add(t.Name, &cl.Provider)
			}
		}
		for _, p := range v.RunProviders(o, t.Name) {
			add(t.Name, &p) // clusters of plain nodes that runs have, had, or would have
		}
	}
	return out
}

// atOnce is how many providers are asked at a time.
const atOnce = 8

// ask asks providers for their machines.
func (o *Orphans) ask(ctx context.Context, lists []listed) []listed {
	out := slices.Clone(lists)
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range out {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			l := &out[i]
			if l.shut != nil {
				l.err = l.shut
				return
			}
			l.found, l.asked, l.whole, l.err = o.cfg.Finder.List(ctx, l.provider, l.tenant)
			l.err = masked(l.hide, l.err)
		})
	}
	wg.Wait()
	return out
}

// maskedError is an error whose text is without the passwords of a provider, which its plugin or a cloud may quote.
type maskedError struct {
	error
	hide *mask.Mask
}

func (e maskedError) Error() string { return e.hide.Text(e.error.Error()) }

func (e maskedError) Unwrap() error { return e.error }

func masked(hide *mask.Mask, err error) error {
	if err == nil {
		return nil
	}
	return maskedError{err, hide}
}

func keysOf(lists []listed) map[orphanKey]bool {
	out := map[orphanKey]bool{}
	for _, l := range lists {
		for _, r := range l.found {
			out[orphanKey{l.tenant, l.provider.ProviderType, r.Id}] = true
		}
	}
	return out
}

// suspects returns the machines that belong to no node in the state.
func suspects(v *state.View, lists []listed) map[orphanKey]*orphan {
	type place struct{ tenant, cluster string }
	busy := map[place]bool{}
	for _, op := range v.ActiveOperations() {
		if !op.Type.Concurrent() { // others make and remove no machines, or while one of these is open
			busy[place{op.Tenant, op.Cluster}] = true
		}
	}
	out := map[orphanKey]*orphan{}
	for _, l := range lists {
		for _, r := range l.found {
			// The id must match, too: Cluster also resolves names.
			cl, known := v.Cluster(l.tenant, r.Cluster)
			known = known && cl.ID == r.Cluster
			n, _ := v.Node(l.tenant, r.Node)
			why, orphaned := model.Orphaned(n, known, busy[place{l.tenant, r.Cluster}], r.Id)
			if orphaned {
				out[orphanKey{l.tenant, l.provider.ProviderType, r.Id}] = &orphan{model.Orphan{
					Tenant: l.tenant, Provider: l.provider.Name, ID: r.Id, Cluster: r.Cluster, Node: r.Node, Fence: r.Fence, Why: why,
				}, l.provider, l.hide}
			}
		}
	}
	return out
}

func suspectProviders(suspects map[orphanKey]*orphan) func(func(listed) bool) {
	seen := map[*model.Provider]bool{}
	return func(yield func(listed) bool) {
		for k, x := range suspects {
			if !seen[x.provider] {
				seen[x.provider] = true
				if !yield(listed{provider: x.provider, hide: x.hide, tenant: k.tenant}) {
					return
				}
			}
		}
	}
}

// keep stores the orphans that were found, each with the time when it was found first, and returns
// the report about them.
func (o *Orphans) keep(ctx context.Context, lists []listed, found map[orphanKey]*orphan) model.OrphanReport {
	now := time.Now()
	v := o.cfg.Machine.View()
	r := model.OrphanReport{At: now.UnixMilli(), Providers: []model.ProviderListing{}, Orphans: []model.Orphan{}, Missing: missing(v, lists)}
	unheard := map[string]bool{} // tenant and type of which something could not be asked
	for _, l := range lists {
		asked := model.ProviderListing{Tenant: l.tenant, Provider: l.provider.Name, Type: l.provider.ProviderType, Machines: len(l.found)}
		if l.err != nil {
			asked.Fault = l.err.Error()
			unheard[l.tenant+"\x00"+l.provider.ProviderType] = true
		}
		r.Providers = append(r.Providers, asked)
	}
	// A machine at an unreachable provider counts as still there.
	away := func(k orphanKey) bool { return found[k] == nil && unheard[k.tenant+"\x00"+k.providertype] }
	o.mu.Lock()
	for k, x := range o.found {
		if away(k) {
			found[k] = x
		}
	}
	o.mu.Unlock()
	since := o.note(ctx, v, found, away)
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, x := range found {
		x.Since, x.Fault = cmp.Or(since[k], now.UnixMilli()), o.faults[k]
		if o.found[k] == nil {
			o.cfg.Logger.Warn("a provider has a machine that belongs to no node", "provider", x.Provider, "machine", x.ID,
				"cluster", x.Cluster, "node", x.Node, "why", string(x.Why))
		}
		if x.DeleteAt = 0; o.cfg.Delete && x.Why != model.OrphanUnknown {
			x.DeleteAt = x.Since + o.cfg.Grace.Milliseconds()
		}
		r.Orphans = append(r.Orphans, x.Orphan)
	}
	maps.DeleteFunc(o.faults, func(k orphanKey, _ string) bool { return found[k] == nil })
	slices.SortFunc(r.Orphans, func(a, b model.Orphan) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	o.found, o.last = found, r
	return r
}

// note records the search in the state, and returns when each orphan was found first. away reports
// whether a machine that was not found still counts.
func (o *Orphans) note(ctx context.Context, v *state.View, found map[orphanKey]*orphan, away func(orphanKey) bool) map[orphanKey]int64 {
	n := &pb.NoteOrphans{}
	add := func(k orphanKey) {
		n.Found = append(n.Found, &pb.FoundOrphan{Tenant: k.tenant, ProviderType: k.providertype, Id: k.id})
	}
	for k := range found {
		add(k)
	}
	for _, f := range v.Orphans().Found {
		if k := (orphanKey{f.Tenant, f.ProviderType, f.ID}); away(k) {
			add(k) // an earlier leader found it
		}
	}
	slices.SortFunc(n.Found, func(a, b *pb.FoundOrphan) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ProviderType, b.ProviderType), cmp.Compare(a.Id, b.Id))
	})
	if _, err := o.cfg.Propose(ctx, &pb.Command{Change: &pb.Command_NoteOrphans{NoteOrphans: n}}); err != nil && ctx.Err() == nil {
		o.cfg.Logger.Warn("a search for orphans could not be recorded", "error", err)
	}
	since := map[orphanKey]int64{}
	for _, f := range o.cfg.Machine.View().Orphans().Found {
		since[orphanKey{f.Tenant, f.ProviderType, f.ID}] = f.Since
	}
	return since
}

// missing returns the nodes whose machines are in none of their provider's lists, if these
// lists are complete.
func missing(v *state.View, lists []listed) []model.MissingMachine {
	out := []model.MissingMachine{}
	there := keysOf(lists)
	heard := map[[2]string]*listed{} // by tenant and type: what was heard of all its providers
	for i := range lists {
		l := &lists[i]
		k := [2]string{l.tenant, l.provider.ProviderType}
		if h := heard[k]; h == nil {
			heard[k] = &listed{asked: maps.Clone(l.asked), whole: l.whole && l.err == nil, err: l.err}
		} else {
			h.whole, h.err = h.whole && l.whole && l.err == nil, errors.Join(h.err, l.err)
			maps.DeleteFunc(h.asked, func(m string, _ bool) bool { return !l.asked[m] })
		}
	}
	busy := map[string]bool{}
	for _, op := range v.ActiveOperations() {
		busy[op.Tenant+"/"+op.Cluster] = true
	}
	for _, cl := range v.Clusters("") {
		h := heard[[2]string{cl.Tenant, cl.Provider.ProviderType}]
		if h == nil || cl.Status == model.ClusterTerminated || busy[cl.Tenant+"/"+cl.ID] {
			continue
		}
		for _, n := range v.Nodes(cl.Tenant, cl.ID) {
			id, _ := n.Results["providerid"].(string)
			if id == "" || !n.Created || n.Broken || there[orphanKey{cl.Tenant, cl.Provider.ProviderType, id}] {
				continue
			}
			at, local := n.Results[model.ResultMachine].(string)
			if h.whole || local && h.err == nil && h.asked[at] {
				out = append(out, model.MissingMachine{Tenant: cl.Tenant, Provider: cl.Provider.Name, Cluster: cl.ID, Node: n.ID, ID: id})
			}
		}
	}
	return out
}

// Remove removes one of the orphans of the last search, by order of a user or of the policy. It
// first records the removal in the state, which refuses it if the machine belongs to a node by
// then, and returns the index of that entry.
func (o *Orphans) Remove(ctx context.Context, who model.Caller, id, reason string) (uint64, error) {
	o.mu.Lock()
	var key orphanKey
	var x *orphan
	for k, y := range o.found {
		if k.id == id && k.tenant == who.Tenant {
			key, x = k, y
		}
	}
	o.mu.Unlock()
	if x == nil {
		return 0, fmt.Errorf("machine %s: %w", id, ErrNoOrphan)
	}
	answers, err := o.cfg.Propose(ctx, &pb.Command{Tenant: who.Tenant, Actor: who.Actor, Source: who.From, Agent: who.Agent,
		Change: &pb.Command_DropResource{DropResource: &pb.DropResource{
			Provider: x.Provider, Id: x.ID, Cluster: x.Cluster, Node: x.Node, Reason: reason,
		}}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return 0, err
	}
	fence := answers[0].Index
	err = masked(x.hide, o.cfg.Finder.Remove(ctx, x.provider, who.Tenant,
		&pb.Resource{Cluster: x.Cluster, Node: x.Node, Fence: fence, Id: x.ID}))
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.faults[key] = err.Error()
		return 0, fmt.Errorf("machine %s: %w: %w", id, ErrNotRemoved, err)
	}
	o.cfg.Logger.Info("removed a machine that belonged to no node", "provider", x.Provider, "machine", x.ID,
		"cluster", x.Cluster, "node", x.Node, "reason", reason)
	delete(o.found, key)
	delete(o.faults, key)
	o.last.Orphans = slices.DeleteFunc(slices.Clone(o.last.Orphans), func(y model.Orphan) bool { return y.ID == x.ID && y.Tenant == x.Tenant })
	return fence, nil
}
