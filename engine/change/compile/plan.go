package compile

import (
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

// Plan is the difference between a generation and the previous one (rules 22 to 25).
type Plan struct {
	// Added, Removed, Changed (another content), Rewired (other dependencies or another
	// preferred state; these keep their states) and Same list the objects in ascending order.
	// Removed has the IDs of the old generation.
	Added, Removed, Changed, Rewired, Same []object.ID
	// Groups are the hosts in the order in which they switch. The hosts of a group switch
	// together.
	Groups []site.Group
}

// NewPlan compares two generations of a site. The old one may be nil.
func NewPlan(old, next *object.Site) *Plan {
	p := &Plan{}
	if old == nil {
		old = &object.Site{Name: next.Name}
	}
	for i := range old.Defs {
		d := &old.Defs[i]
		if d.Name != "" && !stays(d, next) {
			p.Removed = append(p.Removed, d.ID)
		}
	}
	for i := range next.Defs {
		d := &next.Defs[i]
		switch {
		case d.Name == "":
		case i >= len(old.Defs) || !stays(&old.Defs[i], next):
			p.Added = append(p.Added, d.ID)
		case old.Defs[i].Content != d.Content:
			p.Changed = append(p.Changed, d.ID)
		case rewired(&old.Defs[i], d):
			p.Rewired = append(p.Rewired, d.ID)
		default:
			p.Same = append(p.Same, d.ID)
		}
	}
	p.order(old, next)
	return p
}

// stays reports whether an object exists unchanged in identity in the next generation.
func stays(d *object.Def, next *object.Site) bool {
	return d.Name != "" && int(d.ID) < len(next.Defs) && next.Defs[d.ID].Name == d.Name
}

func rewired(a, b *object.Def) bool {
	return a.Preferred != b.Preferred || !slices.Equal(a.Out, b.Out) || !slices.Equal(a.Needs, b.Needs)
}

// order sorts the hosts so that a host comes before the hosts whose objects its removed
// objects need on their way to preRemove under the old generation (rule 25).
func (p *Plan) order(old, next *object.Site) {
	number := map[string]int{}
	var hosts []string
	for _, s := range []*object.Site{old, next} {
		for i := range s.Defs {
			if h := s.Defs[i].Host; h != "" {
				if _, known := number[h]; !known {
					number[h] = 0
					hosts = append(hosts, h)
				}
			}
		}
	}
	slices.Sort(hosts)
	for i, h := range hosts {
		number[h] = i
	}
	removed := make([][]object.ID, len(hosts))
	for _, id := range p.Removed {
		h := number[old.Defs[id].Host]
		removed[h] = append(removed[h], id)
	}
	edges := make([][]int32, len(hosts))
	for h, ids := range removed {
		after := map[int32]bool{}
		for id := range needed(old, ids) {
			if to := number[old.Defs[id].Host]; to != h {
				after[int32(to)] = true
			}
		}
		edges[h] = slices.Sorted(maps.Keys(after))
	}
	groups := components(edges)
	slices.Reverse(groups) // components come after those that they lead to
	in := make([]int, len(hosts))
	for i, g := range groups {
		for _, h := range g {
			in[h] = i
		}
	}
	after := make([]map[int]bool, len(groups))
	for h, to := range edges {
		for _, o := range to {
			if from, to := in[h], in[o]; from != to {
				if after[to] == nil {
					after[to] = map[int]bool{}
				}
				after[to][from] = true
			}
		}
	}
	for i, g := range groups {
		slices.Sort(g)
		var group site.Group
		for _, h := range g {
			group.Hosts = append(group.Hosts, hosts[h])
			group.Removed = append(group.Removed, removed[h]...)
		}
		group.After = slices.Sorted(maps.Keys(after[i]))
		p.Groups = append(p.Groups, group)
	}
}

// needed returns the objects that the given objects depend on, directly or not, on their way
// to preRemove.
func needed(s *object.Site, ids []object.ID) map[object.ID]bool {
	found := map[object.ID]bool{}
	seen := map[goal]bool{}
	var queue []goal
	need := func(id object.ID, in object.State) {
		found[id] = true
		if g := (goal{id, in}); !seen[g] {
			seen[g] = true
			queue = append(queue, g)
		}
	}
	ways := func(d *object.Def, to object.State) {
		for from := 1; from < len(d.Type.States); from++ {
			steps(d, object.State(from), to, need)
		}
	}
	for _, id := range ids {
		ways(&s.Defs[id], s.Defs[id].Type.PreRemove)
	}
	for len(queue) > 0 {
		g := queue[0]
		queue = queue[1:]
		d := &s.Defs[g.id]
		ways(d, g.in)
		d.Granting(g.in, need)
	}
	return found
}

// Switches returns the groups of a plan with the objects that each adds.
func Switches(p *Plan, next *object.Site) []site.Switch {
	out := make([]site.Switch, len(p.Groups))
	in := map[string]int{}
	for i, g := range p.Groups {
		out[i].Group = g
		for _, h := range g.Hosts {
			in[h] = i
		}
	}
	for _, id := range p.Added {
		h := next.Defs[id].Host
		out[in[h]].Added = append(out[in[h]].Added, site.Placed{ID: id, Host: h})
	}
	return out
}
