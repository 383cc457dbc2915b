package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/logformat"
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

// Applied is the outcome of applying a document.
type Applied struct {
	Preview site.ChangePreview
	Answer  state.Answer
	// Unchanged reports whether the document is in force already, so that nothing was done.
	Unchanged bool
}

// draft is a document, compiled against the generation that is in force.
type draft struct {
	doc     *site.Document
	version uint64
	old     *object.Site // nil: none
	next    *object.Site
	plan    *compile.Plan
	gen     site.Generation
	same    bool
}

// prepare compiles a document. The error is model.Faults if the document is at fault.
func (c *Controller) prepare(tenant string, doc *site.Document) (*draft, error) {
	v := c.cfg.Machine.View()
	d := &draft{doc: doc}
	opt := compile.Options{}
	r, ok := v.Site(tenant, doc.Name)
	if ok {
		d.version = r.Version
		if r.Next != 0 {
			return nil, problem.New(problem.Conflict, "generation %d of site %s is on its way: wait until it is in force; `coopr change status "+
				"%s` shows what it waits for", r.Next, doc.Name, doc.Name)
		}
		c.mu.Lock()
		g, err := c.known(state.SiteKey{Tenant: tenant, Name: doc.Name}, r).generation(v, r, r.Generation)
		c.mu.Unlock()
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

// unoffered returns a fault for each automator type that no agent of this mesh has ever
// offered.
func unoffered(v *state.View, doc *site.Document) (faults model.Faults) {
	var known map[string]bool // built on first use
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

// preview returns what applying a draft would do.
func (c *Controller) preview(tenant string, d *draft) site.ChangePreview {
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
	r := sim.Rehearse(d.old, d.next, c.states(tenant, d.doc.Name))
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

// states returns a function that returns the known state of an object of a site.
func (c *Controller) states(tenant, name string) func(object.ID) (object.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[object.ID]object.State{}
	if s := c.sites[state.SiteKey{Tenant: tenant, Name: name}]; s != nil {
		for id, o := range s.reports {
			known[id] = object.State(o.State)
		}
	}
	return func(id object.ID) (object.State, bool) { st, ok := known[id]; return st, ok }
}

// Preview returns what applying a document would do. It can be repeated with guesses of a secret, so that only administrators learn
// that a value is the one that is encrypted.
func (c *Controller) Preview(who model.Caller, doc *site.Document) (site.ChangePreview, error) {
	v := c.cfg.Machine.View()
	doc, err := c.secrets.given(v, who, doc)
	if err != nil {
		return site.ChangePreview{}, err
	}
	literals := who.Role == model.RoleAdmin || who.Role == model.RoleSuperadmin
	d, err := c.prepare(who.Tenant, c.secrets.kept(v, who.Tenant, doc, literals))
	if err != nil {
		return site.ChangePreview{}, err
	}
	return c.preview(who.Tenant, d), nil
}

// Apply begins a generation with a document. Its secrets are encrypted.
func (c *Controller) Apply(ctx context.Context, who model.Caller, doc *site.Document) (Applied, error) {
	doc, err := c.secrets.given(c.cfg.Machine.View(), who, doc)
	if err != nil {
		return Applied{}, err
	}
	return c.apply(ctx, who, doc, 0, false)
}

// Delete drives all objects of a site to their preRemove states and then forgets it.
func (c *Controller) Delete(ctx context.Context, who model.Caller, name string) (Applied, error) {
	if _, ok := c.cfg.Machine.View().Site(who.Tenant, name); !ok {
		return Applied{}, noSite(name)
	}
	return c.apply(ctx, who, &site.Document{Name: name}, 0, true)
}

// Revert begins a generation with the content of an earlier one (rule 6); 0 means the one
// before the generation in force.
func (c *Controller) Revert(ctx context.Context, who model.Caller, name string, to uint64) (Applied, error) {
	doc, to, err := Earlier(c.cfg.Machine.View(), who.Tenant, name, to)
	if err != nil {
		return Applied{}, err
	}
	return c.apply(ctx, who, doc, to, false)
}

// Earlier returns the document that Revert applies, and the number of its generation.
func Earlier(v *state.View, tenant, name string, to uint64) (*site.Document, uint64, error) {
	r, ok := v.Site(tenant, name)
	if !ok {
		return nil, 0, noSite(name)
	}
	if to == 0 && r.Generation > 1 {
		to = r.Generation - 1
	}
	g, ok := v.Generation(tenant, name, to)
	if !ok {
		return nil, 0, problem.New(problem.NotFound,
			"site %s has no generation %d to go back to: `coopr change history %s` shows those that are kept", name, to, name)
	}
	doc := &site.Document{}
	return doc, to, json.Unmarshal(g.Document, doc)
}

func noSite(name string) error {
	return problem.New(problem.NotFound, "there is no site %q: `coopr change list` shows those there are", name)
}

// again is how often an apply is tried again because a host was assigned meanwhile.
const again = 20

func (c *Controller) apply(ctx context.Context, who model.Caller, doc *site.Document, reverts uint64, deleting bool) (Applied, error) {
	for try := 0; ; try++ {
		v := c.cfg.Machine.View()
		doc = c.secrets.kept(v, who.Tenant, doc, true)
		d, err := c.prepare(who.Tenant, doc)
		// The mesh itself leaves an object in the clear that has not changed: with its references it would be restarted.
		if err == nil && c.secrets.clear(v, who.Tenant, doc) && (!d.same || who.Actor != model.Self) {
			if doc, err = c.secrets.seal(ctx, who.Tenant, doc); err == nil {
				d, err = c.prepare(who.Tenant, doc)
			}
		}
		if err != nil {
			return Applied{}, err
		}
		out := Applied{Preview: c.preview(who.Tenant, d)}
		if d.same && !deleting {
			out.Unchanged, out.Preview.Generation = true, d.old.Generation
			return out, nil
		}
		d.gen.Reverts = reverts
		next := &pb.NextGeneration{Version: d.version, Deleting: deleting}
		if next.Generation, err = logformat.EncodeGeneration(&d.gen); err != nil {
			return out, err
		}
		for _, s := range compile.Switches(d.plan, d.next) {
			m, err := logformat.EncodeSwitch(&s)
			if err != nil {
				return out, err
			}
			next.Switches = append(next.Switches, m)
		}
		cmd := command(state.SiteKey{Tenant: who.Tenant, Name: doc.Name}, &pb.ChangeSite{Site: doc.Name, Change: &pb.ChangeSite_Next{Next: next}})
		cmd.KeepAnswer = true
		answers, err := c.cfg.Propose(ctx, logformat.By(who, cmd))
		if err != nil {
			return out, err
		}
		if out.Answer = answers[0]; errors.Is(out.Answer.Err, problem.Stale) && try < again {
			continue // a host was assigned; the content is the same
		}
		return out, out.Answer.Err
	}
}

// Release records an operator's statement that an object holds nothing (rule 20).
func (c *Controller) Release(ctx context.Context, who model.Caller, name, object, reason string) (state.Answer, error) {
	_, s, r, err := c.read(who.Tenant, name)
	if err != nil {
		return state.Answer{}, err
	}
	def, ok := s.find(r, object)
	if !ok {
		return state.Answer{}, noObject(name, object)
	}
	cmd := command(state.SiteKey{Tenant: who.Tenant, Name: name}, &pb.ChangeSite{
		Site: name, Change: &pb.ChangeSite_Release{Release: &pb.ReleaseObject{Id: uint32(def.ID), Name: object, Reason: reason}},
	})
	cmd.KeepAnswer = true
	answers, err := c.cfg.Propose(ctx, logformat.By(who, cmd))
	if err != nil {
		return state.Answer{}, err
	}
	return answers[0], answers[0].Err
}

func noObject(name, object string) error {
	return problem.New(problem.NotFound, "site %s has no object %q: `coopr change status %s` shows those it has", name, object, name)
}
