package macro

import (
	"slices"
)

// References are the properties of a cluster that a configuration refers to. A task carries
// these and no others (docs/spec/planner.md, "What a task carries").
type References struct {
	// Owner is true if the configuration refers to the cluster's owner.
	Owner bool
	// Self is true if the configuration refers to any property of the task's own node.
	Self bool
	// SelfIPTypes are the types of address of the task's own node that the configuration refers to, sorted.
	SelfIPTypes []string
	// Services are all services that the configuration names, sorted.
	Services []string
	// Hosts are the services whose nodes' host names the configuration refers to, sorted.
	Hosts []string
	// IPs are the services whose nodes' addresses the configuration refers to, by type of address, sorted.
	IPs map[string][]string
}

// References returns the references of the configuration. The caller must not change them.
func (t *Template) References() References { return t.refs }

// ReferencesOf returns the references of a configuration. Its errors are those of Compile.
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

// Nodes returns the numbers of the nodes of a cluster that are referred to by service,
// ascending. Self does not add the task's own node.
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
