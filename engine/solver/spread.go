package solver

import (
	"cmp"
	"slices"
)

// place distributes the layout's nodes over zones and hosts so that, for every service with a
// spread, the counts differ by at most one. It returns false if this layout has no such
// distribution (docs/spec/solver.md rule 5). Existing nodes stay where they are.
func (w *world) place(s *solution, on []bool) bool {
	for _, sp := range []struct {
		kind   ruleKind
		places []string
		of     func(n *ExistingNode) string
		put    func(p *Placement, name string)
	}{
		{ruleSpreadZone, w.in.Zones, func(n *ExistingNode) string { return n.Zone }, func(p *Placement, name string) { p.Zone = name }},
		{ruleSpreadHost, w.in.Hosts, func(n *ExistingNode) string { return n.Host }, func(p *Placement, name string) { p.Host = name }},
	} {
		var services []string
		for i := range w.rules {
			if on[i] && w.rules[i].kind == sp.kind {
				services = append(services, w.rules[i].service)
			}
		}
		if len(services) == 0 {
			continue
		}
		places := sortedUnique(sp.places)
		at := w.placeOver(s, services, places, sp.of)
		if at == nil {
			return false
		}
		for g, counts := range at {
			for p, n := range counts {
				if n > 0 && s.groups[s.counts[g].class] == nil {
					one := Placement{Group: g, Count: int(n)}
					sp.put(&one, places[p])
					s.places = append(s.places, one)
				}
			}
		}
	}
	return true
}

// placeOver returns, for each group of the solution, the number of its nodes at each place, or nil
// if there is no even spread.
func (w *world) placeOver(s *solution, services, places []string, of func(*ExistingNode) string) [][]int64 {
	z := int64(len(places))
	spread := make([][]int, len(s.counts)) // indexes of the spread services of each group
	total := make([]int64, len(services))
	fixed := make([]int, len(s.counts)) // the place of a group of existing nodes, or -1
	for g, c := range s.counts {
		fixed[g] = -1
		if old := s.groups[c.class]; old != nil {
			if fixed[g] = slices.Index(places, of(old.nodes[0])); fixed[g] < 0 {
				continue // the nodes are at none of the places and do not count
			}
		}
		on := s.services(&c.column)
		for i, name := range services {
			if slices.Contains(on, name) {
				spread[g] = append(spread[g], i)
				total[i] += c.n
			}
		}
	}
	even := func(load [][]int64) bool {
		for i := range services {
			for _, n := range load[i] {
				if n < total[i]/z || n > (total[i]+z-1)/z {
					return false
				}
			}
		}
		return true
	}
	load := make([][]int64, len(services))
	for i := range load {
		load[i] = make([]int64, z)
	}
	// First a simple attempt: each group evenly, its remainder at the places with the lowest load.
	out := make([][]int64, len(s.counts))
	order := make([]int, z)
	for g, c := range s.counts {
		out[g] = make([]int64, z)
		if fixed[g] >= 0 {
			out[g][fixed[g]] = c.n
		} else if s.groups[c.class] == nil && len(spread[g]) > 0 { // new nodes without a spread service need no place
			for p := range order {
				order[p] = p
				out[g][p] = c.n / z
			}
			weight := func(p int) (n int64) {
				for _, i := range spread[g] {
					n += load[i][p]
				}
				return n
			}
			slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight(a), weight(b)) })
			for _, p := range order[:c.n%z] {
				out[g][p]++
			}
		}
		for _, i := range spread[g] {
			for p, n := range out[g] {
				load[i][p] += n
			}
		}
	}
	if even(load) {
		return out
	}
	return w.placeExactly(s, spread, total, fixed, int(z), out)
}

// placeExactly decides the same question as a counting problem. The groups are its classes, each
// item is a service at a place, and a node chooses one place with the items that belong to it.
func (w *world) placeExactly(s *solution, spread [][]int, total []int64, fixed []int, z int, out [][]int64) [][]int64 {
	if len(total)*z > maxItems {
		w.meter.fail("too many places for an exact spread")
		return nil
	}
	p := &problem{}
	for _, n := range total {
		for range z {
			p.domains = append(p.domains, domain{n / int64(z), (n + int64(z) - 1) / int64(z), 1, 0})
			p.weight = append(p.weight, 1)
		}
	}
	var which []int
	for g, c := range s.counts {
		if len(spread[g]) == 0 {
			continue
		}
		cl := &class{nodes: c.n, listed: []set{}, kinds: make([]kind, 1)}
		for place := range z {
			if fixed[g] >= 0 && fixed[g] != place {
				continue
			}
			var items set
			for _, i := range spread[g] {
				items.add(i*z + place)
			}
			cl.listed = append(cl.listed, items)
		}
		which = append(which, g)
		p.classes = append(p.classes, cl)
	}
	p.prepare()
	r := newProgram(p, w.meter)
	if r.feasible() != yes {
		return nil
	}
	for _, g := range which {
		clear(out[g])
	}
	for id, n := range r.witness {
		c := &r.cols[id]
		first := -1
		c.items.each(func(i int) bool { first = i; return false })
		out[which[c.class]][first%z] += n
	}
	return out
}
