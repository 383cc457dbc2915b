package solver

import "math"

// program decides whether a problem has a solution within bounds on its columns, by branch and
// bound over the simplex. Columns are created when the simplex needs them, so that sets that no
// solution needs are never examined.
//
// Its rows are the items' counts, then the classes' numbers of nodes, then the goals' totals.
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

	// witness is the last solution found, as counts by column.
	witness []int64
	// proof is the certificate of the last negative answer, or nil if no single certificate shows
	// it.
	proof *proof

	// goal is the column whose count is maximized, or -1. best is the greatest count found, and top
	// is the greatest count possible.
	goal      int
	best, top int64
	// rule is the rule of branching, tries is the number of branches in each try, and nodes is the
	// number of branches that are left in this try.
	rule         branching
	tries, nodes int

	finder finder
	ints   []int64
	counts []int64
}

type verdict int

const (
	yes verdict = iota
	no
	unknown // the meter has ended
	late    // a try has used all its branches
)

func newProgram(p *problem, m *meter) *program {
	k, g := len(p.domains), len(p.classes)
	r := &program{p: p, meter: m, goal: -1, counts: make([]int64, k), ids: map[column]int{}, doms: append([]domain(nil), p.domains...)}
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
		r.most = append(r.most, 0)
		r.cap(n, total)
	}
	for ci, c := range p.classes {
		for i := range c.listed {
			r.column(column{ci, 0, c.listed[i]})
		}
	}
	return r
}

// column returns the id of a column and adds the column if it is new.
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
	i := len(r.p.domains) + len(r.p.classes) + n
	r.lp.rowLo[i], r.lp.rowHi[i] = 0, float64(most)/r.scale[n]
}

// feasible reports whether there is a solution. If there is, witness holds one.
func (r *program) feasible() verdict {
	r.proof = nil
	for _, d := range r.doms {
		if d.lo > d.hi {
			return no
		}
	}
	return r.search(true)
}

// branching is a rule for choosing the fraction to branch on.
type branching int

const (
	mostFractional branching = iota
	firstFraction
	nearlyWhole
	allRules
)

// search runs the branch and bound with each rule of branching in turn, and doubles the number of
// branches after each round. The rule changes the duration of a search by orders of magnitude, and
// no rule is good for all problems.
func (r *program) search(root bool) verdict {
	for r.tries = 40; ; r.tries *= 2 {
		for r.rule = 0; r.rule < allRules; r.rule++ {
			if r.goal >= 0 {
				r.bound(r.goal, r.best+1, r.hi[r.goal])
			}
			r.nodes = r.tries
			if v := r.branch(root); v != late {
				return v
			}
			root = false
		}
	}
}

// greatest returns the greatest count that column id has in any solution. sure is a count that is
// known to be possible, and most is a count that no solution exceeds. The proof that a greater
// count is impossible stays in r.proof if the relaxation provides it.
func (r *program) greatest(id int, sure, most int64) (int64, verdict) {
	r.proof = nil
	lo, hi := r.lo[id], r.hi[id]
	r.lp.raise = id
	defer func() {
		r.lp.raise, r.goal = -1, -1
		r.bound(id, lo, hi)
	}()
	r.bound(id, sure, hi)
	if v := r.relax(false); v != yes {
		if v == no {
			r.meter.fail("a count that was possible is not")
		}
		return 0, unknown
	}
	top := min(most, max(sure, int64(math.Floor(r.lp.x(id)+1e-6))))
	for top < most {
		// The final multipliers of the simplex should prove that no greater count is possible.
		r.bound(id, top+1, hi)
		if r.proof = r.certify(); r.proof != nil {
			break
		}
		if v := r.relax(true); v == unknown {
			return 0, unknown
		} else if v == no {
			break
		}
		top++
	}
	r.goal, r.best, r.top = id, sure, top
	if r.best < r.top {
		proof := r.proof
		v := r.search(false)
		r.proof = proof
		if v == unknown {
			return 0, unknown
		}
		if r.best < r.top {
			r.proof = nil // the search has established it without a single proof
		}
	}
	return r.best, yes
}

// branch searches the solutions within the bounds. Without a goal it ends with yes at the first
// solution. With a goal it continues to solutions with a greater count of that column, and ends
// with yes when the count reaches r.top.
func (r *program) branch(root bool) verdict {
	for id := range r.cols {
		if r.lo[id] > r.hi[id] {
			return no
		}
	}
	if r.nodes--; r.nodes < 0 {
		return late
	}
	for {
		if v := r.relax(root); v != yes {
			return v
		}
		if at := r.fraction(); at >= 0 {
			return r.split(at)
		}
		odd, ok := r.checkWhole()
		if !ok {
			r.meter.fail("the linear relaxation was too coarse")
			return unknown
		}
		if odd >= 0 {
			return r.splitItem(odd)
		}
		if r.goal < 0 {
			return yes
		}
		if r.best = r.witness[r.goal]; r.best >= r.top {
			return yes
		}
		if r.best+1 > r.hi[r.goal] {
			return no
		}
		r.bound(r.goal, r.best+1, r.hi[r.goal]) // search for a better one
	}
}

// split branches on a column whose count is a fraction.
func (r *program) split(at int) verdict {
	floor := int64(math.Floor(r.lp.x(at)))
	lo, hi := r.lo[at], r.hi[at]
	least := func(n int64) int64 { // a solution that is found raises the goal's lower bound permanently
		if at == r.goal {
			return max(n, r.best+1)
		}
		return n
	}
	r.bound(at, floor+1, hi)
	v := r.branch(false)
	if v == no {
		r.bound(at, least(lo), floor)
		v = r.branch(false)
	}
	r.bound(at, least(lo), hi)
	return v
}

// splitItem branches on an item whose count has the wrong remainder.
func (r *program) splitItem(i int) verdict {
	d := r.doms[i]
	n := r.counts[i]
	v := no
	if up := d.up(n); up <= d.hi {
		r.limit(i, domain{up, d.hi, d.mod, d.rem})
		v = r.branch(false)
	}
	if down := d.down(n); v == no && down >= d.lo {
		r.limit(i, domain{d.lo, down, d.mod, d.rem})
		v = r.branch(false)
	}
	r.limit(i, d)
	return v
}

// relax solves the relaxation and proves a negative result. If root, it keeps the proof.
func (r *program) relax(root bool) verdict {
	for {
		switch r.lp.solve(r.price) {
		case lpUnknown:
			r.meter.fail("the linear relaxation did not converge")
			return unknown
		case lpFeasible:
			return yes
		}
		p := r.certify()
		if p != nil {
			if root {
				r.proof = p
			}
			return no
		}
		if r.meter.err != nil {
			return unknown
		}
		if !r.lp.renew() {
			r.meter.fail("a proof could not be made exact")
			return unknown
		}
	}
}

// fraction returns the column to branch on, or -1 if all counts are whole.
func (r *program) fraction() int {
	at, best := -1, 0.0
	for id := range r.cols {
		x := r.lp.x(id)
		f := math.Abs(x - math.Round(x))
		if f < 1e-6 {
			continue
		}
		switch r.rule {
		case firstFraction:
			return id
		case nearlyWhole:
			f = x - math.Floor(x)
		}
		if f > best {
			at, best = id, f
		}
	}
	return at
}

// checkWhole checks in integers a point whose counts are whole. ok is false if the point violates a
// bound. odd is the first item whose count is not in its domain, or -1. If ok is true and odd is
// -1, the point becomes the witness.
func (r *program) checkWhole() (odd int, ok bool) {
	clear(r.counts)
	nodes := make([]int64, len(r.p.classes))
	totals := make([]int64, r.p.goals)
	x := make([]int64, len(r.cols))
	ok = true
	for id, c := range r.cols {
		n := int64(math.Round(r.lp.x(id)))
		x[id] = n
		ok = ok && n >= r.lo[id] && n <= r.hi[id]
		if n == 0 {
			continue
		}
		c.items.each(func(i int) bool { r.counts[i] += n; return true })
		nodes[c.class] += n
		for g := range totals {
			totals[g] += n * r.p.classes[c.class].kinds[c.kind].cost[g]
		}
	}
	for i, c := range r.p.classes {
		ok = ok && nodes[i] == c.nodes
	}
	for g := range totals {
		ok = ok && totals[g] <= r.most[g]
	}
	odd = -1
	for i, d := range r.doms {
		ok = ok && r.counts[i] >= d.lo && r.counts[i] <= d.hi
		if odd < 0 && !d.has(r.counts[i]) {
			odd = i
		}
	}
	if ok && odd < 0 {
		r.witness = x
	}
	return odd, ok
}

// price adds columns outside the pool that can lower the infeasibility, on request of the simplex:
// one set of greatest worth for each kind of node. It reports whether it added any.
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

// heaviest runs the finder for one kind. The weights w may be negative.
func (r *program) heaviest(ci, ki int, w []int64, above int64, accept func(*set) bool) (set, bool) {
	f := &r.finder
	c := r.p.classes[ci]
	*f = finder{c: c, k: &c.kinds[ki], meter: r.meter, weight: w, within: c.kinds[ki].allowed,
		above: above, accept: accept, order: f.order, rest: f.rest, scratch: f.scratch, limits: f.limits}
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
