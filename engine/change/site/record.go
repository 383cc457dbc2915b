package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/model"
)

// ErrOnItsWay means that a generation is still being rolled out. The next one has to wait.
var ErrOnItsWay = errors.New("a generation is still being rolled out")

// ErrHeld means that a host cannot be given to an agent now: the session of its present agent has not
// ended, or the new agent has no session.
var ErrHeld = errors.New("the host cannot be given to another agent now")

// Generation is one version of a site's document.
type Generation struct {
	Tenant   string          `json:"tenant"`
	Site     string          `json:"site"`
	Number   uint64          `json:"number"`
	Document json.RawMessage `json:"document"`
	// IDs are the IDs of the document's objects, in its order.
	IDs   []object.ID `json:"ids"`
	Time  int64       `json:"time"`
	Actor string      `json:"actor"`
	// Reverts is the generation whose content this one restores; 0 for none.
	Reverts uint64 `json:"reverts,omitempty"`
}

// Record is the replicated state of a site: the generation that is in force on each host, the
// agent that runs the objects of each host, and their incarnations. The states of the objects
// are not part of it; the agents report them to the leader. Methods change the record, so a
// caller that shares it clones it first.
type Record struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	// Epoch is the index of the log entry that created the site. It distinguishes messages
	// about a deleted site from those about its successor. Version is the index of the entry
	// that last changed it.
	Epoch   uint64 `json:"epoch"`
	Version uint64 `json:"version"`
	// Generation is in force on every host (0: none yet), Next is being rolled out (0: none),
	// and Last is the newest number.
	Generation uint64   `json:"generation"`
	Next       uint64   `json:"next,omitempty"`
	Last       uint64   `json:"last"`
	Switches   []Switch `json:"switches,omitempty"` // of Next
	Hosts      []Host   `json:"hosts,omitempty"`    // ascending by name
	// Lives is the current life of each object, by ID.
	Lives    []Life    `json:"lives,omitempty"`
	Released []Release `json:"released,omitempty"`
	// Deleting is true if the site is deleted once Next is in force.
	Deleting bool `json:"deleting,omitempty"`
}

// Group is a set of hosts that switch to a generation together, once the objects in Removed are in
// their preRemove states.
type Group struct {
	Hosts   []string
	Removed []object.ID
	// After lists the earlier groups that must have switched before this one may, because
	// their removed objects need this group's hosts as they are. An agent that is down delays
	// no other group.
	After []int
}

// Switch is a Group of a plan with the objects that its switch adds, and whether it has
// switched.
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

// Host is a place where objects act, with the agent that runs them.
type Host struct {
	Name string `json:"name"`
	// Agent is the id of the agent, "" while the host has none. Process identifies the process
	// of that agent: a new process knows nothing of its predecessor.
	Agent   string `json:"agent,omitempty"`
	Process string `json:"process,omitempty"`
}

// Life is the current life of an object.
type Life struct {
	// Host is an index into Record.Hosts, or -1 if the object does not exist.
	Host int32 `json:"h"`
	// Inc is the incarnation; 0: it never ran. It only grows.
	Inc uint32 `json:"i,omitempty"`
}

// Release is an operator's statement that an object holds no locks (rule 20). It is valid
// until the object begins another life.
type Release struct {
	ID     object.ID `json:"id"`
	Inc    uint32    `json:"inc"`
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	Time   int64     `json:"time"`
}

// Clone returns a copy that shares nothing that methods change.
func (r *Record) Clone() *Record {
	c := *r
	c.Switches, c.Hosts, c.Lives, c.Released = slices.Clone(r.Switches), slices.Clone(r.Hosts), slices.Clone(r.Lives), slices.Clone(r.Released)
	return &c
}

// Begin starts the rollout of generation n. Groups that wait for nothing switch at once.
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

// host returns the index of a host, which it adds if it is missing.
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

// Turn switches groups of Next whose removed objects are in their preRemove states. After the
// last group, Next is in force.
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
				l.Inc++ // otherwise when an agent takes the host
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

// dropReleases forgets releases of objects that are gone or have begun another life.
func (r *Record) dropReleases() {
	r.Released = slices.DeleteFunc(r.Released, func(x Release) bool { return !r.Holds(x) })
}

// Holds reports whether a release is still valid.
func (r *Record) Holds(x Release) bool {
	return int(x.ID) < len(r.Lives) && r.Lives[x.ID].Host >= 0 && r.Lives[x.ID].Inc == x.Inc
}

// Assign gives hosts to agents. Every object of these hosts begins a new life. The function
// alive reports whether an agent still has a session and may therefore be acting.
func (r *Record) Assign(hosts []Host, alive func(agent string) bool) error {
	bumped := map[int32]bool{}
	for _, h := range hosts {
		at, ok := slices.BinarySearchFunc(r.Hosts, h.Name, func(x Host, n string) int { return strings.Compare(x.Name, n) })
		if !ok {
			continue // it has been removed since
		}
		now := &r.Hosts[at]
		switch {
		case now.Agent == h.Agent && now.Process == h.Process:
			continue
		case now.Agent != "" && now.Agent != h.Agent && alive(now.Agent):
			return fmt.Errorf("%w: site %s: host %s belongs to agent %s, whose session has not ended", ErrHeld, r.Name, h.Name, now.Agent)
		case !alive(h.Agent):
			return fmt.Errorf("%w: site %s: agent %s, which should get host %s, has no session", ErrHeld, r.Name, h.Agent, h.Name)
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

// Release records an operator's statement that an object holds no locks.
func (r *Record) Release(x Release) error {
	if int(x.ID) >= len(r.Lives) || x.ID < 0 || r.Lives[x.ID].Host < 0 {
		return fmt.Errorf("site %s has no object %d", r.Name, x.ID)
	}
	x.Inc = r.Lives[x.ID].Inc
	r.Released = slices.DeleteFunc(r.Released, func(y Release) bool { return y.ID == x.ID })
	r.Released = append(r.Released, x)
	return nil
}

// Turned returns the hosts that already follow Next.
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

// Removing returns the objects that have to go to their preRemove states now.
func (r *Record) Removing() []object.ID {
	var out []object.ID
	for _, s := range r.Switches {
		if !s.Done {
			out = append(out, s.Removed...)
		}
	}
	return out
}

// Ready returns the groups that may switch: the groups before them have switched, and the
// function away reports that each of their removed objects is in its preRemove state.
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

// Orders are the leader's orders to an agent for one site: a Slice of its documents and the
// part of its record that the agent needs.
type Orders struct {
	Tenant, Site   string
	Epoch, Version uint64
	// Gone is true if the agent runs nothing of the site any more.
	Gone             bool
	Generation, Next uint64
	// Parts are the slices of these generations that have not been sent before.
	Parts []Part
	// Mine are the hosts of this agent. Turned are the hosts of the slice that follow Next.
	// Agents has the agent of each host of the slice.
	Mine, Turned []string
	Agents       map[string]string
	// Nodes has, for each host in Mine that is a node with a confirmed machine, how to reach it.
	Nodes map[string]Access
	// Paused is true if no object may act now, because a plan is working on the cluster that
	// the site belongs to.
	Paused bool
	// Lives are the objects of the slice that run, or ran, and are not removed.
	Lives []Lived
	// Removing are this agent's objects that are going to preRemove. Released are the objects
	// that an operator has released.
	Removing, Released []object.ID
	// Probe requests a check of everything, without changes, whenever it differs from the last
	// value.
	Probe uint64
	// Call requests an answer whether anything is left to do here, whenever it differs from
	// the last value.
	Call uint64
	// TakesEvents is true if the leader says which events are committed. EventsTaken is the number of the last one; Orders with
	// it have nothing else.
	TakesEvents bool
	EventsTaken uint64
}

// Part is a slice of one generation.
type Part struct {
	Generation uint64
	// Document has the values of secrets. Agents of builds that know Sealed use that.
	Document *Document
	IDs      []object.ID
	// Sealed is the document with references to encrypted values in place of these, nil if it has none. An object's content changes
	// with its references.
	Sealed *Document
	// Values are the values of references, as JSON by ValueKey: those in Sealed, and those that earlier generations had for the hosts of the
	// slice, as an object stops what is in place with that one's own content.
	Values map[string]json.RawMessage
}

// Lived is an object's incarnation.
type Lived struct {
	ID   object.ID
	Inc  uint32
	Host string
}

// Access is how a node of a cluster is reached.
type Access struct {
	Hostname    string
	IPAddresses map[string]string
	SSHUser     string
	Results     map[string]any // of the plugin that made the machine
}

// Config returns the part of a task's input that describes how the node is reached.
func (a *Access) Config() model.TaskConfig {
	return model.TaskConfig{Hostname: a.Hostname, IPAddresses: a.IPAddresses, SSHUser: a.SSHUser, Results: a.Results}
}

// Part returns the slice of a generation for some hosts.
func (g *Generation) Part(doc *Document, hosts map[string]bool) Part {
	d, ids := Slice(doc, g.IDs, hosts)
	return Part{Generation: g.Number, Document: d, IDs: ids}
}

// Orders returns the orders for an agent with some hosts. The caller adds the parts. Concerns
// are the objects of the slices.
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
