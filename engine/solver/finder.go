package solver

import (
	"math"
	"sort"
)

// finder searches the sets that one kind of node can carry for the set with the greatest weight. It
// uses branch and bound: each item is in or out, and the bound adds the best item of every clique
// of conflicting items.
//
// It does not list all sets, but it misses none that matters: it skips a set only when another at
// least as good is known.
type finder struct {
	c     *class
	k     *kind
	meter *meter

	weight []int64
	// within are the only items considered; with are items that must be in the set.
	within, with set
	// cuts are inequalities that every set must satisfy.
	cuts []cut
	// accept, if not nil, can refuse a complete set.
	accept func(s *set) bool
	// above is the weight that a set must exceed.
	above int64
	// first selects, among the sets of the greatest weight, the one that comes first when items are
	// compared in their order. It requires that all weights are positive.
	first bool

	// quick permits the use of core, which does not call accept.
	quick bool

	order []int32
	best  set
	found bool

	objective bound
	limits    []bound
	rest      []int64 // scratch of the bounds
	scratch   []int32
}

// cut requires that the sum of coef over a set's items is at least bound.
type cut struct {
	coef  []int64
	bound int64
}

const minWeight = math.MinInt64 / 4

// run returns a set of the greatest weight above f.above, with its weight. It returns false if
// there is none.
func (f *finder) run() (set, int64, bool) {
	// The quick search may return any one of several equally good sets. The complete search is
	// necessary only if accept refuses that set.
	above, accept := f.above, f.accept
	f.accept, f.quick = nil, true
	s, w, ok := f.search(false)
	if ok && accept != nil && !accept(&s) {
		f.above, f.accept, f.quick = above, accept, false
		if s, w, ok = f.search(false); ok && f.first {
			f.above = w - 1
			s, w, ok = f.search(true)
		}
		return s, w, ok
	}
	if !ok || !f.first {
		return s, w, ok
	}
	// Find the set that comes first in the order of the items: each item in turn is put in if a set
	// of this weight remains.
	within, with := f.within, f.with
	allowed := f.k.allowed.and(&f.within)
	allowed.each(func(i int) bool {
		if s.has(i) {
			f.with.add(i)
			return true
		}
		keep := f.with
		f.with.add(i)
		f.above = w - 1
		if other, _, ok := f.search(false); ok {
			s = other
		} else {
			f.with = keep
			f.within.drop(i)
		}
		return f.meter.err == nil
	})
	f.within, f.with = within, with
	f.accept, f.above = accept, w
	if accept != nil && !accept(&s) {
		f.quick, f.above = false, w-1
		return f.search(true)
	}
	return s, w, f.meter.err == nil
}

func (f *finder) search(byItem bool) (set, int64, bool) {
	f.found = false
	base := f.k.forced
	for w := range base {
		base[w] |= f.with[w]
	}
	allowed := f.k.allowed.and(&f.within)
	if !allowed.holds(&base) {
		return set{}, 0, false
	}
	f.order = f.order[:0]
	free := allowed.minus(&base)
	f.order = free.appendItems(f.order)
	if !byItem {
		sort.SliceStable(f.order, func(a, b int) bool {
			x, y := f.order[a], f.order[b]
			if f.weight[x] != f.weight[y] {
				return f.weight[x] > f.weight[y]
			}
			return f.c.degree[x] < f.c.degree[y]
		})
	}
	f.objective = newBound(f.c, f.k, f.weight)
	f.limits = f.limits[:0]
	for i := range f.cuts {
		f.limits = append(f.limits, newBound(f.c, f.k, f.cuts[i].coef))
	}
	if len(f.rest) < len(f.weight) {
		f.rest = make([]int64, len(f.weight))
	}
	cur := set{}
	room := f.k.room
	total := int64(0)
	ok := true
	base.each(func(i int) bool {
		ok = !f.c.conflict[i].meets(&base)
		for d, n := range f.c.need[i] {
			room[d] -= n
			ok = ok && room[d] >= 0
		}
		cur.add(i)
		total += f.weight[i]
		free = free.minus(&f.c.conflict[i])
		return ok
	})
	if !ok || f.completes(&cur) {
		return set{}, 0, false
	}
	have := make([]int64, len(f.cuts))
	for n := range f.cuts {
		cur.each(func(i int) bool { have[n] += f.cuts[n].coef[i]; return true })
	}
	if !f.quick {
		f.rec(0, cur, free, total, room, have)
		return f.best, f.above, f.found
	}
	if len(f.cuts) == 0 {
		gain := set{}
		free.each(func(i int) bool {
			if f.weight[i] > 0 {
				gain.add(i)
			}
			return true
		})
		if f.k.bare || !cur.empty() || !gain.empty() {
			free = gain
		}
	}
	f.core(cur, free, total, room, have)
	return f.best, f.above, f.found
}

// completes reports whether s contains all items of a set that may not share a node.
func (f *finder) completes(s *set) bool {
	for i := range f.c.together {
		if s.holds(&f.c.together[i]) {
			return true
		}
	}
	return false
}

// rec decides the items from position n of the order on. free holds the items that can still be
// added to cur.
func (f *finder) rec(n int, cur, free set, total int64, room [dimensions]int64, have []int64) {
	if !f.meter.spend(1) {
		return
	}
	for {
		if !f.objective.reaches(f, &free, &room, f.above+1-total) {
			return
		}
		open := false
		for c := range f.cuts {
			if have[c] < f.cuts[c].bound {
				open = true
			}
			if !f.limits[c].reaches(f, &free, &room, f.cuts[c].bound-have[c]) {
				return
			}
		}
		if !open && (!cur.empty() || f.k.bare) && total > f.above && (f.accept == nil || f.accept(&cur)) {
			f.best, f.above, f.found = cur, total, true
		}
		for n < len(f.order) && !free.has(int(f.order[n])) {
			n++
		}
		if n == len(f.order) {
			return
		}
		i := int(f.order[n])
		n++
		free.drop(i)
		if with, withRoom, ok := f.include(i, &cur, room); ok {
			more := have
			if len(have) > 0 {
				more = make([]int64, len(have))
				for c := range have {
					more[c] = have[c] + f.cuts[c].coef[i]
				}
			}
			f.rec(n, with, free.minus(&f.c.conflict[i]), total+f.weight[i], withRoom, more)
			if f.meter.err != nil {
				return
			}
		}
	}
}

// core is rec without a fixed order. It adds items that can do no harm at once, and decides the
// item with the most conflicts first, which splits the problem into smaller ones.
func (f *finder) core(cur, free set, total int64, room [dimensions]int64, have []int64) {
	own := false // whether this call may change have
	for {
		if !f.meter.spend(1) {
			return
		}
		at, degree := -1, -1
		sure := -1
		free.each(func(i int) bool {
			around := f.c.conflict[i].and(&free)
			n := around.size()
			if n <= 1 && f.harmless(i, &around) {
				sure = i
				return false
			}
			if n > degree || n == degree && f.weight[i] > f.weight[at] {
				at, degree = i, n
			}
			return true
		})
		if sure >= 0 {
			at = sure
		} else {
			if !f.objective.reaches(f, &free, &room, f.above+1-total) {
				return
			}
			open := false
			for c := range f.cuts {
				open = open || have[c] < f.cuts[c].bound
				if !f.limits[c].reaches(f, &free, &room, f.cuts[c].bound-have[c]) {
					return
				}
			}
			if !open && (!cur.empty() || f.k.bare) && total > f.above {
				f.best, f.above, f.found = cur, total, true
			}
			if at < 0 {
				return
			}
		}
		free.drop(at)
		with, withRoom, ok := f.include(at, &cur, room)
		if !ok {
			continue
		}
		more := have
		if len(have) > 0 && (sure < 0 || !own) {
			more = append([]int64(nil), have...)
		}
		for c := range more {
			more[c] += f.cuts[c].coef[at]
		}
		left := free.minus(&f.c.conflict[at])
		if sure >= 0 {
			cur, free, total, room, have, own = with, left, total+f.weight[at], withRoom, more, true
			continue
		}
		f.core(with, left, total+f.weight[at], withRoom, more)
		if f.meter.err != nil {
			return
		}
	}
}

// harmless reports whether item i can be added regardless of the other items: it takes no limited
// capacity, is in no set of together, and is worth at least as much, for the weight and for every
// cut, as the one item, if any, that it excludes.
func (f *finder) harmless(i int, around *set) bool {
	if f.c.joint.has(i) {
		return false
	}
	for d, n := range f.c.need[i] {
		if n > 0 && f.k.room[d] < noLimit/2 {
			return false
		}
	}
	j := -1
	around.each(func(o int) bool { j = o; return false })
	beats := func(coef []int64) bool { return coef[i] >= 0 && (j < 0 || coef[i] >= coef[j]) }
	if !beats(f.weight) {
		return false
	}
	for c := range f.cuts {
		if !beats(f.cuts[c].coef) {
			return false
		}
	}
	return true
}

func (f *finder) include(i int, cur *set, room [dimensions]int64) (set, [dimensions]int64, bool) {
	for d, n := range f.c.need[i] {
		if room[d] -= n; room[d] < 0 {
			return set{}, room, false
		}
	}
	with := *cur
	with.add(i)
	return with, room, !f.completes(&with)
}
