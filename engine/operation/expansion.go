package operation

import (
	"slices"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
)

// expansions are the expanded configurations of a cluster's services before all addresses of
// nodes are known. An address that is not known yet counts as different from all others.
type expansions struct {
	cluster *model.Cluster
	known   *macro.Cluster
	scopes  map[string]*scope
}

// expand returns the expansions of a cluster with the nodes that stay. The parameter unknown
// has the ids of nodes whose addresses will change.
func expand(cl *model.Cluster, nodes []*model.Node, unknown map[string]bool) (*expansions, error) {
	t, err := macro.Compile(orEmpty(cl.Config))
	if err != nil {
		return nil, err
	}
	refs := t.References()
	kinds := slices.Clone(refs.SelfIPTypes)
	for kind := range refs.IPs {
		kinds = append(kinds, kind)
	}
	known := known(nodes, func(n *model.Node) (macro.Node, bool) {
		k, ok := staying(n)
		k.IPAddresses = map[string]string{}
		for _, kind := range kinds {
			if k.IPAddresses[kind] = n.IPAddresses[kind]; unknown[n.ID] || k.IPAddresses[kind] == "" {
				k.IPAddresses[kind] = "the " + kind + " of " + n.ID
			}
		}
		return k, ok
	})
	x := &expansions{cl, macro.NewCluster(cl.Owner, known), map[string]*scope{}}
	// A fault in the whole configuration is a fault of the layout, so it is reported before
	// any task runs.
	if s := x.scope(whole); s.err != nil {
		return nil, s.err
	} else if len(known) > 0 {
		_, err = s.on(known[0].Number)
	}
	return x, err
}

func orEmpty(config map[string]any) map[string]any {
	if config == nil {
		return map[string]any{}
	}
	return config
}

func (x *expansions) scope(name string) *scope {
	s := x.scopes[name]
	if s == nil {
		s = newScope(name, x.cluster.Config, x.known)
		x.scopes[name] = s
	}
	return s
}

// gather returns the ids of the nodes whose addresses the configuration refers to, or nil if
// there are none.
func (x *expansions) gather(nodes []*model.Node) []string {
	refs := x.scope(whole).refs
	if len(refs.IPs)+len(refs.Hosts) == 0 {
		return nil
	}
	numbers := refs.Nodes(x.known)
	var out []string
	for _, n := range nodes {
		if _, asked := slices.BinarySearch(numbers, n.Number); asked {
			out = append(out, n.ID)
		}
	}
	return out
}

// sum returns a hash of a service's configuration on the node with this number, or 0 if it is
// unknown.
func (x *expansions) sum(number int, service string) uint64 {
	if x == nil {
		return 0
	}
	return x.of(number, x.cluster.Definitions[service])
}

// of is like sum, for a service with this definition.
func (x *expansions) of(number int, d model.Service) uint64 {
	if x == nil {
		return 0
	}
	b, err := x.scope(scopeOf(d)).on(number)
	if err != nil {
		return 0
	}
	return sum(b)
}
