package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change"
	"github.com/coopr/coopr/engine/change/kind"
	"github.com/coopr/coopr/engine/change/sim"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Applied says what became of a document.
type Applied struct {
	Preview site.ChangePreview
	Answer  state.Answer
	// Unchanged says that it is in force already, so that nothing was done.
	Unchanged bool
}

// draft is a document that was compiled against what is in force.
type draft struct {
	doc     *site.Document
	version uint64
	old     *change.Site // nil: none
	next    *change.Site
	plan    *site.Plan
	gen     site.Generation
	same    bool
}

// prepare compiles a document. The error is model.Faults where the document is
// at fault.
func (k *Keeper) prepare(tenant string, doc *site.Document) (*draft, error) {
	v := k.cfg.Machine.View()
	d := &draft{doc: doc}
	opt := site.Options{}
	r, ok := v.Site(tenant, doc.Name)
	if ok {
		d.version = r.Version
		if r.Next != 0 {
			return nil, fmt.Errorf("%w: generation %d of site %s is on its way: wait until it is in force; `coopr change status %s` shows what it waits for", state.ErrConflict, r.Next, doc.Name, doc.Name)
		}
		k.mu.Lock()
		g, err := k.known(state.SiteKey{Tenant: tenant, Name: doc.Name}, r).generation(v, r, r.Generation)
		k.mu.Unlock()
		if err != nil {
			return nil, err
		}
		d.old, opt.Last = g.site, g.site
		was, err1 := json.Marshal(g.doc)
		now, err2 := json.Marshal(doc)
		d.same = err1 == nil && err2 == nil && string(was) == string(now)
	}
	var err error
	faults := kind.Check(doc)
	if d.next, err = site.Compile(doc, opt); err != nil {
		var more model.Faults
		if !errors.As(err, &more) {
			return nil, err
		}
		faults = append(faults, more...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	number := uint64(1)
	if ok {
		number = r.Last + 1
	}
	d.next.Generation = number
	d.plan = site.NewPlan(d.old, d.next)
	d.gen = site.Generation{Tenant: tenant, Site: doc.Name, Number: number, IDs: site.Numbers(doc, d.next)}
	d.gen.Document, err = json.Marshal(doc)
	return d, err
}

// preview tells what a draft would do.
func (k *Keeper) preview(tenant string, d *draft) site.ChangePreview {
	p := site.ChangePreview{Site: d.doc.Name, Generation: d.next.Generation, Same: len(d.plan.Same), Rounds: [][]site.TransitionStep{}}
	name := func(s *change.Site, ids []change.ID) []string {
		out := make([]string, len(ids))
		for i, id := range ids {
			out[i] = s.Defs[id].Name
		}
		return out
	}
	p.Added, p.Changed, p.Rewired = name(d.next, d.plan.Added), name(d.next, d.plan.Changed), name(d.next, d.plan.Rewired)
	p.Removed = []string{}
	if d.old != nil {
		p.Base = d.old.Generation
		p.Removed = name(d.old, d.plan.Removed)
	}
	for _, g := range d.plan.Groups {
		p.Hosts = append(p.Hosts, g.Hosts)
	}
	r := sim.Rehearse(d.old, d.next, k.states(tenant, d.doc.Name))
	def := func(id change.ID) *change.Def {
		if int(id) < len(d.next.Defs) && d.next.Defs[id].Name != "" {
			return &d.next.Defs[id]
		}
		return &d.old.Defs[id]
	}
	for _, round := range r.Rounds {
		var steps []site.TransitionStep
		for _, s := range round {
			o := def(s.ID)
			steps = append(steps, site.TransitionStep{Object: o.Name, Host: o.Host, From: o.Type.States[s.Transition.From],
				To: o.Type.States[s.Transition.To], Action: o.Type.Actions[s.Transition.Action]})
		}
		p.Rounds = append(p.Rounds, steps)
	}
	p.Stuck, p.Trouble = name(d.next, r.Stuck), r.Trouble
	return p
}

// states gives what is known of a site's objects.
func (k *Keeper) states(tenant, name string) func(change.ID) (change.State, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := map[change.ID]change.State{}
	if s := k.sites[state.SiteKey{Tenant: tenant, Name: name}]; s != nil {
		for id, o := range s.reports {
			known[id] = change.State(o.State)
		}
	}
	return func(id change.ID) (change.State, bool) { st, ok := known[id]; return st, ok }
}

// Preview says what applying a document would do.
func (k *Keeper) Preview(tenant string, doc *site.Document) (site.ChangePreview, error) {
	d, err := k.prepare(tenant, doc)
	if err != nil {
		return site.ChangePreview{}, err
	}
	return k.preview(tenant, d), nil
}

// Apply puts a document on its way. Reverts is the generation that it was taken
// from, 0 for none.
func (k *Keeper) Apply(ctx context.Context, who model.Caller, doc *site.Document, reverts uint64) (Applied, error) {
	return k.apply(ctx, who, doc, reverts, false)
}

// Delete drives all objects of a site to their preRemove states and then forgets it.
func (k *Keeper) Delete(ctx context.Context, who model.Caller, name string) (Applied, error) {
	if _, ok := k.cfg.Machine.View().Site(who.Tenant, name); !ok {
		return Applied{}, noSite(name)
	}
	return k.apply(ctx, who, &site.Document{Name: name}, 0, true)
}

// Revert puts the content of an earlier generation on its way again (rule 6); 0
// means the one before that in force.
func (k *Keeper) Revert(ctx context.Context, who model.Caller, name string, to uint64) (Applied, error) {
	v := k.cfg.Machine.View()
	r, ok := v.Site(who.Tenant, name)
	if !ok {
		return Applied{}, noSite(name)
	}
	if to == 0 && r.Generation > 1 {
		to = r.Generation - 1
	}
	g, ok := v.Generation(who.Tenant, name, to)
	if !ok {
		return Applied{}, fmt.Errorf("%w: site %s has no generation %d to go back to: `coopr change history %s` shows those that are kept", state.ErrNotFound, name, to, name)
	}
	doc := &site.Document{}
	if err := json.Unmarshal(g.Document, doc); err != nil {
		return Applied{}, err
	}
	return k.apply(ctx, who, doc, to, false)
}

func noSite(name string) error {
	return fmt.Errorf("%w: there is no site %q: `coopr change list` shows those there are", state.ErrNotFound, name)
}

// again is how often an apply is tried when a home has changed meanwhile.
const again = 20

func (k *Keeper) apply(ctx context.Context, who model.Caller, doc *site.Document, reverts uint64, deleting bool) (Applied, error) {
	for try := 0; ; try++ {
		d, err := k.prepare(who.Tenant, doc)
		if err != nil {
			return Applied{}, err
		}
		out := Applied{Preview: k.preview(who.Tenant, d)}
		if d.same && !deleting {
			out.Unchanged, out.Preview.Generation = true, d.old.Generation
			return out, nil
		}
		d.gen.Reverts = reverts
		gen, err1 := json.Marshal(d.gen)
		switches, err2 := json.Marshal(site.Switches(d.plan, d.next))
		if err := errors.Join(err1, err2); err != nil {
			return out, err
		}
		c := command(state.SiteKey{Tenant: who.Tenant, Name: doc.Name}, &pb.ChangeSite{Site: doc.Name, Next: &pb.NextGeneration{
			Generation: gen, Switches: switches, Version: d.version, Deleting: deleting,
		}})
		c.Actor, c.RequestId = who.Actor, who.Request
		answers, err := k.cfg.Propose(ctx, c)
		if err != nil {
			return out, err
		}
		if out.Answer = answers[0]; errors.Is(out.Answer.Err, state.ErrStale) && try < again {
			continue // a home has changed; the content has not
		}
		return out, out.Answer.Err
	}
}

// Release takes an operator's word that an object holds nothing (rule 20).
func (k *Keeper) Release(ctx context.Context, who model.Caller, name, object, reason string) (state.Answer, error) {
	_, s, r, err := k.read(who.Tenant, name)
	if err != nil {
		return state.Answer{}, err
	}
	def, ok := s.find(r, object)
	if !ok {
		return state.Answer{}, noObject(name, object)
	}
	c := command(state.SiteKey{Tenant: who.Tenant, Name: name}, &pb.ChangeSite{Site: name, Release: &pb.ReleaseObject{Id: uint32(def.ID), Name: object, Reason: reason}})
	c.Actor, c.RequestId = who.Actor, who.Request
	answers, err := k.cfg.Propose(ctx, c)
	if err != nil {
		return state.Answer{}, err
	}
	return answers[0], answers[0].Err
}

func noObject(name, object string) error {
	return fmt.Errorf("%w: site %s has no object %q: `coopr change status %s` shows those it has", state.ErrNotFound, name, object, name)
}

// snapshot is a site at one moment, to be read without the lock.
type snapshot struct {
	now, next *change.Site // next, or now, may be nil
	reports   map[change.ID]*pb.ObjectReport
	looked    map[change.ID]*pb.Looked
	alive     map[string]bool   // agents that are here
	names     map[string]string // of agents
	turned    map[string]bool
}

// read takes a snapshot.
func (k *Keeper) read(tenant, name string) (*state.View, *snapshot, *site.Record, error) {
	v := k.cfg.Machine.View()
	r, ok := v.Site(tenant, name)
	if !ok {
		return v, nil, nil, noSite(name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.known(state.SiteKey{Tenant: tenant, Name: name}, r)
	out := &snapshot{reports: map[change.ID]*pb.ObjectReport{}, looked: map[change.ID]*pb.Looked{}, alive: map[string]bool{}, names: map[string]string{}, turned: r.Turned()}
	for _, n := range []struct {
		number uint64
		into   **change.Site
	}{{r.Generation, &out.now}, {r.Next, &out.next}} {
		if n.number == 0 {
			continue
		}
		g, err := s.generation(v, r, n.number)
		if err != nil {
			return v, nil, nil, err
		}
		*n.into = g.site
	}
	for id, o := range s.reports {
		out.reports[id] = o
	}
	for id, l := range s.looked {
		out.looked[id] = l
	}
	for _, h := range k.homes {
		out.alive[h.Agent] = true
	}
	for _, a := range v.Agents() {
		out.names[a.ID] = a.Name
	}
	return v, out, r, nil
}

// def gives the definition that an object has now: the next one's on hosts that
// have switched.
func (s *snapshot) def(r *site.Record, id change.ID) *change.Def {
	at := func(x *change.Site) *change.Def {
		if x != nil && int(id) < len(x.Defs) && x.Defs[id].Name != "" {
			return &x.Defs[id]
		}
		return nil
	}
	if d := at(s.next); d != nil && s.turned[d.Host] {
		return d
	}
	if d := at(s.now); d != nil {
		return d
	}
	return at(s.next)
}

// follows gives the generation that a host should follow: what was reported
// under another one is news of yesterday.
func (s *snapshot) follows(r *site.Record, host string) uint64 {
	if r.Generation == 0 || s.turned[host] {
		return r.Next
	}
	return r.Generation
}

func (s *snapshot) find(r *site.Record, name string) (*change.Def, bool) {
	for i := range r.Lives {
		if d := s.def(r, change.ID(i)); d != nil && d.Name == name {
			return d, true
		}
	}
	return nil, false
}

// report gives what the home of an object says, nil where nobody does.
func (s *snapshot) report(r *site.Record, id change.ID) *pb.ObjectReport {
	if int(id) >= len(r.Lives) {
		return nil
	}
	l := r.Lives[id]
	o := s.reports[id]
	if l.Host < 0 || o == nil || o.Inc != l.Inc || !s.alive[r.Hosts[l.Host].Agent] {
		return nil
	}
	return o
}

// status gives an object's status in the core's own words.
func (s *snapshot) status(r *site.Record, id change.ID) (change.Status, bool) {
	o, d := s.report(r, id), s.def(r, id)
	if o == nil || d == nil || max(int(o.State), int(o.Target), int(o.To)) >= len(d.Type.States) {
		return change.Status{}, false
	}
	waits := func(list []*pb.ObjectWait) (out []change.Wait) {
		for _, w := range list {
			if s.def(r, change.ID(w.Peer)) != nil {
				out = append(out, change.Wait{Why: change.Why(w.Why), Peer: change.ID(w.Peer), State: change.State(w.State)})
			}
		}
		return out
	}
	return change.Status{ID: id, Def: d, State: change.State(o.State), Target: change.State(o.Target), Phase: change.Phase(o.Phase), To: change.State(o.To),
		Incarnation: o.Inc, Failures: int(o.Failures), Drifts: int(o.Drifts), Stuck: o.Stuck, Oscillating: o.Oscillating, Removing: o.Removing, Until: o.Until,
		Waits: waits(o.Waits), Asked: waits(o.Asked)}, true
}

// Status tells how a site's objects are, as their homes report it. It waits for
// another revision than after, for as long as ctx allows.
func (k *Keeper) Status(ctx context.Context, tenant, name string, after uint64) (site.Standing, error) {
	for after != 0 {
		k.mu.Lock()
		now, heard := k.revision, k.heard
		k.mu.Unlock()
		if now == after {
			select {
			case <-heard:
				continue
			case <-ctx.Done():
			}
		}
		break
	}
	k.mu.Lock()
	revision := k.revision
	k.mu.Unlock()
	_, s, r, err := k.read(tenant, name)
	if err != nil {
		return site.Standing{}, err
	}
	out := site.Standing{Overview: site.Overview{Name: name, Generation: r.Generation, Next: r.Next, Hosts: len(r.Hosts)}, Revision: revision, Items: []site.ObjectStatus{}}
	for _, sw := range r.Switches {
		if !sw.Done {
			out.Switching = append(out.Switching, sw.Hosts...)
		}
	}
	slices.Sort(out.Switching)
	for i, l := range r.Lives {
		d := s.def(r, change.ID(i))
		if l.Host < 0 || d == nil {
			continue
		}
		it := site.ObjectStatus{Name: d.Name, Host: d.Host, Type: d.Type.Name, Preferred: d.Type.States[d.Preferred], State: d.Type.States[change.Unknown],
			Target: d.Type.States[d.Preferred], Phase: "unheard", Agent: s.names[r.Hosts[l.Host].Agent], Incarnation: l.Inc}
		if st, ok := s.status(r, change.ID(i)); ok {
			o := s.reports[change.ID(i)]
			it.State, it.Target, it.Phase = d.Type.States[st.State], d.Type.States[st.Target], st.Phase.String()
			if st.Phase == change.Moving {
				it.To = d.Type.States[st.To]
			}
			it.Settled, it.Removing, it.Stuck, it.Oscillating = o.Settled && o.Generation == s.follows(r, d.Host), st.Removing, st.Stuck, st.Oscillating
			it.Failures, it.Drifts, it.Until, it.Message, it.Generation = st.Failures, st.Drifts, o.Until, o.Message, o.Generation
			for _, w := range st.Waits {
				it.Waits = append(it.Waits, site.WaitText(w, d, s.def(r, w.Peer)))
			}
		}
		out.Objects++
		if it.Settled {
			out.Settled++
		}
		out.Items = append(out.Items, it)
	}
	slices.SortFunc(out.Items, func(a, b site.ObjectStatus) int { return compare(a.Name, b.Name) })
	return out, nil
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// List tells of all sites of a tenant.
func (k *Keeper) List(ctx context.Context, tenant string) ([]site.Overview, error) {
	v := k.cfg.Machine.View()
	out := []site.Overview{}
	for _, r := range v.Sites(tenant) {
		s, err := k.Status(ctx, tenant, r.Name, 0)
		if err != nil {
			return nil, err
		}
		out = append(out, s.Overview)
	}
	return out, nil
}

// Explain follows what an object waits for to the root; empty where it is settled.
func (k *Keeper) Explain(tenant, name, object string) ([]site.Reason, error) {
	_, s, r, err := k.read(tenant, name)
	if err != nil {
		return nil, err
	}
	def, ok := s.find(r, object)
	if !ok {
		return nil, noObject(name, object)
	}
	out := []site.Reason{}
	for _, l := range change.Explain(def.ID, func(id change.ID) *change.Def { return s.def(r, id) }, func(id change.ID) (change.Status, bool) { return s.status(r, id) }) {
		out = append(out, site.Reason{Object: l.Name, Text: l.Text})
	}
	return out, nil
}

// Graph draws a site, with what is known of its objects.
func (k *Keeper) Graph(tenant, name string) (*site.Graph, error) {
	_, s, r, err := k.read(tenant, name)
	if err != nil {
		return nil, err
	}
	of := s.now
	if of == nil {
		of = s.next
	}
	return site.NewGraph(of, func(id change.ID) (change.Status, bool) { return s.status(r, id) }), nil
}

// Look checks everything of a site, changing nothing, and waits for what homes
// found until ctx ends. Objects that nobody answered for are found "unknown".
func (k *Keeper) Look(ctx context.Context, tenant, name string) ([]site.Finding, error) {
	_, s, r, err := k.read(tenant, name)
	if err != nil {
		return nil, err
	}
	key := state.SiteKey{Tenant: tenant, Name: name}
	k.mu.Lock()
	known := k.known(key, r)
	k.looks++
	known.look, known.looked = k.looks, map[change.ID]*pb.Looked{}
	k.dirty[key] = true
	k.mu.Unlock()
	k.poke()
	want := 0
	for i := range r.Lives {
		if s.report(r, change.ID(i)) != nil {
			want++
		}
	}
	for {
		k.mu.Lock()
		heard, n := k.heard, len(known.looked)
		k.mu.Unlock()
		if n >= want {
			break
		}
		select {
		case <-ctx.Done():
		case <-heard:
			continue
		}
		break
	}
	if _, s, r, err = k.read(tenant, name); err != nil {
		return nil, err
	}
	out := []site.Finding{}
	for i, l := range r.Lives {
		d := s.def(r, change.ID(i))
		if l.Host < 0 || d == nil {
			continue
		}
		f := site.Finding{Object: d.Name, Host: d.Host, Known: "unknown", Found: "unknown"}
		if st, ok := s.status(r, change.ID(i)); ok {
			f.Known = d.Type.States[st.State]
		}
		if x := s.looked[change.ID(i)]; x != nil && int(x.State) < len(d.Type.States) {
			f.Found, f.Message = d.Type.States[x.State], x.Message
			f.Drifted = f.Found != f.Known
		} else {
			f.Message = "nobody answered for it"
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b site.Finding) int { return compare(a.Object, b.Object) })
	return out, nil
}

// History lists the generations of a site that are kept, the newest first.
func (k *Keeper) History(tenant, name string) ([]site.PastGeneration, error) {
	v := k.cfg.Machine.View()
	r, ok := v.Site(tenant, name)
	if !ok {
		return nil, noSite(name)
	}
	out := []site.PastGeneration{}
	for _, g := range v.Generations(tenant, name) {
		p := site.PastGeneration{Number: g.Number, Time: g.Time, Actor: g.Actor, Objects: len(g.IDs), Reverts: g.Reverts, State: "past"}
		switch g.Number {
		case r.Generation:
			p.State = "in force"
		case r.Next:
			p.State = "on its way"
		}
		out = append(out, p)
	}
	return out, nil
}

// Document gives the document of a generation; 0 means the newest.
func (k *Keeper) Document(tenant, name string, number uint64) (*site.Document, error) {
	v := k.cfg.Machine.View()
	r, ok := v.Site(tenant, name)
	if !ok {
		return nil, noSite(name)
	}
	if number == 0 {
		number = r.Last
	}
	g, ok := v.Generation(tenant, name, number)
	if !ok {
		return nil, fmt.Errorf("%w: site %s has no generation %d that is kept", state.ErrNotFound, name, number)
	}
	d := &site.Document{}
	return d, json.Unmarshal(g.Document, d)
}
