package solver

import "math"

// program decides whether a problem has a solution within bounds on its
// columns, by branch and bound over the simplex. Columns are made when the
// simplex asks for them, so sets that no solution needs are never looked at.
//
// Its rows are the items' counts, then the classes' numbers of nodes, then the
// goals' totals.
type program struct {
	p     *problem
	meter *meter
	lp    *lp

	cols   []column
	ids    map[column]int
	lo, hi []int64 // bounds of the columns' counts
	doms   []domain
	most   []int64 // greatest total of each goal
	scale  []float64

	// witness is the last solution found: counts by column.
	witness []int64
	// proof is why the last question was answered with no, where one
	// certificate shows it.
	proof *proof

	finder finder
	ints   []int64
}

type verdict int

const (
	yes verdict = iota
	no
	unknown // the meter has ended
)

func newProgram(p *problem, m *meter) *program {
	k, g := len(p.domains), len(p.classes)
	r := &program{p: p, meter: m, ids: map[column]int{}, doms: append([]domain(nil), p.domains...)}
	r.lp = newLP(k+g+p.goals, m)
	for i, d := range p.domains {
		r.lp.rowLo[i], r.lp.rowHi[i] = float64(d.lo), float64(d.hi)
	}
	for i, c := range p.classes {
		r.lp.rowLo[k+i], r.lp.rowHi[k+i] = float64(c.nodes), float64(c.nodes)
	}
	for n := range p.goals {
		top := int64(1)
		total := int64(0)
		for _, c := range p.classes {
			most := int64(0)
			for _, kd := range c.kinds {
				most = max(most, kd.cost[n])
			}
			top = max(top, most)
			total += most * c.nodes
		}
		r.scale = append(r.scale, float64(top))
		r.most = append(r.most, total)
	}
	for ci, c := range p.classes {
		for i := range c.listed {
			r.column(column{ci, 0, c.listed[i]})
		}
	}
	return r
}

// column gives the number of a column, which it adds where it is new.
func (r *program) column(c column) int {
	if id, ok := r.ids[c]; ok {
		return id
	}
	cl := r.p.classes[c.class]
	k := len(r.p.domains)
	lc := lpColumn{rows: c.items.appendItems(make([]int32, 0, 8)), hi: float64(cl.nodes)}
	lc.rows = append(lc.rows, int32(k+c.class))
	for n := range r.p.goals {
		if v := cl.kinds[c.kind].cost[n]; v != 0 {
			lc.extra = append(lc.extra, int32(k+len(r.p.classes)+n))
			lc.coef = append(lc.coef, float64(v)/r.scale[n])
		}
	}
	id := r.lp.addColumn(lc)
	r.cols = append(r.cols, c)
	r.lo, r.hi = append(r.lo, 0), append(r.hi, cl.nodes)
	r.ids[c] = id
	return id
}

// bound sets the bounds of a column's count.
func (r *program) bound(id int, lo, hi int64) {
	r.lo[id], r.hi[id] = lo, hi
	r.lp.cols[id].lo, r.lp.cols[id].hi = float64(lo), float64(hi)
}

func (r *program) limit(i int, d domain) {
	r.doms[i] = d
	r.lp.rowLo[i], r.lp.rowHi[i] = float64(d.lo), float64(d.hi)
}

// cap bounds the total of a goal.
func (r *program) cap(n int, most int64) {
	r.most[n] = most
}

// feasible tells whether there is a solution; then witness holds one.
func (r *program) feasible() verdict {
	r.proof = nil
	k := len(r.p.domains)
	for i, d := range r.doms {
		if d.lo > d.hi {
			return no
		}
		_ = i
	}
	for n, m := range r.most {
		i := k + len(r.p.classes) + n
		r.lp.rowLo[i], r.lp.rowHi[i] = 0, float64(m)/r.scale[n]
	}
	return r.branch(true)
}

func (r *program) branch(root bool) verdict {
	for id := range r.cols {
		if r.lo[id] > r.hi[id] {
			return no
		}
	}
	switch r.lp.solve(r.price) {
	case lpUnknown:
		r.meter.fail("the linear relaxation did not settle")
		return unknown
	case lpInfeasible:
		p := r.certify()
		if p == nil {
			r.meter.fail("a proof could not be made exact")
			return unknown
		}
		if root {
			r.proof = p
		}
		return no
	}
	// The most promising fraction first: the one nearest to the next whole number.
	at, best := -1, 0.0
	for id := range r.cols {
		x := r.lp.x(id)
		if f := x - math.Floor(x+1e-6); f > 1e-6 && f > best {
			at, best = id, f
		}
	}
	if at < 0 {
		return r.settle()
	}
	floor := int64(math.Floor(r.lp.x(at)))
	lo, hi := r.lo[at], r.hi[at]
	r.bound(at, floor+1, hi)
	v := r.branch(false)
	if v == no {
		r.bound(at, lo, floor)
		v = r.branch(false)
	}
	r.bound(at, lo, hi)
	return v
}

// settle checks in integers a point whose counts are whole, and branches on an
// item whose number has the wrong remainder.
func (r *program) settle() verdict {
	k := len(r.p.domains)
	counts := make([]int64, k)
	nodes := make([]int64, len(r.p.classes))
	totals := make([]int64, r.p.goals)
	x := make([]int64, len(r.cols))
	good := true
	for id, c := range r.cols {
		n := int64(math.Round(r.lp.x(id)))
		x[id] = n
		good = good && n >= r.lo[id] && n <= r.hi[id]
		if n == 0 {
			continue
		}
		c.items.each(func(i int) bool { counts[i] += n; return true })
		nodes[c.class] += n
		for g := range totals {
			totals[g] += n * r.p.classes[c.class].kinds[c.kind].cost[g]
		}
	}
	for i, c := range r.p.classes {
		good = good && nodes[i] == c.nodes
	}
	for g := range totals {
		good = good && totals[g] <= r.most[g]
	}
	odd := -1
	for i, d := range r.doms {
		good = good && counts[i] >= d.lo && counts[i] <= d.hi
		if odd < 0 && !d.has(counts[i]) {
			odd = i
		}
	}
	if !good {
		r.meter.fail("the linear relaxation was too coarse")
		return unknown
	}
	if odd < 0 {
		r.witness = x
		return yes
	}
	d := r.doms[odd]
	v := no
	if up := d.up(counts[odd]); up <= d.hi {
		r.limit(odd, domain{up, d.hi, d.mod, d.rem})
		v = r.branch(false)
	}
	if down := d.down(counts[odd]); v == no && down >= d.lo {
		r.limit(odd, domain{d.lo, down, d.mod, d.rem})
		v = r.branch(false)
	}
	r.limit(odd, d)
	return v
}

// price looks, for the simplex, for a column outside the pool that can lower
// the infeasibility: one set of greatest worth for each kind of node.
func (r *program) price() bool {
	k := len(r.p.domains)
	y := r.lp.y
	scale := r.scaleOf(y)
	if scale == 0 {
		return false
	}
	w := r.round(y[:k], scale)
	added := false
	for ci, c := range r.p.classes {
		if c.listed != nil || c.nodes == 0 {
			continue
		}
		for ki := range c.kinds {
			kd := &c.kinds[ki]
			base := y[k+ci]
			for n := range r.p.goals {
				base += float64(y[k+len(r.p.classes)+n] * (float64(kd.cost[n]) / r.scale[n]))
			}
			above := int64(math.Round(-base*scale)) + proofMargin
			if s, ok := r.heaviest(ci, ki, w, above, func(s *set) bool {
				_, in := r.ids[column{ci, ki, *s}]
				return !in
			}); ok {
				r.column(column{ci, ki, s})
				added = true
			}
			if r.meter.err != nil {
				return false
			}
		}
	}
	return added
}

// heaviest runs the finder for one kind; w may have negative weights.
func (r *program) heaviest(ci, ki int, w []int64, above int64, accept func(*set) bool) (set, bool) {
	f := &r.finder
	c := r.p.classes[ci]
	*f = finder{c: c, k: &c.kinds[ki], meter: r.meter, weight: w, within: c.kinds[ki].allowed,
		above: above, accept: accept, order: f.order, stamp: f.stamp, heavy: f.heavy, stampNo: f.stampNo}
	s, _, ok := f.run()
	return s, ok
}

// proofScale is the size to which multipliers are scaled before they are rounded.
const proofScale = 1 << 32

// proofMargin is the worth, at that scale, below which a column does not count as an improvement.
const proofMargin = 430

func (r *program) scaleOf(y []float64) float64 {
	top := 0.0
	for _, v := range y {
		top = math.Max(top, math.Abs(v))
	}
	if top == 0 {
		return 0
	}
	return proofScale / top
}

func (r *program) round(y []float64, scale float64) []int64 {
	if cap(r.ints) < len(y) {
		r.ints = make([]int64, len(y))
	}
	w := r.ints[:len(y)]
	for i, v := range y {
		w[i] = int64(math.Round(v * scale))
	}
	return w
}
