package planner

import (
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// DiffNode is one node of a cluster that Diff compares, in its current state (from) or its target
// state (to).
type DiffNode struct {
	ID string
	// Created is true if the machine exists or may exist; in the target state, if it is to exist. A
	// node without it counts as a node that is not listed.
	Created bool
	// Confirmed is true if a CONFIRM succeeded since the CREATE. It has no effect in the target
	// state.
	Confirmed bool
	// Broken is true if the machine can only be deleted, or if it is unknown whether the machine
	// exists: a CREATE or DELETE was tried and not seen to succeed, or a CONFIRM failed. It has no
	// effect in the target state.
	Broken bool
	// Machine identifies the properties from which the machine is made (hardware, image). If the
	// two states differ in it, the node is replaced.
	Machine  uint64
	Services []DiffService
}

// DiffService is one service on one node.
type DiffService struct {
	Name string
	// State is the last finished action, as in Node.States. A "?" at the end marks an action that
	// was tried and may be half done. An empty State means that nothing was ever done: the service
	// is not on the node, and neither is it after REMOVE. In the target state, START means a
	// running service, STOP and INITIALIZE a service that is ready but does not run, and CONFIGURE
	// and INSTALL a service that has come only so far.
	State string
	// Definition and Config identify the definition from which the service was last installed (for
	// a service without INSTALL: that of its last action) and its expanded configuration when it
	// was last configured. 0 means unknown, as after an INSTALL or CONFIGURE that may be half done.
	// It differs from every number and has no meaning in the target state. Any numbers will do that
	// differ if the definitions or configurations differ.
	Definition, Config uint64
	// Initialized is true if INITIALIZE succeeded since the service came to the machine. The states
	// INITIALIZE, START and STOP imply it. INSTALL and CONFIGURE do not show it, because an upgrade
	// goes through them too. INITIALIZE must not run twice. The field has no effect in the target
	// state.
	Initialized bool
}

// Difference is the result of Diff: the Wanted and Reconfigure of an OpConverge that leads from one
// state of a cluster to another. The Input.Nodes for it are the nodes of both states, each with the
// services of both states, and with the current States.
type Difference struct {
	Wanted      map[string]Wanted
	Reconfigure map[string][]string
}

// Diff returns the actions that lead from the current state of a cluster to a target state
// (docs/spec/planner.md, "Operations" and "Transactions" 9). It serves in both directions: towards
// a new layout, template or definitions, and back to a snapshot from what was really done.
//
//   - A removed node: STOP and REMOVE of its services, DELETE. A new node: the create chain, for
//     each service up to its target state. A node with another Machine: both.
//   - A removed service: STOP, REMOVE. A new service: INSTALL, CONFIGURE, INITIALIZE, START.
//   - Another definition: STOP, INSTALL, CONFIGURE, START.
//   - Another configuration and nothing else: the service is named in Reconfigure.
//   - A service that came only part of the way is completed. An action that may be half done is
//     done again.
//   - START or STOP, if a service is to run and does not, or the other way round. The first
//     INITIALIZE and CONFIGURE of a service cannot be undone.
//   - BOOTSTRAP, if a new action needs an automator that no service on the machine has used.
//
// definition returns the definition that a service of either state stands for. It is called for
// changed nodes only, once for each service and Definition. Diff leaves out actions that the
// definition lacks. It compares nodes by id and names only nodes that change. The time is linear in
// the number of pairs of node and service.
func Diff(from, to []DiffNode, definition func(DiffService) model.Service) Difference {
	d := differ{
		Difference: Difference{Wanted: map[string]Wanted{}, Reconfigure: map[string][]string{}},
		definition: definition, traits: map[traitsKey]traits{}, lists: map[mask][]model.Action{},
		was: lookup[DiffService]{key: serviceName}, shall: lookup[DiffService]{key: serviceName},
	}
	was, shall := lookup[DiffNode]{key: nodeID}, lookup[DiffNode]{key: nodeID}
	was.over(from)
	shall.over(to)
	for i := range to {
		before := was.find(to[i].ID, i)
		if before == nil {
			before = &DiffNode{}
		}
		d.node(to[i].ID, before, &to[i])
	}
	for i := range from {
		if shall.find(from[i].ID, i) == nil {
			d.node(from[i].ID, &from[i], &DiffNode{})
		}
	}
	return d.Difference
}

// differ builds a Difference.
type differ struct {
	Difference
	definition func(DiffService) model.Service
	traits     map[traitsKey]traits
	lists      map[mask][]model.Action // shared by equal masks
	was, shall lookup[DiffService]
	services   map[string]mask // of the current node
}

// traits are the properties of a definition that Diff uses.
type traits struct {
	defined    mask
	automators []string
}

type traitsKey struct {
	name       string
	definition uint64
}

func (d *differ) node(id string, from, to *DiffNode) {
	if !from.Created && !to.Created {
		return
	}
	d.services = nil
	whole := mask(0)
	stays := from.Created && to.Created && !from.Broken && from.Machine == to.Machine
	if stays {
		if !from.Confirmed {
			whole |= bit(model.Confirm)
		}
		d.stays(id, from.Services, to.Services)
	} else {
		if from.Created {
			whole |= bit(model.Delete)
			for i := range from.Services {
				if f := &from.Services[i]; !from.Broken {
					d.want(f, conditionOf(f.State).end())
				}
			}
		}
		if to.Created {
			whole |= maskOf(model.Create, model.Confirm)
			for i := range to.Services {
				d.want(&to.Services[i], conditionOf(to.Services[i].State).asked.way())
			}
		}
	}
	if d.bootstraps(from, to, stays) {
		whole |= bit(model.Bootstrap)
	}
	if whole == 0 && d.services == nil {
		return
	}
	w := Wanted{Node: d.list(whole)}
	if d.services != nil {
		w.Services = make(map[string][]model.Action, len(d.services))
		for s, m := range d.services {
			w.Services[s] = d.list(m)
		}
	}
	d.Wanted[id] = w
}

// stays compares the services of a node that stays.
func (d *differ) stays(id string, from, to []DiffService) {
	d.was.over(from)
	d.shall.over(to)
	for i := range to {
		t := &to[i]
		f := d.was.find(t.Name, i)
		if f == nil {
			d.want(t, conditionOf(t.State).asked.way())
			continue
		}
		if same(f, t) {
			continue
		}
		m, reconfigure := between(f, t)
		d.want(f, m&leaveActions)
		d.want(t, m&comeActions)
		if reconfigure && d.about(t).defined&bit(model.Configure) != 0 {
			d.Reconfigure[id] = append(d.Reconfigure[id], t.Name)
		}
	}
	for i := range from {
		if f := &from[i]; d.shall.find(f.Name, i) == nil {
			d.want(f, conditionOf(f.State).end())
		}
	}
}

// want adds those of the actions that the service defines.
func (d *differ) want(s *DiffService, m mask) {
	if m == 0 {
		return
	}
	if m &= d.about(s).defined; m == 0 {
		return
	}
	if d.services == nil {
		d.services = map[string]mask{}
	}
	d.services[s.Name] |= m
}

// about returns the traits of a service's definition.
func (d *differ) about(s *DiffService) traits {
	key := traitsKey{s.Name, s.Definition}
	out, ok := d.traits[key]
	if !ok {
		actions := d.definition(*s).Provisioner.Actions
		out.defined = definedBy(actions)
		for _, a := range actions {
			if !slices.Contains(out.automators, a.Type) {
				out.automators = append(out.automators, a.Type)
			}
		}
		d.traits[key] = out
	}
	return out
}

// bootstraps reports whether new actions on the current node need an automator that no service on
// its machine has used.
func (d *differ) bootstraps(from, to *DiffNode, stays bool) bool {
	var known []string
	asked := false
	for i := range to.Services {
		if d.services[to.Services[i].Name]&comeActions == 0 {
			continue
		}
		if !asked && stays {
			for j := range from.Services {
				if from.Services[j].State != "" {
					known = append(known, d.about(&from.Services[j]).automators...)
				}
			}
		}
		asked = true
		for _, a := range d.about(&to.Services[i]).automators {
			if !slices.Contains(known, a) {
				return true
			}
		}
	}
	return false
}

// list returns the actions of a mask in the order of leaveChain and createChain.
func (d *differ) list(m mask) []model.Action {
	out, ok := d.lists[m]
	if !ok {
		for _, chain := range [][]model.Action{leaveChain, createChain} {
			for _, a := range chain {
				if m&bit(a) != 0 {
					out = append(out, a)
				}
			}
		}
		d.lists[m] = slices.Clip(out)
	}
	return out
}

// same reports whether a quick comparison shows that there is nothing to do, as for most services
// of most nodes.
func same(f, t *DiffService) bool {
	return f.State == t.State && f.Definition == t.Definition && f.Config == t.Config && f.Definition != 0 && f.Config != 0 &&
		!strings.HasSuffix(f.State, unclear)
}

// end returns the actions that take the service off its node.
func (s condition) end() mask {
	m := mask(0)
	if s.mayRun {
		m |= bit(model.Stop)
	}
	if s.there {
		m |= bit(model.Remove)
	}
	return m
}

// between returns the actions that lead from one state of a service on a node to another, or
// reconfigure if the configuration alone changes.
func between(f, t *DiffService) (m mask, reconfigure bool) {
	now, want := conditionOf(f.State), conditionOf(t.State)
	if want.asked == absent {
		return now.end(), false
	}
	if !now.there || f.State == "REMOVE?" {
		return want.asked.way(), false
	}
	install := now.reached < installed || f.Definition == 0 || f.Definition != t.Definition
	initialize := want.asked >= initialized && now.reached < initialized && !f.Initialized
	configure := want.asked >= configured && (install || now.reached < configured || f.Config == 0 || f.Config != t.Config)
	start := want.asked == started
	if configure && !install && !initialize && now.reached >= configured && now.runs == start && now.mayRun == start {
		return 0, true
	}
	if now.mayRun && (configure || !start) { // if the service is to run, install implies configure
		m |= bit(model.Stop)
	}
	if install {
		m |= bit(model.Install)
	}
	if configure {
		m |= bit(model.Configure)
	}
	if initialize {
		m |= bit(model.Initialize)
	}
	if start && (m != 0 || !now.runs) {
		m |= bit(model.Start)
	}
	return m, false
}

// lookup finds elements of a list by name. It first tries the position that the name has in a list
// of the same order, and builds a map only if that fails.
type lookup[T any] struct {
	list  []T
	key   func(*T) string
	index map[string]int
	made  bool
}

func nodeID(n *DiffNode) string         { return n.ID }
func serviceName(s *DiffService) string { return s.Name }

// over sets the list to search.
func (l *lookup[T]) over(list []T) { l.list, l.made = list, false }

// find returns the element of that name, or nil.
func (l *lookup[T]) find(name string, hint int) *T {
	if hint < len(l.list) && l.key(&l.list[hint]) == name {
		return &l.list[hint]
	}
	if !l.made {
		if l.index == nil {
			l.index = make(map[string]int, len(l.list))
		}
		clear(l.index)
		for i := range l.list {
			l.index[l.key(&l.list[i])] = i
		}
		l.made = true
	}
	if i, ok := l.index[name]; ok {
		return &l.list[i]
	}
	return nil
}
