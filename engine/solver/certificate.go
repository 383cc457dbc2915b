package solver

import "math"

// proof is a certificate, in integers, that a question has no solution. It consists of multipliers
// y of the rows and mu of the classes such that for every column
//
//	worth(column) = sum of y over its items and goals - mu of its class
//
// is at most 0, except for columns whose bounds are counted exactly. Then the sum of worth times
// count has an upper bound below the lower bound that the rows give for the same sum.
type proof struct {
	items []int64
	goals []int64
	mu    []int64
	// need is the lower bound from the rows, minus the greatest contribution of the columns that
	// are counted exactly, without the column in question. A column whose worth is less than need
	// cannot be used.
	need int64
	// rows is the part of need that comes from the rows.
	rows int64
	// give is the greatest contribution of the columns that are counted exactly.
	give int64
}

// worth returns the worth of a column under the multipliers of the proof.
func (q *proof) worth(p *problem, c *column) int64 {
	w := -q.mu[c.class]
	c.items.each(func(i int) bool { w += q.items[i]; return true })
	for n, y := range q.goals {
		w += y * p.classes[c.class].kinds[c.kind].cost[n]
	}
	return w
}

// certify turns the simplex's multipliers into a proof. It returns nil if rounding invalidates it.
func (r *program) certify() *proof {
	y := append([]float64(nil), r.lp.y...)
	if scale := fractions(y); scale > 0 {
		if q := r.prove(y, scale); q != nil {
			return q
		}
	}
	if r.meter.err != nil {
		return nil
	}
	if scale := r.scaleOf(y); scale > 0 {
		return r.prove(y, scale)
	}
	return nil
}

// fractions returns a small factor that makes every entry of y whole, or 0.
func fractions(y []float64) float64 {
	scale := 1.0
	for _, v := range y {
		x := v * scale
		if math.Abs(x-math.Round(x)) < 1e-6 {
			continue
		}
		found := false
		for d := 2.0; d <= 60; d++ {
			if z := x * d; math.Abs(z-math.Round(z)) < 1e-6 {
				scale *= d
				found = true
				break
			}
		}
		if !found || scale > 1<<20 {
			return 0
		}
	}
	return scale
}

func (r *program) prove(y []float64, scale float64) *proof {
	p := r.p
	k, g := len(p.domains), len(p.classes)
	q := &proof{items: make([]int64, k), goals: make([]int64, p.goals), mu: make([]int64, g)}
	for i := range k {
		q.items[i] = int64(math.Round(y[i] * scale))
	}
	for n := range p.goals {
		q.goals[n] = min(0, int64(math.Round(y[k+g+n]*scale/r.scale[n])))
	}
	restricted := func(id int) bool {
		return r.lo[id] > 0 || r.hi[id] < p.classes[r.cols[id].class].nodes
	}
	for ci, c := range p.classes {
		if c.nodes == 0 {
			continue
		}
		best, found := int64(0), false
		if c.listed != nil {
			for id := range r.cols {
				if r.cols[id].class == ci && !restricted(id) {
					if w := q.worth(p, &r.cols[id]); !found || w > best {
						best, found = w, true
					}
				}
			}
		} else {
			for ki := range c.kinds {
				base := int64(0)
				for n, yg := range q.goals {
					base += yg * c.kinds[ki].cost[n]
				}
				above := int64(minWeight)
				if found {
					above = best - base
				}
				s, ok := r.heaviest(ci, ki, q.items, above, func(s *set) bool {
					id, in := r.ids[column{ci, ki, *s}]
					return !in || !restricted(id)
				})
				if r.meter.err != nil {
					return nil
				}
				if ok {
					w := base
					s.each(func(i int) bool { w += q.items[i]; return true })
					best, found = w, true
				}
			}
		}
		// Every greater multiplier is valid too; the simplex's own is the best for the columns that
		// are counted exactly.
		own := int64(math.Round(-y[k+ci] * scale))
		if !found || own > best {
			best = own
		}
		q.mu[ci] = best
	}
	for i, d := range r.doms {
		if q.items[i] > 0 {
			q.rows += q.items[i] * d.lo
		} else {
			q.rows += q.items[i] * d.hi
		}
	}
	for n, yg := range q.goals {
		q.rows += yg * r.most[n]
	}
	for ci, c := range p.classes {
		q.rows -= q.mu[ci] * c.nodes
	}
	for id := range r.cols {
		if restricted(id) {
			w := q.worth(p, &r.cols[id])
			q.give += max(w*r.lo[id], w*r.hi[id])
		}
	}
	q.need = q.rows - q.give
	if q.need <= 0 {
		return nil
	}
	return q
}
