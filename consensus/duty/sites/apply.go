package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/builtin"
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/sim"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
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
	old     *object.Site // nil: none
	next    *object.Site
	plan    *compile.Plan
	gen     site.Generation
	same    bool
}

// prepare compiles a document. The error is model.Faults where the document is
// at fault.
func (k *Keeper) prepare(tenant string, doc *site.Document) (*draft, error) {
	v := k.cfg.Machine.View()
	d := &draft{doc: doc}
	opt := compile.Options{}
	r, ok := v.Site(tenant, doc.Name)
	if ok {
		d.version = r.Version
		if r.Next != 0 {
			return nil, problem.New(problem.Conflict, "generation %d of site %s is on its way: wait until it is in force; `coopr change status %s` shows what it waits for", r.Next, doc.Name, doc.Name)
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
	faults := append(builtin.Check(doc), unoffered(v, doc)...)
	if d.next, err = compile.Site(doc, opt); err != nil {
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
	d.plan = compile.NewPlan(d.old, d.next)
	d.gen = site.Generation{Tenant: tenant, Site: doc.Name, Number: number, IDs: compile.Numbers(doc, d.next)}
	d.gen.Document, err = json.Marshal(doc)
	return d, err
}

// unoffered gives the types of automators that no agent of this mesh has ever offered.
func unoffered(v *state.View, doc *site.Document) (faults model.Faults) {
	var known map[string]bool // made where it is needed
	for i := range doc.Objects {
		name, ok := builtin.Automator(doc.Objects[i].Type)
		if !ok {
			continue
		}
		if known == nil {
			known = map[string]bool{}
			for _, t := range v.PluginTypes() {
				known[t.Name] = known[t.Name] || t.Class == "automator"
			}
		}
		if !known[name] {
			faults.Add(fmt.Sprintf("objects[%d].type", i), fmt.Sprintf("no agent offers the automator %q", name))
		}
	}
	return faults
}

// preview tells what a draft would do.
func (k *Keeper) preview(tenant string, d *draft) site.ChangePreview {
	p := site.ChangePreview{Site: d.doc.Name, Generation: d.next.Generation, Same: len(d.plan.Same), Rounds: [][]site.TransitionStep{}}
	name := func(s *object.Site, ids []object.ID) []string {
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
	def := func(id object.ID) *object.Def {
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
func (k *Keeper) states(tenant, name string) func(object.ID) (object.State, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := map[object.ID]object.State{}
	if s := k.sites[state.SiteKey{Tenant: tenant, Name: name}]; s != nil {
		for id, o := range s.reports {
			known[id] = object.State(o.State)
		}
	}
	return func(id object.ID) (object.State, bool) { st, ok := known[id]; return st, ok }
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
		return Applied{}, problem.New(problem.NotFound, "site %s has no generation %d to go back to: `coopr change history %s` shows those that are kept", name, to, name)
	}
	doc := &site.Document{}
	if err := json.Unmarshal(g.Document, doc); err != nil {
		return Applied{}, err
	}
	return k.apply(ctx, who, doc, to, false)
}

func noSite(name string) error {
	return problem.New(problem.NotFound, "there is no site %q: `coopr change list` shows those there are", name)
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
		switches, err2 := json.Marshal(compile.Switches(d.plan, d.next))
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
		if out.Answer = answers[0]; errors.Is(out.Answer.Err, problem.Stale) && try < again {
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
	return problem.New(problem.NotFound, "site %s has no object %q: `coopr change status %s` shows those it has", name, object, name)
}
