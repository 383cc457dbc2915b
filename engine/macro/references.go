package macro

import (
	"reflect"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// References are the properties of a cluster that a configuration speaks of: a
// task carries these and no others (docs/spec/planner.md, "What a task carries").
type References struct {
	// Owner says that the cluster's owner is asked for.
	Owner bool
	// Self says that anything about the task's own node is asked for.
	Self bool
	// SelfIPTypes are the types of address asked of the task's own node, sorted.
	SelfIPTypes []string
	// Services are all services named, sorted.
	Services []string
	// Hosts are the services whose nodes' host names are asked for, sorted.
	Hosts []string
	// IPs are the services whose nodes' addresses are asked for, by type, sorted.
	IPs map[string][]string
}

// References gives what the configuration speaks of. It must not be changed.
func (t *Template) References() References { return t.refs }

// ReferencesOf gives what a configuration speaks of; the error is as of Compile.
func ReferencesOf(config map[string]any) (References, error) {
	t, err := Compile(config)
	if err != nil {
		return References{}, err
	}
	return t.refs, nil
}

func (r *References) collect(f *field) {
	for _, s := range f.sub {
		r.collect(s)
	}
	if f.text == nil {
		return
	}
	for _, p := range f.text.pieces {
		if p.macro != nil {
			r.add(p.macro)
		}
	}
}

func (r *References) add(e *Expr) {
	r.Self = r.Self || e.Self()
	if e.Service != "" {
		r.Services = insert(r.Services, e.Service)
	}
	switch e.Kind {
	case Owner:
		r.Owner = true
	case IPSelf:
		r.SelfIPTypes = insert(r.SelfIPTypes, e.IPType)
	case Host:
		r.Hosts = insert(r.Hosts, e.Service)
	case IP:
		if r.IPs == nil {
			r.IPs = map[string][]string{}
		}
		r.IPs[e.IPType] = insert(r.IPs[e.IPType], e.Service)
	}
}

// insert adds s to a sorted list without repeating it.
func insert(list []string, s string) []string {
	i, found := slices.BinarySearch(list, s)
	if found {
		return list
	}
	return slices.Insert(list, i, s)
}

// Nodes gives the numbers of the nodes of a cluster whose properties are asked
// for by service, ascending; the task's own node is not among them for Self.
func (r References) Nodes(c *Cluster) []int {
	wanted := make([]bool, len(c.nodes))
	mark := func(services []string) {
		for _, s := range services {
			for _, i := range c.byService[s] {
				wanted[i] = true
			}
		}
	}
	mark(r.Services)
	var out []int
	for i, w := range wanted {
		if w {
			out = append(out, c.nodes[i].Number)
		}
	}
	return out
}

// CheckLayout finds the macros that no node of a cluster with this layout could
// ever fill in, such as an index beyond the nodes of a service: these fail an
// operation before any of its tasks runs. Host names and addresses need not be
// known yet. The error is model.Faults.
func (t *Template) CheckLayout(c *Cluster) error {
	var faults model.Faults
	t.root.checkLayout(c, &faults)
	return faults.Err()
}

func (f *field) checkLayout(c *Cluster, faults *model.Faults) {
	for _, s := range f.sub {
		s.checkLayout(c, faults)
	}
	if f.text == nil {
		return
	}
	for _, p := range f.text.pieces {
		if p.macro == nil {
			continue
		}
		if on := c.byService[p.macro.Service]; len(on) > 0 && p.macro.Index >= len(on) {
			faults.Add(f.path, indexFault(p.macro, p.literal, len(on)).Error())
		}
	}
}

// Changed compares a configuration as it was and as it will be. all says that a
// part that is the same on every node differs, and with it every node; else
// numbers are those nodes, of the cluster as it will be, whose own parts differ.
// A node that was not there before, or that cannot be expanded, counts as changed.
func Changed(before, after *Bound) (all bool, numbers []int) {
	if !shaped(before.root, after.root) {
		return true, nil
	}
	if !before.root.self && !after.root.self {
		return false, nil
	}
	for i := range after.cluster.nodes {
		number := after.cluster.nodes[i].Number
		if _, was := before.cluster.byNumber[number]; !was {
			numbers = append(numbers, number)
			continue
		}
		same := equal(before.root, after.root, Context{Cluster: before.cluster, Self: number}, Context{Cluster: after.cluster, Self: number})
		if !same {
			numbers = append(numbers, number)
		}
	}
	return false, numbers
}

// shaped says whether two fields agree in all that does not depend on the node.
func shaped(a, b *field) bool {
	if a.self != b.self {
		return true // the node's values decide
	}
	if !a.self {
		return reflect.DeepEqual(a.plain, b.plain)
	}
	if a.kind != b.kind {
		return a.kind == 't' || b.kind == 't'
	}
	if !slices.Equal(a.keys, b.keys) || len(a.sub) != len(b.sub) {
		return false
	}
	for i := range a.sub {
		if !shaped(a.sub[i], b.sub[i]) {
			return false
		}
	}
	return true
}

// equal compares two fields on a node; what does not depend on the node has been
// compared by shaped.
func equal(a, b *field, was, is Context) bool {
	switch {
	case !a.self && !b.self:
		return true
	case a.self && b.self && a.kind == b.kind && a.kind != 't':
		for i := range a.sub {
			if !equal(a.sub[i], b.sub[i], was, is) {
				return false
			}
		}
		return true
	}
	var faults model.Faults
	before, after := value(a, was, &faults), value(b, is, &faults)
	return len(faults) == 0 && reflect.DeepEqual(before, after)
}
