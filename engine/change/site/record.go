package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/change/object"
)

// ErrOnItsWay means that a generation is on its way: the next one waits for it.
var ErrOnItsWay = errors.New("a generation is on its way")

// ErrHeld means that another agent's lease on a host has not ended.
var ErrHeld = errors.New("another agent has the host")

// Generation is one version of a site's document.
type Generation struct {
	Tenant   string          `json:"tenant"`
	Site     string          `json:"site"`
	Number   uint64          `json:"number"`
	Document json.RawMessage `json:"document"`
	// IDs are those of the document's objects, in its order.
	IDs   []object.ID `json:"ids"`
	Time  int64       `json:"time"`
	Actor string      `json:"actor"`
	// Reverts is the generation whose content it has again; 0 for none.
	Reverts uint64 `json:"reverts,omitempty"`
}

// Record is what the mesh agrees on about a site: which generation is in force
// where, which agent runs the objects of which host, and under which
// incarnation. What the objects are doing is their homes' matter. Its methods
// change it; who shares it clones it first.
type Record struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	// Epoch is the index of the entry that made the site, so that what is said
	// about a deleted one is not taken for its successor's; Version that of the
	// last change.
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	// Generation is in force on every host (0: none was yet), Next on its way
	// (0: none is); Last is the newest number.
	Generation uint64   `json:"generation"`
	Next       uint64   `json:"next,omitempty"`
	Last       uint64   `json:"last"`
	Switches   []Switch `json:"switches,omitempty"` // of Next
	Hosts      []Host   `json:"hosts,omitempty"`    // ascending by name
	// Lives says, by ID, what runs.
	Lives    []Life    `json:"lives,omitempty"`
	Released []Release `json:"released,omitempty"`
	// Deleting is true if the site ends with Next.
	Deleting bool `json:"deleting,omitempty"`
}

// Group is hosts that switch together, and the objects that must be in their
// preRemove states before that.
type Group struct {
	Hosts   []string
	Removed []object.ID
	// After lists the groups, all of them before this one, that must have
	// switched before it may: their removed objects need its hosts as they are.
	// An agent that is down holds up no other group.
	After []int
}

// Switch is a Group of a plan with what its switch adds, and whether it has
// happened.
type Switch struct {
	Group
	Added []Placed `json:"added,omitempty"`
	Done  bool     `json:"done,omitempty"`
}

// Placed is an object on a host.
type Placed struct {
	ID   object.ID `json:"id"`
	Host string    `json:"host"`
}

// Host is where objects act, and the home that runs them.
type Host struct {
	Name string `json:"name"`
	// Agent is the id of the agent, "" while nobody has the host; Process names
	// the run of that agent: another process knows nothing of what was.
	Agent   string `json:"agent,omitempty"`
	Process string `json:"process,omitempty"`
}

// Life is an object's life at its home.
type Life struct {
	// Host is an index into Record.Hosts, -1 for an object that there is not.
	Host int32 `json:"h"`
	// Inc is the incarnation; 0: it never ran. It only grows.
	Inc uint32 `json:"i,omitempty"`
}

// Release is an operator's word that an object holds nothing (rule 20), for as
// long as it does not begin another life.
type Release struct {
	ID     object.ID `json:"id"`
	Inc    uint32    `json:"inc"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	Time   int64     `json:"time"`
}

// Clone returns a copy that shares nothing which methods change.
func (r *Record) Clone() *Record {
	c := *r
	c.Switches, c.Hosts, c.Lives, c.Released = slices.Clone(r.Switches), slices.Clone(r.Hosts), slices.Clone(r.Lives), slices.Clone(r.Released)
	return &c
}

// Begin puts generation n on its way. Groups that wait for nothing switch at once.
func (r *Record) Begin(n uint64, switches []Switch, deleting bool) error {
	switch {
	case r.Next != 0:
		return fmt.Errorf("%w: generation %d of site %s", ErrOnItsWay, r.Next, r.Name)
	case n != r.Last+1:
		return fmt.Errorf("generation %d of site %s cannot follow %d", n, r.Name, r.Last)
	}
	r.Next, r.Last, r.Switches, r.Deleting = n, n, switches, deleting
	var free []int
	for i := range switches {
		if len(switches[i].Removed) == 0 && len(switches[i].After) == 0 {
			free = append(free, i)
		}
	}
	return r.Turn(free)
}

// host returns the place of a host, which is made if there is none.
func (r *Record) host(name string) int32 {
	at, ok := slices.BinarySearchFunc(r.Hosts, name, func(h Host, n string) int { return strings.Compare(h.Name, n) })
	if !ok {
		r.Hosts = slices.Insert(r.Hosts, at, Host{Name: name})
		for i := range r.Lives {
			if r.Lives[i].Host >= int32(at) {
				r.Lives[i].Host++
			}
		}
	}
	return int32(at)
}

// Turn switches groups of Next whose removed objects are where they should be.
// When all have, Next is in force.
func (r *Record) Turn(groups []int) error {
	for _, g := range groups {
		if g < 0 || g >= len(r.Switches) {
			return fmt.Errorf("site %s: generation %d has no group %d", r.Name, r.Next, g)
		}
		s := &r.Switches[g]
		if s.Done {
			continue
		}
		for _, a := range s.After {
			if !r.Switches[a].Done {
				return fmt.Errorf("site %s: group %d must switch after group %d", r.Name, g, a)
			}
		}
		s.Done = true
		for _, id := range s.Removed {
			if int(id) < len(r.Lives) {
				r.Lives[id].Host = -1
			}
		}
		for _, p := range s.Added {
			at := r.host(p.Host)
			for len(r.Lives) <= int(p.ID) {
				r.Lives = append(r.Lives, Life{Host: -1})
			}
			l := &r.Lives[p.ID]
			l.Host = at
			if r.Hosts[at].Agent != "" {
				l.Inc++ // else when somebody takes the host
			}
		}
	}
	if slices.ContainsFunc(r.Switches, func(s Switch) bool { return !s.Done }) {
		return nil
	}
	r.Generation, r.Next, r.Switches = r.Next, 0, nil
	r.tidy()
	return nil
}

// tidy forgets hosts without objects.
func (r *Record) tidy() {
	used := make([]bool, len(r.Hosts))
	for _, l := range r.Lives {
		if l.Host >= 0 {
			used[l.Host] = true
		}
	}
	to := make([]int32, len(r.Hosts))
	var hosts []Host
	for i, h := range r.Hosts {
		to[i] = int32(len(hosts))
		if used[i] {
			hosts = append(hosts, h)
		}
	}
	for i := range r.Lives {
		if h := r.Lives[i].Host; h >= 0 {
			r.Lives[i].Host = to[h]
		}
	}
	r.Hosts = hosts
	r.dropReleases()
}

// settleReleases forgets releases of objects that have begun another life, or
// are gone.
func (r *Record) dropReleases() {
	r.Released = slices.DeleteFunc(r.Released, func(x Release) bool { return !r.Holds(x) })
}

// Holds reports whether a release still says something.
func (r *Record) Holds(x Release) bool {
	return int(x.ID) < len(r.Lives) && r.Lives[x.ID].Host >= 0 && r.Lives[x.ID].Inc == x.Inc
}

// Assign returns hosts to agents: every object of theirs begins a new life. Alive says whether
// an agent still has a session, so that it may be acting.
func (r *Record) Assign(hosts []Host, alive func(agent string) bool) error {
	bumped := map[int32]bool{}
	for _, h := range hosts {
		at, ok := slices.BinarySearchFunc(r.Hosts, h.Name, func(x Host, n string) int { return strings.Compare(x.Name, n) })
		if !ok {
			continue // it went meanwhile
		}
		now := &r.Hosts[at]
		switch {
		case now.Agent == h.Agent && now.Process == h.Process:
			continue
		case now.Agent != "" && now.Agent != h.Agent && alive(now.Agent):
			return fmt.Errorf("%w: site %s: %s is at agent %s, whose session has not ended", ErrHeld, r.Name, h.Name, now.Agent)
		case !alive(h.Agent):
			return fmt.Errorf("%w: site %s: agent %s, which should have %s, has no session", ErrHeld, r.Name, h.Agent, h.Name)
		}
		*now = h
		bumped[int32(at)] = true
	}
	for i := range r.Lives {
		if l := &r.Lives[i]; l.Host >= 0 && bumped[l.Host] {
			l.Inc++
		}
	}
	r.dropReleases()
	return nil
}

// Release takes an operator's word that an object holds nothing.
func (r *Record) Release(x Release) error {
	if int(x.ID) >= len(r.Lives) || x.ID < 0 || r.Lives[x.ID].Host < 0 {
		return fmt.Errorf("site %s has no object %d", r.Name, x.ID)
	}
	x.Inc = r.Lives[x.ID].Inc
	r.Released = slices.DeleteFunc(r.Released, func(y Release) bool { return y.ID == x.ID })
	r.Released = append(r.Released, x)
	return nil
}

// Turned returns the hosts that follow Next already.
func (r *Record) Turned() map[string]bool {
	out := map[string]bool{}
	for _, s := range r.Switches {
		if s.Done {
			for _, h := range s.Hosts {
				out[h] = true
			}
		}
	}
	return out
}

// Removing returns the objects that have to get to their preRemove states now.
func (r *Record) Removing() []object.ID {
	var out []object.ID
	for _, s := range r.Switches {
		if !s.Done {
			out = append(out, s.Removed...)
		}
	}
	return out
}

// Ready returns the groups that may switch: those before them have, and away says of each of
// their removed objects that it is where it should be.
func (r *Record) Ready(away func(object.ID) bool) []int {
	done := map[int]bool{}
	for i, s := range r.Switches {
		done[i] = s.Done
	}
	var out []int
	for i, s := range r.Switches {
		if s.Done || slices.ContainsFunc(s.After, func(a int) bool { return !done[a] }) {
			continue
		}
		if !slices.ContainsFunc(s.Removed, func(id object.ID) bool { return !away(id) }) {
			out = append(out, i)
			done[i] = true
		}
	}
	return out
}

// Orders are what a home is told of one site: a Slice of its documents, and the
// part of its record that it needs.
type Orders struct {
	Tenant  string `json:"tenant"`
	Site    string `json:"site"`
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	// Gone is true if nothing of the site is this home's any more.
	Gone       bool   `json:"gone,omitempty"`
	Generation uint64 `json:"generation"`
	Next       uint64 `json:"next,omitempty"`
	// Parts are the slices of these generations that were not sent before.
	Parts []Part `json:"parts,omitempty"`
	// Mine are this home's hosts. Turned are the hosts, of the slice, that follow
	// Next; Homes says whose the hosts of the slice are.
	Mine   []string          `json:"mine,omitempty"`
	Turned []string          `json:"turned,omitempty"`
	Agents map[string]string `json:"agents,omitempty"`
	// Nodes says how those of Mine are reached that are nodes of clusters, as JSON
	// of model.TaskConfig.
	Nodes map[string]json.RawMessage `json:"nodes,omitempty"`
	// Paused is true if nothing may be done now: a plan is at work on the cluster that the site
	// belongs to.
	Paused bool `json:"paused,omitempty"`
	// Lives are those objects of the slice that run, or ran, and are not removed.
	Lives []Lived `json:"lives,omitempty"`
	// Removing are this home's objects on their way to preRemove; Released those
	// that hold nothing by an operator's word.
	Removing []object.ID `json:"removing,omitempty"`
	Released []object.ID `json:"released,omitempty"`
	// Look, when it is another number than before, asks for a check of
	// everything that changes nothing.
	Probe uint64 `json:"probe,omitempty"`
	// Call, when it is another number than before, asks whether nothing is left to
	// do here.
	Call uint64 `json:"call,omitempty"`
}

// Part is a slice of one generation.
type Part struct {
	Generation uint64      `json:"generation"`
	Document   *Document   `json:"document"`
	IDs        []object.ID `json:"ids"`
}

// Lived is an object's incarnation.
type Lived struct {
	ID   object.ID `json:"id"`
	Inc  uint32    `json:"inc"`
	Host string    `json:"host"`
}

// Part returns the slice of a generation for some hosts.
func (g *Generation) Part(doc *Document, hosts map[string]bool) Part {
	d, ids := Slice(doc, g.IDs, hosts)
	return Part{Generation: g.Number, Document: d, IDs: ids}
}

// Orders returns what a home with some hosts is told; the parts are the caller's. Concerns
// gives the objects and hosts of the slices.
func (r *Record) Orders(mine map[string]bool, concerns map[object.ID]bool) *Orders {
	o := &Orders{Tenant: r.Tenant, Site: r.Name, Epoch: r.Epoch, Version: r.Version, Generation: r.Generation, Next: r.Next,
		Mine: slices.Sorted(maps.Keys(mine)), Agents: map[string]string{}}
	turned := r.Turned()
	seen := make([]bool, len(r.Hosts))
	for i, l := range r.Lives {
		if l.Host < 0 || l.Inc == 0 || !concerns[object.ID(i)] {
			continue
		}
		h := &r.Hosts[l.Host]
		o.Lives = append(o.Lives, Lived{object.ID(i), l.Inc, h.Name})
		if !seen[l.Host] {
			seen[l.Host] = true
			o.Agents[h.Name] = h.Agent
			if turned[h.Name] {
				o.Turned = append(o.Turned, h.Name)
			}
		}
	}
	for h := range mine {
		if turned[h] && !slices.Contains(o.Turned, h) {
			o.Turned = append(o.Turned, h)
		}
	}
	slices.Sort(o.Turned)
	for _, id := range r.Removing() {
		if int(id) < len(r.Lives) && r.Lives[id].Host >= 0 && mine[r.Hosts[r.Lives[id].Host].Name] {
			o.Removing = append(o.Removing, id)
		}
	}
	for _, x := range r.Released {
		if r.Holds(x) {
			o.Released = append(o.Released, x.ID)
		}
	}
	return o
}
