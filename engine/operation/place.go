package operation

import (
	"cmp"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// assignPlaces chooses the zones and hosts of the nodes that are to be made, before any is
// made, so that a repeated attempt makes each node in the same place. A zone or host that the
// solver chose, or that the node's last machine had, is kept as long as the provider lists it.
// Any other node goes to the place with the fewest nodes that carry one of its spread
// services, then to the place with the fewest nodes, then to the first one that the provider
// lists.
func assignPlaces(cl *model.Cluster, nodes []model.Node, made func(*model.Node) bool) {
	zones, hosts := cl.Provider.Places()
	for _, x := range []struct {
		spread string
		listed []string
		of     func(*model.Node) *string
	}{
		{"zone", zones, func(n *model.Node) *string { return &n.Zone }},
		{"host", hosts, func(n *model.Node) *string { return &n.Host }},
	} {
		type at struct{ place, service string } // service "": all nodes
		there := map[at]int{}
		count := func(n *model.Node) {
			there[at{*x.of(n), ""}]++
			for _, s := range n.Services {
				if cl.Definitions[s].Spread == x.spread {
					there[at{*x.of(n), s}]++
				}
			}
		}
		var homeless []*model.Node
		for i := range nodes {
			switch n := &nodes[i]; {
			case n.Leaves:
			case made(n) && !slices.Contains(x.listed, *x.of(n)):
				homeless = append(homeless, n)
			default:
				count(n)
			}
		}
		for _, n := range homeless {
			*x.of(n) = ""
			if len(x.listed) == 0 {
				continue // the provider chooses
			}
			carries := func(place string) (sum int) {
				for _, s := range n.Services {
					if cl.Definitions[s].Spread == x.spread {
						sum += there[at{place, s}]
					}
				}
				return sum
			}
			*x.of(n) = slices.MinFunc(x.listed, func(a, b string) int {
				return cmp.Or(cmp.Compare(carries(a), carries(b)), cmp.Compare(there[at{a, ""}], there[at{b, ""}]))
			})
			count(n)
		}
	}
}
