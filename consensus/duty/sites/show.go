package sites

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// snapshot is a copy of the controller's data of a site, to be read without the lock.
type snapshot struct {
	now, next *object.Site // next, or now, may be nil
	reports   map[object.ID]*pb.ObjectReport
	probed    map[object.ID]*pb.Probed
	alive     map[string]bool   // agents whose runtimes have joined
	names     map[string]string // of agents
	turned    map[string]bool
	converged bool
}

// read takes a snapshot.
func (c *Controller) read(tenant, name string) (*state.View, *snapshot, *site.Record, error) {
	v := c.cfg.Machine.View()
	r, ok := v.Site(tenant, name)
	if !ok {
		return v, nil, nil, noSite(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.known(state.SiteKey{Tenant: tenant, Name: name}, r)
	out := &snapshot{
		reports: map[object.ID]*pb.ObjectReport{},
		probed:  map[object.ID]*pb.Probed{},
		alive:   map[string]bool{},
		names:   map[string]string{},
		turned:  r.Turned(),
	}
	for _, n := range []struct {
		number uint64
		into   **object.Site
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
	for id, l := range s.probed {
		out.probed[id] = l
	}
	out.converged = s.converged == r.Version
	for _, h := range c.sessions {
		out.alive[h.Agent] = true
	}
	for _, a := range v.Agents() {
		out.names[a.ID] = a.Name
	}
	return v, out, r, nil
}

// def returns the definition that an object has now: that of the next generation on
// hosts that have switched to it.
func (s *snapshot) def(r *site.Record, id object.ID) *object.Def {
	at := func(x *object.Site) *object.Def {
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

// follows returns the generation that a host should follow. Reports under another
// generation are out of date.
func (s *snapshot) follows(r *site.Record, host string) uint64 {
	if r.Generation == 0 || s.turned[host] {
		return r.Next
	}
	return r.Generation
}

// inPlace reports whether an object is at rest in the generation that its host should follow.
func (s *snapshot) inPlace(r *site.Record, d *object.Def, o *pb.ObjectReport) bool {
	return o.AtRest && o.Generation == s.follows(r, d.Host)
}

func (s *snapshot) find(r *site.Record, name string) (*object.Def, bool) {
	for i := range r.Lives {
		if d := s.def(r, object.ID(i)); d != nil && d.Name == name {
			return d, true
		}
	}
	return nil, false
}

// report returns the last report of an object's runtime, or nil.
func (s *snapshot) report(r *site.Record, id object.ID) *pb.ObjectReport {
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

// status returns the status of an object as the object itself keeps it.
func (s *snapshot) status(r *site.Record, id object.ID) (object.Status, bool) {
	o, d := s.report(r, id), s.def(r, id)
	if o == nil || d == nil || max(int(o.State), int(o.Target), int(o.To)) >= len(d.Type.States) {
		return object.Status{}, false
	}
	waits := func(list []*pb.ObjectWait) (out []object.Wait) {
		for _, w := range list {
			if s.def(r, object.ID(w.Peer)) != nil {
				out = append(out, object.Wait{Why: object.Why(w.Why), Peer: object.ID(w.Peer), State: object.State(w.State)})
			}
		}
		return out
	}
	return object.Status{
		ID:          id,
		Def:         d,
		State:       object.State(o.State),
		Target:      object.State(o.Target),
		Phase:       object.Phase(o.Phase),
		To:          object.State(o.To),
		Incarnation: o.Inc,
		Failures:    int(o.Failures),
		Drifts:      int(o.Drifts),
		Stuck:       o.Stuck,
		Oscillating: o.Oscillating,
		Removing:    o.Removing,
		Until:       o.Until,
		Waits:       waits(o.Waits),
		Asked:       waits(o.Asked),
	}, true
}

// Status returns the status of a site's objects as their runtimes report it. If after is
// not 0, it waits for another revision than after until ctx ends.
func (c *Controller) Status(ctx context.Context, tenant, name string, after uint64) (site.SiteStatus, error) {
	for after != 0 {
		c.mu.Lock()
		now, changed, over := c.revision, c.changed, c.over
		c.mu.Unlock()
		if over {
			return site.SiteStatus{}, ErrOver
		}
		if now == after {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
			}
		}
		break
	}
	c.mu.Lock()
	revision := c.revision
	c.mu.Unlock()
	_, s, r, err := c.read(tenant, name)
	if err != nil {
		return site.SiteStatus{}, err
	}
	out := site.SiteStatus{
		Overview: site.Overview{Name: name, Generation: r.Generation, Next: r.Next, Hosts: len(r.Hosts)},
		Revision: revision,
		Items:    []site.ObjectStatus{},
	}
	for _, sw := range r.Switches {
		if !sw.Done {
			out.Switching = append(out.Switching, sw.Hosts...)
		}
	}
	slices.Sort(out.Switching)
	for i, l := range r.Lives {
		d := s.def(r, object.ID(i))
		if l.Host < 0 || d == nil {
			continue
		}
		it := site.ObjectStatus{
			Name:        d.Name,
			Host:        d.Host,
			Type:        d.Type.Name,
			Preferred:   d.Type.States[d.Preferred],
			State:       d.Type.States[object.Unknown],
			Target:      d.Type.States[d.Preferred],
			Phase:       "unheard",
			Agent:       s.names[r.Hosts[l.Host].Agent],
			Incarnation: l.Inc,
		}
		if st, ok := s.status(r, object.ID(i)); ok {
			o := s.reports[object.ID(i)]
			it.State, it.Target, it.Phase = d.Type.States[st.State], d.Type.States[st.Target], st.Phase.String()
			if st.Phase == object.Moving {
				it.To = d.Type.States[st.To]
			}
			it.Converged, it.Removing, it.Stuck, it.Oscillating = s.inPlace(r, d, o), st.Removing, st.Stuck, st.Oscillating
			it.Failures, it.Drifts, it.Until, it.Message, it.Generation = st.Failures, st.Drifts, o.Until, o.Message, o.Generation
			for _, w := range st.Waits {
				it.Waits = append(it.Waits, site.WaitText(w, d, s.def(r, w.Peer)))
			}
		}
		out.Objects++
		if it.Converged {
			out.ConvergedObjects++
		}
		out.Items = append(out.Items, it)
	}
	slices.SortFunc(out.Items, func(a, b site.ObjectStatus) int { return strings.Compare(a.Name, b.Name) })
	out.Converged = s.converged && out.ConvergedObjects == out.Objects
	return out, nil
}

// List returns an overview of all sites of a tenant.
func (c *Controller) List(_ context.Context, tenant string) ([]site.Overview, error) {
	v := c.cfg.Machine.View()
	out := []site.Overview{}
	for _, r := range v.Sites(tenant) {
		_, s, r, err := c.read(tenant, r.Name)
		if errors.Is(err, problem.NotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, err
		}
		n := site.Overview{Name: r.Name, Generation: r.Generation, Next: r.Next, Hosts: len(r.Hosts)}
		for i, l := range r.Lives {
			d := s.def(r, object.ID(i))
			if l.Host < 0 || d == nil {
				continue
			}
			n.Objects++
			if o := s.report(r, d.ID); o != nil && s.inPlace(r, d, o) {
				n.ConvergedObjects++
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// Explain returns the chain of what an object waits for, down to its root. It is empty for an
// object at rest.
func (c *Controller) Explain(tenant, name, objectName string) ([]site.Reason, error) {
	_, s, r, err := c.read(tenant, name)
	if err != nil {
		return nil, err
	}
	def, ok := s.find(r, objectName)
	if !ok {
		return nil, noObject(name, objectName)
	}
	out := []site.Reason{}
	defOf := func(id object.ID) *object.Def { return s.def(r, id) }
	statusOf := func(id object.ID) (object.Status, bool) { return s.status(r, id) }
	for _, l := range object.Explain(def.ID, defOf, statusOf) {
		out = append(out, site.Reason{Object: l.Name, Text: l.Text})
	}
	return out, nil
}

// Graph returns the graph of a site, with the known status of its objects.
func (c *Controller) Graph(tenant, name string) (*site.Graph, error) {
	_, s, r, err := c.read(tenant, name)
	if err != nil {
		return nil, err
	}
	of := s.now
	if of == nil {
		of = s.next
	}
	return site.NewGraph(of, func(id object.ID) (object.Status, bool) { return s.status(r, id) }), nil
}

// Probe checks all objects of a site without changing anything, and waits for the
// findings until ctx ends. An object whose runtime did not answer is found "unknown".
func (c *Controller) Probe(ctx context.Context, tenant, name string) ([]site.Finding, error) {
	_, s, r, err := c.read(tenant, name)
	if err != nil {
		return nil, err
	}
	at := state.SiteKey{Tenant: tenant, Name: name}
	c.mu.Lock()
	known := c.known(at, r)

	known.probe, known.probed = c.number(), map[object.ID]*pb.Probed{}
	c.mu.Unlock()
	c.queue.Add(key{site: at})
	want := 0
	for i := range r.Lives {
		if s.report(r, object.ID(i)) != nil {
			want++
		}
	}
	for {
		c.mu.Lock()
		changed, n, over := c.changed, len(known.probed), c.over
		c.mu.Unlock()
		if over {
			return nil, ErrOver
		}
		if n >= want {
			break
		}
		select {
		case <-ctx.Done():
		case <-changed:
			continue
		}
		break
	}
	if _, s, r, err = c.read(tenant, name); err != nil {
		return nil, err
	}
	out := []site.Finding{}
	for i, l := range r.Lives {
		d := s.def(r, object.ID(i))
		if l.Host < 0 || d == nil {
			continue
		}
		f := site.Finding{Object: d.Name, Host: d.Host, Known: "unknown", Found: "unknown"}
		if st, ok := s.status(r, object.ID(i)); ok {
			f.Known = d.Type.States[st.State]
		}
		if x := s.probed[object.ID(i)]; x != nil && int(x.State) < len(d.Type.States) {
			f.Found, f.Message = d.Type.States[x.State], x.Message
			f.Drifted = f.Found != f.Known
		} else {
			f.Message = "no agent answered for it"
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b site.Finding) int { return strings.Compare(a.Object, b.Object) })
	return out, nil
}

// History returns the generations of a site that are kept, the newest first.
func (c *Controller) History(tenant, name string) ([]site.PastGeneration, error) {
	v := c.cfg.Machine.View()
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

// Document returns the document of a generation; 0 means the newest.
func (c *Controller) Document(tenant, name string, number uint64) (*site.Document, error) {
	v := c.cfg.Machine.View()
	r, ok := v.Site(tenant, name)
	if !ok {
		return nil, noSite(name)
	}
	if number == 0 {
		number = r.Last
	}
	g, ok := v.Generation(tenant, name, number)
	if !ok {
		return nil, problem.New(problem.NotFound, "site %s has no generation %d that is kept", name, number)
	}
	d := &site.Document{}
	return d, json.Unmarshal(g.Document, d)
}
