package solver

import (
	"context"
	"slices"
	"strconv"
)

// Solve returns the preferred layout. Its errors are model.Faults for an invalid input (all faults
// at once), *Unsolvable if no layout exists, and an error that wraps ErrBudget if the budget or the
// context ended first.
func Solve(ctx context.Context, in Input) (*Answer, error) {
	m := newMeter(ctx, in.Budget)
	w, err := understand(in, m)
	if err != nil {
		return nil, err
	}
	on := w.all()
	s, v := w.solution(on)
	switch v {
	case unknown:
		return nil, m.err
	case no:
		return nil, w.explain()
	}
	return w.answer(s), nil
}

// all returns a selection with every rule on.
func (w *world) all() []bool {
	on := make([]bool, len(w.rules))
	for i := range on {
		on[i] = true
	}
	return on
}

// solution is a layout in terms of the problem for which it was found.
type solution struct {
	*built
	counts []counted
	// removed are the existing nodes to be deleted, newest first.
	removed []*ExistingNode
	places  []Placement
}

// solution returns the preferred layout under the rules that are on.
func (w *world) solution(on []bool) (*solution, verdict) {
	b := w.build(on)
	if b.impossible {
		return nil, no
	}
	if b.gone >= 0 {
		return w.shrunk(b, on)
	}
	var found *solution
	m := w.meter
	v := enumerate(b.problem, w.meter, b.before, func(counts []counted) bool {
		s := &solution{built: b, counts: counts}
		if w.excluded(s, on) || !w.place(s, on) {
			return m.err != nil // a search that has ended stops here too
		}
		found = s
		return true
	})
	if m.err != nil {
		return nil, unknown
	}
	return found, v
}

// possible reports whether any layout satisfies the rules that are on.
func (w *world) possible(on []bool) verdict {
	for i := range w.rules {
		switch w.rules[i].kind {
		case ruleExclude, ruleSpreadHost, ruleSpreadZone:
			if on[i] {
				_, v := w.solution(on)
				return v
			}
		}
	}
	b := w.build(on)
	if b.impossible {
		return no
	}
	return newProgram(b.problem, w.meter).feasible()
}

// before compares columns of different classes that have the same worth and the same types. It
// orders them by the names of all services on the node.
func (b *built) before(x, y *column) int {
	return slices.Compare(b.services(x), b.services(y))
}

// services returns all services that a node of a column carries, sorted.
func (b *built) services(c *column) []string {
	out := slices.Clone(b.anyway[c.class])
	c.items.each(func(i int) bool { out = append(out, b.items[i]...); return true })
	slices.Sort(out)
	return out
}

// excluded reports whether the layout is one that Input.Exclude forbids.
func (w *world) excluded(s *solution, on []bool) bool {
	if len(w.in.Exclude) == 0 {
		return false
	}
	mine := map[string]int{}
	for _, c := range s.counts {
		k := &s.classes[c.class].kinds[c.kind]
		mine[key(w.hardware[k.hw].name, w.images[k.img], s.services(&c.column))] += int(c.n)
	}
next:
	for i := range w.rules {
		r := &w.rules[i]
		if r.kind != ruleExclude || !on[i] {
			continue
		}
		theirs := map[string]int{}
		for _, g := range w.in.Exclude[r.index] {
			if g.Count > 0 {
				theirs[key(g.HardwareType, g.ImageType, sortedUnique(g.Services))] += g.Count
			}
		}
		if len(mine) != len(theirs) {
			continue
		}
		for k, n := range mine {
			if theirs[k] != n {
				continue next
			}
		}
		return true
	}
	return false
}

func nodesWord(n int) string {
	if n == 1 {
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}
