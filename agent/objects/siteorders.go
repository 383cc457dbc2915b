package objects

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/host"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

// orders takes the leader's orders for the site.
func (sr *siteRunner) orders(session string, o *site.Orders, now int64) {
	if o.EventsTaken > 0 {
		if o.Epoch == sr.epoch {
			sr.committed(o.EventsTaken)
		}
		return
	}
	if o.Gone || o.Epoch < sr.epoch {
		if o.Gone && o.Epoch >= sr.epoch {
			sr.clear()
		}
		return
	}
	if o.Epoch > sr.epoch {
		sr.clear()
		sr.epoch = o.Epoch
	}
	if session == sr.session && o.Version < sr.version {
		return
	}
	for i := range o.Parts {
		p, err := compiled(&o.Parts[i])
		if err != nil {
			sr.r.cfg.Logger.Error("a generation of a site cannot be compiled", "site", sr.key.name, "generation", o.Parts[i].Generation,
				"error", err)
			return
		}
		sr.parts[o.Parts[i].Generation] = p
	}
	newest := o.Generation
	if newest == 0 {
		newest = o.Next
	}
	if sr.parts[newest] == nil || o.Next != 0 && sr.parts[o.Next] == nil {
		// The parts were sent in an earlier session, and the leader sends them again; or it lacks the keys for them yet. What runs
		// here stays meanwhile, and begins nothing.
		if !slices.ContainsFunc(slices.Collect(maps.Keys(sr.follows)), func(h string) bool { return !slices.Contains(o.Mine, h) }) {
			sr.kept = session
		}
		return
	}
	if sr.host == nil {
		sr.host = host.New(host.Config{Self: sr.r.cfg.Self, Site: sr.parts[newest].site, Route: sr.route, Observe: sr.observe,
			// Orders name all objects that are removed.
			Absent: func(object.ID) bool { return false }})
	}
	anew := session != sr.session
	sr.session, sr.version, sr.agents, sr.nodes, sr.paused = session, o.Version, o.Agents, o.Nodes, o.Paused
	routes := sr.routes
	sr.routes, sr.lives = make(map[object.ID]life, len(o.Lives)), map[object.ID]site.Lived{}
	mine := map[string]bool{}
	for _, h := range o.Mine {
		mine[h] = true
	}
	for _, l := range o.Lives {
		sr.routes[l.ID] = life{o.Agents[l.Host], l.Inc}
		if mine[l.Host] {
			sr.lives[l.ID] = l
		}
	}
	sr.hold(mine, anew, now)
	sr.follow(o, mine, now)
	sr.adopt(now)
	for _, id := range o.Removing {
		if x := sr.host.Object(id); x != nil && !x.Status().Removing {
			sr.event(id, object.Event{What: object.Removing}, now)
		}
	}
	sr.free(o.Released, now)
	// Messages to agents that do not run these objects any more are lost.
	sr.host.Lost(func(id object.ID) bool { return anew || sr.routes[id] != routes[id] }, now)
	early := sr.early
	sr.early, sr.waiting = nil, 0
	for _, p := range early {
		sr.receive(p, now)
	}
	if anew {
		sr.taken, sr.unsent = o.TakesEvents, len(sr.events) // the leader before may not have committed what it was sent
		sr.host.Each(func(x *object.Object) { sr.dirty[x.Def().ID] = true })
	}
	if o.Call != 0 && (anew || o.Call != sr.call) {
		sr.call, sr.asked = o.Call, true
	}
	if o.Probe != sr.probe {
		if sr.probe = o.Probe; o.Probe != 0 {
			sr.host.Each(func(x *object.Object) {
				sr.held = append(sr.held, todo{act: object.Act{ID: x.Def().ID, What: object.Check}, inc: x.Incarnation(), probe: o.Probe})
			})
		}
	}
}

// hold notes since when hosts are assigned to this agent. Between two sessions a host may
// have been another agent's.
func (sr *siteRunner) hold(mine map[string]bool, anew bool, now int64) {
	maps.DeleteFunc(sr.since, func(h string, _ int64) bool { return anew || !mine[h] })
	for h := range mine {
		if _, ok := sr.since[h]; !ok {
			sr.since[h] = now
		}
	}
}

// follow switches our hosts to the generations that they should follow.
func (sr *siteRunner) follow(o *site.Orders, mine map[string]bool, now int64) {
	turned := map[string]bool{}
	for _, h := range o.Turned {
		turned[h] = true
	}
	switching := map[uint64]map[string]bool{}
	for h := range mine {
		want := o.Generation
		if turned[h] || want == 0 {
			want = o.Next
		}
		if is, ok := sr.follows[h]; ok && is != want {
			if switching[want] == nil {
				switching[want] = map[string]bool{}
			}
			switching[want][h] = true
		}
		sr.follows[h] = want
	}
	for h := range sr.follows {
		if !mine[h] {
			delete(sr.follows, h)
		}
	}
	for _, want := range slices.Sorted(maps.Keys(switching)) {
		sr.host.Switch(sr.parts[want].site, switching[want], now)
	}
	for n := range sr.parts {
		if n+1 < o.Generation { // the previous one may still be followed
			delete(sr.parts, n)
		}
	}
}

// adopt starts the objects of our hosts, and stops all others.
func (sr *siteRunner) adopt(now int64) {
	var gone []object.ID
	sr.host.Each(func(x *object.Object) {
		if _, ok := sr.lives[x.Def().ID]; !ok {
			gone = append(gone, x.Def().ID)
		}
	})
	for _, id := range gone {
		sr.host.Stop(id)
		delete(sr.dirty, id)
		delete(sr.messages, id)
		delete(sr.drifts, id)
		delete(sr.restless, id)
	}
	for id, x := range sr.running {
		if l, ok := sr.lives[id]; !ok || l.Inc != x.inc {
			x.cancel() // its life is over
		}
	}
	for _, id := range slices.Sorted(maps.Keys(sr.lives)) {
		l := sr.lives[id]
		if x := sr.host.Object(id); x != nil && x.Incarnation() >= l.Inc {
			continue
		}
		if def := sr.def(id, l.Host); def != nil {
			sr.host.Start(def, l.Inc, now)
		}
	}
}

// def returns the definition of an object of one of our hosts, in the generation that the
// host follows; nil if it is not known.
func (sr *siteRunner) def(id object.ID, host string) *object.Def {
	p := sr.parts[sr.follows[host]]
	if p == nil || int(id) >= len(p.site.Defs) || p.site.Defs[id].Name == "" {
		return nil
	}
	return &p.site.Defs[id]
}

// free ends the locks that released objects held on our objects.
func (sr *siteRunner) free(released []object.ID, now int64) {
	if len(released) == 0 {
		return
	}
	var mine []object.ID
	sr.host.Each(func(x *object.Object) { mine = append(mine, x.Def().ID) })
	for _, id := range mine {
		for _, peer := range released {
			if x := sr.host.Object(id); x != nil && x.Knows(peer) {
				sr.event(id, object.Event{What: object.Freed, Peer: peer}, now)
			}
		}
	}
}

func compiled(p *site.Part) (*part, error) {
	doc := p.Document
	if p.Sealed != nil {
		doc = p.Sealed
	}
	s, err := compile.Part(&site.Part{Generation: p.Generation, Document: doc, IDs: p.IDs})
	if err != nil {
		return nil, err
	}
	out := &part{site: s, objects: make(map[object.ID]*site.Object, len(p.IDs)), values: map[string]map[string]json.RawMessage{}}
	for i, id := range p.IDs {
		o := &doc.Objects[i]
		if out.objects[id] = o; len(p.Values) > 0 && out.values[o.Host] == nil {
			out.values[o.Host] = p.ValuesOf(o.Host)
		}
	}
	return out, nil
}
