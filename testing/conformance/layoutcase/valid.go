package layoutcase

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// Broken lists every rule of the template that a layout breaks, checked from the definitions alone
// (docs/spec/solver.md rules 1 to 3) and without any of the solver's code. fresh means that the
// nodes are new, so that services without constraints must be on all of them.
func Broken(t *model.ClusterTemplate, services []string, layout model.Layout, fresh bool) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	n := layout.Nodes()
	if s := t.Constraints.Size; s != nil {
		if s.Min != nil && n < int(*s.Min) || s.Max != nil && n > int(*s.Max) {
			bad("size: %d nodes", n)
		}
	}
	count := map[string]int{}
	for _, g := range layout {
		for _, s := range g.Services {
			count[s] += g.Count
		}
		out = append(out, brokenNode(t, services, g)...)
	}
	for _, s := range services {
		k := count[s]
		if k == 0 {
			bad("%s is on no node", s)
		}
		c, ok := t.Constraints.Services[s]
		q := c.Quantities
		switch {
		case q.Min != nil && k < int(*q.Min), q.Max != nil && k > int(*q.Max):
			bad("%s is on %d nodes", s, k)
		case q.Step != nil && *q.Step > 0 && k%int(*q.Step) != 0:
			bad("%s is on %d nodes, not a multiple of %d", s, k, *q.Step)
		case q.Odd && k%2 == 0:
			bad("%s is on %d nodes, not an odd number", s, k)
		}
		if q.Ratio != nil {
			share := big.NewRat(int64(k), int64(n))
			if r, ok := new(big.Rat).SetString(string(q.Ratio.Min)); ok && share.Cmp(r) < 0 {
				bad("%s is on less than %s of the nodes", s, q.Ratio.Min)
			}
			if r, ok := new(big.Rat).SetString(string(q.Ratio.Max)); ok && share.Cmp(r) > 0 {
				bad("%s is on more than %s of the nodes", s, q.Ratio.Max)
			}
		}
		for _, r := range c.Requires {
			if k > 0 && count[r.Service] < r.Min {
				bad("%s needs %d nodes with %s", s, r.Min, r.Service)
			}
		}
		in := func(sets [][]string) bool {
			return slices.ContainsFunc(sets, func(set []string) bool { return slices.Contains(set, s) })
		}
		if fresh && !ok && !in(t.Constraints.Layout.MustCoexist) && !in(t.Constraints.Layout.CantCoexist) && k != n {
			bad("%s has no constraint and is not on every node", s)
		}
	}
	return out
}

// brokenNode lists the rules that one node layout breaks by itself.
func brokenNode(t *model.ClusterTemplate, services []string, g model.NodeGroup) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	on := func(s string) bool { return slices.Contains(services, s) }
	has := func(s string) bool { return slices.Contains(g.Services, s) }
	if len(g.Services) == 0 {
		bad("a node has no service")
	}
	for _, s := range g.Services {
		if !on(s) {
			bad("%s was not asked for", s)
		}
		c := t.Constraints.Services[s]
		if len(c.HardwareTypes) > 0 && !slices.Contains(c.HardwareTypes, g.HardwareType) {
			bad("%s on hardware %s", s, g.HardwareType)
		}
		if len(c.ImageTypes) > 0 && !slices.Contains(c.ImageTypes, g.ImageType) {
			bad("%s on image %s", s, g.ImageType)
		}
	}
	for _, set := range t.Constraints.Layout.CantCoexist {
		if len(set) > 0 && !slices.ContainsFunc(set, func(s string) bool { return !has(s) }) {
			bad("%v share a node", set)
		}
	}
	for _, set := range t.Constraints.Layout.MustCoexist {
		here, missing := 0, 0
		for _, s := range set {
			if has(s) {
				here++
			} else if on(s) {
				missing++
			}
		}
		if here > 0 && missing > 0 {
			bad("only some of %v share a node", set)
		}
	}
	return out
}
