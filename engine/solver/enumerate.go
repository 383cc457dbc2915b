package solver

import "maps"

// alternative is a part of the search space and its preferred solution.
type alternative struct {
	within box
	counts []counted
	totals []int64
}

// enumerate returns the solutions of p to take, the preferred first, until it says true. Each
// solution that is refused splits its part of the space by the first column on which another
// solution could differ from it, so that none is met twice and none is missed.
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
		// Another solution in this part agrees up to some column of this one,
		// and has fewer of that. It can have more of it only where goals come
		// before the order, in which this one is the greatest otherwise.
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

// better compares two solutions: the lesser totals, then the greater counts in
// the order of preference.
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
