package operation

import (
	"slices"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
)

// expansions are what the services of a cluster are configured with, before
// their nodes' addresses are all known: an address that is not known yet counts
// as one that no other node has.
type expansions struct {
	cluster *model.Cluster
	known   *macro.Cluster
	scopes  map[string]*scope
}

// expand returns the expansions of a cluster with these nodes as they stay. unknown are the
// ids of nodes whose addresses will be others than they are.
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
	// What fails for the whole fails before any task runs: it is the layout's fault.
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

// gather returns which nodes' addresses the configuration asks for: their ids, or nil where it
// asks for none.
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

// sum stands for what a service is configured with on the node of this number;
// 0 where that cannot be told.
func (x *expansions) sum(number int, service string) uint64 {
	if x == nil {
		return 0
	}
	return x.of(number, x.cluster.Definitions[service])
}

// of is sum for a service of this definition.
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
