package solver

import "maps"

// alternative is a part of the search space and its preferred solution.
type alternative struct {
	within box
	counts []counted
	totals []int64
}

// enumerate calls take with the solutions of p, in order of preference, until take returns true.
// When take refuses a solution, enumerate splits the rest of that solution's part of the search
// space by the first column that differs from the solution. The new parts do not overlap and miss
// nothing, so take gets every solution once.
func enumerate(p *problem, m *meter, compare func(a, b *column) int, take func([]counted) bool) verdict {
	first, totals, v := preferred(p, m, nil, compare)
	if v != yes {
		return v
	}
	open := []alternative{{nil, first, totals}}
	order := &preferrer{program: &program{p: p}, compare: compare}
	for len(open) > 0 {
		at := 0
		for i := range open {
			if order.better(&open[i], &open[at]) {
				at = i
			}
		}
		a := open[at]
		open = append(open[:at], open[at+1:]...)
		if take(a.counts) {
			return yes
		}
		// Another solution in this part agrees with this one up to some column and has a smaller
		// count of that column. It can have a greater count only if there are goals, because
		// without them this solution is the greatest in the order of preference.
		for j, c := range a.counts {
			low, high := int64(0), p.classes[c.class].nodes
			if b, ok := a.within[c.column]; ok {
				low, high = b[0], b[1]
			}
			parts := [][2]int64{{low, c.n - 1}}
			if p.goals > 0 {
				parts = append(parts, [2]int64{c.n + 1, high})
			}
			for _, part := range parts {
				if part[0] > part[1] {
					continue
				}
				within := maps.Clone(a.within)
				if within == nil {
					within = box{}
				}
				for _, prior := range a.counts[:j] {
					within[prior.column] = [2]int64{prior.n, prior.n}
				}
				within[c.column] = part
				counts, totals, v := preferred(p, m, within, compare)
				if v == unknown {
					return unknown
				}
				if v == yes {
					open = append(open, alternative{within, counts, totals})
				}
			}
		}
	}
	return no
}

// better reports whether a is preferred to b: first by the smaller totals, then by the greater
// counts in the order of preference.
func (f *preferrer) better(a, b *alternative) bool {
	for i := range a.totals {
		if a.totals[i] != b.totals[i] {
			return a.totals[i] < b.totals[i]
		}
	}
	for i := range a.counts {
		if i == len(b.counts) {
			return true
		}
		x, y := &a.counts[i], &b.counts[i]
		if x.column != y.column {
			return f.before(&x.column, &y.column)
		}
		if x.n != y.n {
			return x.n > y.n
		}
	}
	return false
}
