package site

import (
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/change"
)

// Plan is what applying a generation does to the one before (rules 22 to 25).
type Plan struct {
	// Added, Removed, Changed (of another content), Rewired (of other
	// dependencies or another preferred state: they keep their states) and Same
	// list the objects, ascending; Removed with their IDs of the old generation.
	Added, Removed, Changed, Rewired, Same []change.ID
	// Groups are the hosts in the order in which they switch; those of one group
	// switch together.
	Groups []Group
}

// Group is hosts that switch together, and the objects that must be in their
// preRemove states before that.
type Group struct {
	Hosts   []string
	Removed []change.ID
	// After lists the groups, all of them before this one, that must have
	// switched before it may: their removed objects need its hosts as they are.
	// An agent that is down holds up no other group.
	After []int
}

// NewPlan compares two generations of a site. Old may be nil.
func NewPlan(old, next *change.Site) *Plan {
	p := &Plan{}
	if old == nil {
		old = &change.Site{Name: next.Name}
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

// stays says whether an object is the same one in the next generation.
func stays(d *change.Def, next *change.Site) bool {
	return d.Name != "" && int(d.ID) < len(next.Defs) && next.Defs[d.ID].Name == d.Name
}

func rewired(a, b *change.Def) bool {
	return a.Preferred != b.Preferred || !slices.Equal(a.Out, b.Out) || !slices.Equal(a.Needs, b.Needs)
}

// order puts a host before all those whose objects the way of its removed ones
// to preRemove needs under the old generation (rule 25).
func (p *Plan) order(old, next *change.Site) {
	number := map[string]int{}
	var hosts []string
	for _, s := range []*change.Site{old, next} {
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
	removed := make([][]change.ID, len(hosts))
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
		var group Group
		for _, h := range g {
			group.Hosts = append(group.Hosts, hosts[h])
			group.Removed = append(group.Removed, removed[h]...)
		}
		group.After = slices.Sorted(maps.Keys(after[i]))
		p.Groups = append(p.Groups, group)
	}
}

// needed walks the dependencies of objects on their ways to preRemove.
func needed(s *change.Site, ids []change.ID) map[change.ID]bool {
	found := map[change.ID]bool{}
	seen := map[goal]bool{}
	var queue []goal
	need := func(id change.ID, in change.State) {
		found[id] = true
		if g := (goal{id, in}); !seen[g] {
			seen[g] = true
			queue = append(queue, g)
		}
	}
	ways := func(d *change.Def, to change.State) {
		for from := 1; from < len(d.Type.States); from++ {
			steps(d, change.State(from), to, need)
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
