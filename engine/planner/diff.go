package planner

import (
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// DiffNode is one node as Diff compares it: as it is, or as it is to be.
type DiffNode struct {
	ID string
	// Created is true if the machine exists, or may exist; as it is to be: that it shall. A
	// node without it counts as one that is not listed.
	Created bool
	// Confirmed is true if a CONFIRM succeeded since; it counts only for what is.
	Confirmed bool
	// Broken says of what is that nothing can be done on the machine but to delete
	// it, or that nobody knows whether it is there: a CREATE or DELETE was tried and
	// not seen to succeed, or a CONFIRM failed.
	Broken bool
	// Machine stands for what the machine is made from (hardware, image): where it
	// is to be another one, the node is replaced.
	Machine  uint64
	Services []DiffService
}

// DiffService is one service on one node.
type DiffService struct {
	Name string
	// State is the last finished action, as in Node.States; with "?" behind it one
	// that was tried and may be half done. None means that nothing was ever done:
	// the service is not there, nor is it after REMOVE. As it is to be, START asks
	// for a running service, STOP and INITIALIZE for one that is ready and does not
	// run, CONFIGURE and INSTALL for one that came so far only.
	State string
	// Definition and Config stand for the definition that the service was last
	// installed from (of one without INSTALL: that its last action was of) and for
	// its expanded configuration when it was last configured. 0 means unknown, as
	// after an INSTALL or CONFIGURE that may be half done; it differs from all, and
	// says nothing of what is to be. Any numbers do that differ where these differ.
	Definition, Config uint64
	// Initialized says of what is that INITIALIZE succeeded since the service came
	// to the machine. States INITIALIZE, START and STOP imply it; INSTALL and
	// CONFIGURE do not tell (an upgrade goes through them too), and INITIALIZE must
	// not be run twice.
	Initialized bool
}

// Difference is what leads from one state of a cluster to another: the Wanted
// and Reconfigure of an OpConverge. Input.Nodes are then the nodes of both
// sides, each with the services of both sides, and States as they are.
type Difference struct {
	Wanted      map[string]Wanted
	Reconfigure map[string][]string
}

// Diff gives what has to be done so that a cluster that is like from becomes
// like to (docs/spec/planner.md, "Operations" and "Transactions" 9). It serves in
// both directions: towards a new layout, template or definitions, and back to a
// snapshot from whatever was really done.
//
//   - A node that goes: STOP and REMOVE of what is on it, DELETE; one that comes:
//     the create chain, of each service as far as its state asks for; one made
//     from something else: both.
//   - A service that goes: STOP, REMOVE; one that comes: INSTALL, CONFIGURE,
//     INITIALIZE, START.
//   - Another definition: STOP, INSTALL, CONFIGURE, START.
//   - Another configuration, and nothing else: it is named in Reconfigure.
//   - What came half-way is brought to its end; what may be half done is done again.
//   - START and STOP where a service runs and shall not, or the other way round.
//     INITIALIZE and CONFIGURE of what had none before cannot be undone.
//   - BOOTSTRAP where something comes whose automators no service that is on the
//     machine has brought along.
//
// definition gives the definition that a service of either side stands for; it
// is asked about changed nodes only, once for each service and Definition.
// Actions that it does not have are not wanted. Nodes are compared by id; the
// answer names none that stays as it is. The time is linear in the pairs of node
// and service.
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

// differ collects a Difference.
type differ struct {
	Difference
	definition func(DiffService) model.Service
	traits     map[traitsKey]traits
	lists      map[mask][]model.Action // shared by all that want the same
	was, shall lookup[DiffService]
	services   map[string]mask // of the node at hand
}

// traits are what matters of a definition.
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

// want adds those actions that the service has.
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

// bootstraps reports whether what comes on the node at hand needs an automator that nothing on
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

// list returns the actions of a mask in the order of a node's life.
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

// same reports whether there is nothing to do, for most services of most nodes.
func same(f, t *DiffService) bool {
	return f.State == t.State && f.Definition == t.Definition && f.Config == t.Config && f.Definition != 0 && f.Config != 0 &&
		!strings.HasSuffix(f.State, unclear)
}

// end takes the service off its node.
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

// between returns what leads from one state of a service on a node to another: actions, or
// that it is to be reconfigured.
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
	if now.mayRun && (configure || !start) { // what is installed is configured, too, if it is to run
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

// lookup finds elements of a list by name: at the place where one would be if
// the lists were alike, or else in a map made for it then.
type lookup[T any] struct {
	list  []T
	key   func(*T) string
	index map[string]int
	made  bool
}

func nodeID(n *DiffNode) string         { return n.ID }
func serviceName(s *DiffService) string { return s.Name }

// over sets the list to look in.
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
