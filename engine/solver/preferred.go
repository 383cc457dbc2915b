package solver

import (
	"slices"
	"sort"
)

// counted is one column of a solution and its number of nodes.
type counted struct {
	column
	n int64
}

// box bounds the counts of some columns.
type box map[column][2]int64

// preferrer finds the solution within the box that is greatest when counts are compared in the
// order of preference of the columns (docs/spec/solver.md rule 8).
//
// It follows that order. In each step it determines the next column that can have a count above
// zero, and the greatest count that this column can have given all earlier ones. A column that
// cannot be used leaves a proof behind, which rules out other columns immediately.
type preferrer struct {
	*program
	proofs []*proof
	// done holds the columns that are decided.
	done map[column]bool
	// boxed holds the columns that had bounds from the start. Proofs count them exactly, so they
	// are separate candidates.
	boxed []column
	left  []int64         // nodes left by class
	used  []int64         // count so far by item
	paid  [maxGoals]int64 // total of each goal so far
	// next holds the next candidate of each class and kind, as long as it is valid.
	next    [][]candidate
	compare func(a, b *column) int
}

type candidate struct {
	state  int8 // 0: not searched yet, 1: found, 2: there is none
	items  set
	weight int64
}

// preferred returns the preferred solution of p within the box and the least total of every goal.
// The verdict is no if there is no solution.
func preferred(p *problem, m *meter, within box, compare func(a, b *column) int) ([]counted, []int64, verdict) {
	r := newProgram(p, m)
	for _, c := range sortedColumns(within) {
		b := within[c]
		r.bound(r.column(c), b[0], b[1])
	}
	if v := r.feasible(); v != yes {
		return nil, nil, v
	}
	for n := range p.goals {
		if v := r.least(n); v != yes {
			return nil, nil, v
		}
	}
	f := &preferrer{program: r, done: map[column]bool{}, compare: compare, boxed: sortedColumns(within),
		left: make([]int64, len(p.classes)), used: make([]int64, len(p.domains))}
	for i, c := range p.classes {
		f.left[i] = c.nodes
		f.next = append(f.next, make([]candidate, len(c.kinds)))
	}
	out, v := f.run()
	return out, append([]int64(nil), r.most...), v
}

// least lowers the limit of goal n's total to the least possible total.
func (r *program) least(n int) verdict {
	total := func() int64 {
		t := int64(0)
		for id, x := range r.witness {
			t += x * r.p.classes[r.cols[id].class].kinds[r.cols[id].kind].cost[n]
		}
		return t
	}
	low, high := int64(0), total() // totals below low are refuted, high is possible
	for _, c := range r.p.classes {
		least := noLimit
		for i := range c.kinds {
			least = min(least, c.kinds[i].cost[n])
		}
		if c.nodes > 0 && least < noLimit {
			low += least * c.nodes
		}
	}
	keep := append([]int64(nil), r.witness...)
	try := low
	for low < high {
		r.cap(n, try)
		switch r.feasible() {
		case unknown:
			return unknown
		case yes:
			high = total()
			keep = append(keep[:0], r.witness...)
		case no:
			up := try + 1
			if q := r.proof; q != nil && q.goals[n] < 0 {
				// The proof holds as long as need is above zero. need falls by -q.goals[n] for each
				// unit by which the limit rises.
				up = max(up, try-floorDiv(-q.need, -q.goals[n]))
			}
			low = up
		}
		if low >= high {
			break
		}
		if try = low; r.proof == nil {
			try = low + (high-low)/2
		}
	}
	r.cap(n, high)
	r.witness = keep
	return yes
}

func (f *preferrer) run() ([]counted, verdict) {
	var out []counted
	for {
		left := int64(0)
		for _, n := range f.left {
			left += n
		}
		if left == 0 {
			return out, yes
		}
		c, ok := f.candidate()
		if f.meter.err != nil {
			return nil, unknown
		}
		if !ok {
			f.meter.fail("no column is left although there is a solution")
			return nil, unknown
		}
		n, v := f.decide(c)
		if v == unknown {
			return nil, unknown
		}
		f.done[c] = true
		if n == 0 {
			continue
		}
		for _, q := range f.proofs {
			q.need -= q.worth(f.p, &c) * n
		}
		f.left[c.class] -= n
		for g := range f.most {
			f.paid[g] += n * f.p.classes[c.class].kinds[c.kind].cost[g]
		}
		c.items.each(func(i int) bool { f.used[i] += n; return true })
		out = append(out, counted{c, n})
	}
}

// decide determines the greatest count that column c can have, and fixes the count to it.
func (f *preferrer) decide(c column) (int64, verdict) {
	id := f.program.column(c)
	sure := f.lo[id] // known to be possible
	if id < len(f.witness) {
		sure = max(sure, f.witness[id])
	}
	most := min(f.hi[id], f.left[c.class])
	c.items.each(func(i int) bool { most = min(most, f.p.domains[i].hi-f.used[i]); return true })
	for n := range f.most {
		if cost := f.p.classes[c.class].kinds[c.kind].cost[n]; cost > 0 {
			most = min(most, (f.most[n]-f.paid[n])/cost)
		}
	}
	if slices.Contains(f.boxed, c) {
		for _, q := range f.proofs { // from here on the proofs exclude this column
			w := q.worth(f.p, &c)
			q.need += max(w*f.lo[id], w*f.hi[id])
		}
	}
	if sure < most {
		n, v := f.program.greatest(id, sure, most)
		if v != yes {
			return 0, v
		}
		if q := f.proof; q != nil {
			// The proof is for counts greater than f.top, and it counts this column exactly. Remove
			// that part.
			w := q.worth(f.p, &c)
			q.need += max(w*(f.top+1), w*f.hi[id])
			f.learn(q)
		}
		sure = n
	}
	f.bound(id, sure, sure)
	return sure, yes
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

const keepProofs = 24

func (f *preferrer) learn(q *proof) {
	if len(f.proofs) == keepProofs {
		copy(f.proofs, f.proofs[1:])
		f.proofs = f.proofs[:keepProofs-1]
	}
	f.proofs = append(f.proofs, q)
}

// candidate returns the most preferred column that is not ruled out yet.
func (f *preferrer) candidate() (column, bool) {
	var best column
	found := false
	for ci, c := range f.p.classes {
		if f.left[ci] == 0 {
			continue
		}
		for ki := range c.kinds {
			s, ok := f.candidateOf(ci, ki)
			if !ok {
				continue
			}
			if c := (column{ci, ki, s}); !found || f.before(&c, &best) {
				best, found = c, true
			}
		}
	}
	for i := range f.boxed {
		c := &f.boxed[i]
		if !f.done[*c] && f.left[c.class] > 0 && (!found || f.before(c, &best)) {
			best, found = *c, true
		}
	}
	return best, found
}

func (f *preferrer) before(a, b *column) bool {
	wa, wb := f.services(a), f.services(b)
	if wa != wb {
		return wa > wb
	}
	ra, rb := f.p.classes[a.class].kinds[a.kind].rank, f.p.classes[b.class].kinds[b.kind].rank
	if ra != rb {
		return ra < rb
	}
	if c := f.compare(a, b); c != 0 {
		return c < 0
	}
	return a.class < b.class
}

func (f *preferrer) services(c *column) int64 {
	n := f.p.classes[c.class].kinds[c.kind].base
	c.items.each(func(i int) bool { n += f.p.weight[i]; return true })
	return n
}

func (f *preferrer) candidateOf(ci, ki int) (set, bool) {
	c := f.p.classes[ci]
	k := &c.kinds[ki]
	n := &f.next[ci][ki]
	if n.state == 2 {
		return set{}, false
	}
	for g := range f.most {
		if k.cost[g] > f.most[g]-f.paid[g] {
			n.state = 2
			return set{}, false
		}
	}
	within := k.allowed
	with := set{}
	for i, d := range f.p.domains {
		switch {
		case d.down(d.hi) <= f.used[i]:
			within.drop(i)
		case len(f.p.classes) == 1 && d.lo-f.used[i] >= f.left[ci]:
			with.add(i)
		}
	}
	cuts := make([]cut, 0, len(f.proofs))
	for _, q := range f.proofs {
		bound := q.need + q.mu[ci]
		for g, y := range q.goals {
			bound -= y * k.cost[g]
		}
		cuts = append(cuts, cut{q.items, bound})
	}
	keeps := func(s *set) bool {
		if c := (column{ci, ki, *s}); f.done[c] || slices.Contains(f.boxed, c) || !within.holds(s) || !s.holds(&with) {
			return false
		}
		for _, c := range cuts {
			sum := int64(0)
			s.each(func(i int) bool { sum += c.coef[i]; return true })
			if sum < c.bound {
				return false
			}
		}
		return true
	}
	if c.listed != nil {
		for i := range c.listed {
			if keeps(&c.listed[i]) {
				return c.listed[i], true
			}
		}
		n.state = 2
		return set{}, false
	}
	if n.state == 1 && keeps(&n.items) {
		return n.items, true
	}
	fd := &f.finder
	*fd = finder{c: c, k: k, meter: f.meter, weight: f.p.weight, within: within, with: with, cuts: cuts, first: true, above: -1,
		accept: func(s *set) bool {
			c := column{ci, ki, *s}
			return !f.done[c] && !slices.Contains(f.boxed, c)
		}, order: fd.order, rest: fd.rest, scratch: fd.scratch, limits: fd.limits}
	s, w, ok := fd.run()
	if !ok {
		n.state = 2
		return set{}, false
	}
	*n = candidate{1, s, w}
	return s, true
}

func sortedColumns(b box) []column {
	out := make([]column, 0, len(b))
	for c := range b {
		out = append(out, c)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := &out[i], &out[j]
		if a.class != b.class {
			return a.class < b.class
		}
		if a.kind != b.kind {
			return a.kind < b.kind
		}
		for w := range a.items {
			if a.items[w] != b.items[w] {
				return a.items[w] < b.items[w]
			}
		}
		return false
	})
	return out
}
