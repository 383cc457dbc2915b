package solver

import (
	"fmt"
	"slices"
	"strings"
)

// explain returns an *Unsolvable with a minimal set of rules that contradict each other. It halves
// the set of candidates (Junker's QuickXplain): every step asks whether some of the rules permit a
// layout, and only a proof counts as no (docs/spec/solver.md rule 10).
func (w *world) explain() error {
	u := &Unsolvable{Nodes: int(w.nodes)}
	w.meter = newMeter(w.meter.ctx, w.in.Budget)
	var conflict []int
	conflict, u.Minimal = w.minimal()
	for _, i := range conflict {
		u.Conflict = append(u.Conflict, w.rules[i].Constraint)
	}
	if u.Minimal {
		u.Hints = w.hints()
	}
	return u
}

// minimal returns the rules of a conflict in their order, and whether the conflict is minimal. The
// conflict is not minimal if the budget ended: then there is certainly no layout, but some of the
// rules may not matter. The rules that services stay on a shrunk cluster are left out, unless they
// are a conflict by themselves.
func (w *world) minimal() ([]int, bool) {
	var stay, rest []int
	for i := range w.rules {
		if w.rules[i].kind == ruleStay {
			stay = append(stay, i)
		} else {
			rest = append(rest, i)
		}
	}
	var conflict []int
	if w.possible(w.only(stay)) == no {
		conflict = w.conflict(nil, false, stay)
	} else {
		conflict = w.conflict(stay, false, rest)
	}
	slices.Sort(conflict)
	return conflict, w.meter.err == nil
}

// conflict returns a minimal subset of candidates that permits no layout together with the rules in
// given. The rules in given alone permit one. changed means that given has grown since this was
// established.
func (w *world) conflict(given []int, changed bool, candidates []int) []int {
	if w.meter.err != nil {
		return candidates
	}
	if changed {
		if v := w.possible(w.only(given)); v == no {
			return nil
		}
	}
	if len(candidates) <= 1 {
		return candidates
	}
	half := len(candidates) / 2
	first, second := candidates[:half], candidates[half:]
	b := w.conflict(slices.Concat(given, first), true, second)
	a := w.conflict(slices.Concat(given, b), len(b) > 0, first)
	return slices.Concat(a, b)
}

// only returns a selection with only the given rules on.
func (w *world) only(rules []int) []bool {
	on := make([]bool, len(w.rules))
	for _, i := range rules {
		on[i] = true
	}
	return on
}

// hintBudget bounds the search for hints: about a twentieth of a second.
const hintBudget = 50_000

// hints returns the nearest other numbers of nodes that have a layout, as far as the search for
// them is cheap.
func (w *world) hints() []string {
	m := newMeter(w.meter.ctx, min(hintBudget, w.meter.left+1))
	var more func(in *Input, d int64)
	from, word := w.nodes, "node"
	switch w.in.Change.Kind {
	case Create:
		more = func(in *Input, d int64) { in.Nodes += int(d) }
	case Grow:
		more = func(in *Input, d int64) { in.Change.Nodes += int(d) }
		from, word = w.fresh, "new node"
	case AddServices:
		more = func(in *Input, d int64) { in.Change.Nodes += int(d) }
		from, word = w.fresh, "new node"
	default:
		return nil
	}
	solves := func(d int64) bool {
		if from+d < 0 || w.nodes+d < 1 || w.nodes+d > w.in.maxNodes() {
			return false
		}
		in := w.in
		more(&in, d)
		o, err := understand(in, m)
		if err != nil {
			return false
		}
		return o.possible(o.all()) == yes
	}
	var out []string
	for _, sign := range []int64{1, -1} {
		found, below := int64(0), int64(0)
		for d := int64(1); d <= 4096; {
			if solves(sign * d) {
				found = d
				break
			}
			if below = d; d < 8 {
				d++
			} else {
				d *= 2
			}
		}
		if found == 0 {
			continue
		}
		for found-below > 1 {
			if mid := (found + below) / 2; solves(sign * mid) {
				found = mid
			} else {
				below = mid
			}
		}
		n := from + sign*found
		if n != 1 {
			word += "s"
		}
		out = append(out, fmt.Sprintf("with %d %s instead of %d it has a solution", n, word, from))
		word = strings.TrimSuffix(word, "s")
	}
	return out
}
