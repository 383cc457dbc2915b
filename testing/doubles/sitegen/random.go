package sitegen

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/coopr/coopr/engine/change/site"
)

// Random draws a site whose dependencies follow the order of its objects: an object
// that is needed in its preferred state comes before the object that needs it, one that
// is needed in another state comes after. Strict adds a lock to every start dependency,
// as in case C1. Only then does an object learn in time that a neighbour is about to
// stop it; without the lock it can begin its own restart while that news is still two
// hops away.
func Random(rng *rand.Rand, n, agents int, strict bool) *site.Document {
	d := &site.Document{Name: "random"}
	types := []string{"script", "service", "filetree"}
	for i := range n {
		d.Objects = append(d.Objects, site.Object{
			Name: fmt.Sprintf("o%d", i), Host: fmt.Sprintf("agent:a%d", rng.IntN(agents)), Type: types[rng.IntN(3)],
			Content: map[string]any{"version": 1},
		})
	}
	for i := range n {
		o := &d.Objects[i]
		for j := range i {
			p := &d.Objects[j]
			if rng.Float64() > 2.5/float64(n) {
				continue
			}
			start, hold, stop, restart := rng.IntN(4) > 0, rng.IntN(3) > 0, rng.IntN(2) == 0, rng.IntN(3) == 0
			if strict {
				start, hold = true, true
			}
			if start {
				r := site.Requirement{From: "*", To: "up", Object: p.Name}
				if !strict && rng.IntN(2) == 0 {
					r.From = "down"
				}
				o.Requires = append(o.Requires, r)
			}
			if hold {
				o.Holds = append(o.Holds, site.Holding{Object: p.Name})
			}
			if stop {
				p.Requires = append(p.Requires, site.Requirement{From: "up", To: "down", Object: o.Name, State: "down"})
			}
			if restart {
				p.Requires = append(p.Requires, site.Requirement{From: "outdated", To: "up", Object: o.Name, State: "down"})
			}
		}
	}
	return d
}

// Mutate returns a copy of a site with other contents. If remove is set, it also removes
// and adds objects.
func Mutate(rng *rand.Rand, d *site.Document, agents, version int, remove bool) *site.Document {
	c := *d
	c.Objects = nil
	gone := map[string]bool{}
	for _, o := range d.Objects {
		if remove && rng.IntN(6) == 0 {
			gone[o.Name] = true
		}
	}
	for _, o := range d.Objects {
		if gone[o.Name] {
			continue
		}
		if rng.IntN(3) == 0 {
			o.Content = map[string]any{"version": version}
		}
		o.Requires = slices.DeleteFunc(slices.Clone(o.Requires), func(r site.Requirement) bool { return gone[r.Object] })
		o.Holds = slices.DeleteFunc(slices.Clone(o.Holds), func(h site.Holding) bool { return gone[h.Object] })
		c.Objects = append(c.Objects, o)
	}
	if remove {
		o := site.Object{Name: fmt.Sprintf("new%d", version), Host: fmt.Sprintf("agent:a%d", rng.IntN(agents)), Type: "service"}
		if len(c.Objects) > 0 {
			p := c.Objects[rng.IntN(len(c.Objects))]
			o.Requires = []site.Requirement{{Object: p.Name}}
			o.Holds = []site.Holding{{Object: p.Name}}
		}
		c.Objects = append(c.Objects, o)
	}
	return &c
}
