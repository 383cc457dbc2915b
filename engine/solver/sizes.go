package solver

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// MaxSizes is the greatest number of sizes that one call of Sizes accepts.
const MaxSizes = 1000

// SizeTable is the result of Sizes: the layout or the conflict of each number of nodes.
type SizeTable struct {
	// Comparator is the name of the comparator that decided.
	Comparator string      `json:"comparator"`
	Sizes      []SizeRange `json:"sizes"`
}

// SizeRange is a range of consecutive numbers of nodes with the same result: a layout whose counts
// are constant or grow evenly, or the same conflict.
type SizeRange struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Layout has the most preferred group first; empty if there is no layout.
	Layout []SizeGroup `json:"layout,omitempty"`
	// Cost is the cost of the first and the last size; nil if a hardware type of the layout has no
	// cost.
	Cost *SizeCost `json:"cost,omitempty"`
	// Conflict lists the constraints that contradict each other. They are the same for every size
	// of the range; numbers in their texts are those of the first size.
	Conflict []Constraint `json:"conflict,omitempty"`
	// Minimal is false if some of Conflict may not matter.
	Minimal bool `json:"minimal,omitempty"`
	// Undecided is the reason why the search ended without a result. It does not mean that there is
	// no layout.
	Undecided string `json:"undecided,omitempty"`
}

// SizeGroup is a group of equal nodes: From is their number at the range's first size, To at its
// last.
type SizeGroup struct {
	From         int      `json:"from"`
	To           int      `json:"to"`
	HardwareType string   `json:"hardwaretype"`
	ImageType    string   `json:"imagetype"`
	Services     []string `json:"services"`
}

// SizeCost is the cost of the first and of the last size of a range.
type SizeCost struct {
	From Cost `json:"from"`
	To   Cost `json:"to"`
}

// Sizes solves a new cluster of every number of nodes from..to, at most MaxSizes of them, and joins
// equal results to ranges. It ignores in.Nodes. in.Budget is shared by all sizes. The only errors
// are faults of the input or of the numbers, and a Change in the input.
func Sizes(ctx context.Context, in Input, from, to int) (*SizeTable, error) {
	var faults model.Faults
	switch {
	case in.Change.Kind != Create:
		return nil, fmt.Errorf("sizes are of new clusters, not of a change %q", in.Change.Kind)
	case from < 1 || int64(to) > in.maxNodes():
		faults.Add("nodes", fmt.Sprintf("must be from 1 to %d", in.maxNodes()))
	case to < from:
		faults.Add("nodes", fmt.Sprintf("%d is less than %d", to, from))
	case to-from >= MaxSizes:
		faults.Add("nodes", fmt.Sprintf("these are %d sizes: ask for at most %d at a time", to-from+1, MaxSizes))
	}
	if len(faults) > 0 {
		in.Nodes = 1 // to find the other faults
		var more model.Faults
		if _, err := understand(in, newMeter(ctx, in.Budget)); errors.As(err, &more) {
			faults = append(faults, more...)
		}
		return nil, faults
	}
	m := newMeter(ctx, in.Budget)
	t := &SizeTable{}
	for n := from; n <= to; n++ {
		in.Nodes = n
		w, err := understand(in, m)
		if err != nil {
			return nil, err
		}
		t.Comparator = w.comparator
		one := w.size()
		if last := len(t.Sizes) - 1; last < 0 || !t.Sizes[last].extend(&one) {
			t.Sizes = append(t.Sizes, one)
		}
	}
	return t, nil
}

// size solves the cluster for this world's number of nodes. It returns the layout or the conflict,
// as a range of one size.
func (w *world) size() SizeRange {
	r := SizeRange{From: int(w.nodes), To: int(w.nodes)}
	s, v := w.solution(w.all())
	switch v {
	case no:
		var conflict []int
		conflict, r.Minimal = w.minimal()
		for _, i := range conflict {
			r.Conflict = append(r.Conflict, w.rules[i].Constraint)
		}
	case yes:
		a := w.answer(s)
		for _, g := range a.Layout {
			r.Layout = append(r.Layout, SizeGroup{g.Count, g.Count, g.HardwareType, g.ImageType, g.Services})
		}
		if a.Cost != nil {
			r.Cost = &SizeCost{*a.Cost, *a.Cost}
		}
	default:
		r.Undecided = w.meter.err.Error()
	}
	return r
}

// extend adds the next size to a range. It returns false if the result of that size differs.
func (r *SizeRange) extend(next *SizeRange) bool {
	sameRule := func(a, b Constraint) bool { return a.Path == b.Path }
	sameKind := func(a, b SizeGroup) bool {
		return a.HardwareType == b.HardwareType && a.ImageType == b.ImageType && slices.Equal(a.Services, b.Services)
	}
	if r.Undecided != next.Undecided || r.Minimal != next.Minimal || (r.Cost == nil) != (next.Cost == nil) ||
		!slices.EqualFunc(r.Conflict, next.Conflict, sameRule) || !slices.EqualFunc(r.Layout, next.Layout, sameKind) {
		return false
	}
	// The counts, and with them the cost, must continue with the same step.
	sizes := int64(r.To - r.From)
	even := func(from, to, next *big.Rat) bool {
		if sizes == 0 {
			return true
		}
		step := new(big.Rat).Sub(to, from)
		step.Quo(step, new(big.Rat).SetInt64(sizes))
		return step.Add(step, to).Cmp(next) == 0
	}
	for i, g := range r.Layout {
		if !even(big.NewRat(int64(g.From), 1), big.NewRat(int64(g.To), 1), big.NewRat(int64(next.Layout[i].To), 1)) {
			return false
		}
	}
	r.To = next.To
	for i := range r.Layout {
		r.Layout[i].To = next.Layout[i].To
	}
	if r.Cost != nil {
		r.Cost.To = next.Cost.To
	}
	return true
}

// SmallestSize returns the smallest number of nodes in from..to that has a layout, or 0 if none has
// one. Its errors are those of Solve except *Unsolvable.
func SmallestSize(ctx context.Context, in Input, from, to int) (int, error) {
	m := newMeter(ctx, in.Budget)
	for n := max(1, from); n <= to; n++ {
		in.Nodes = n
		w, err := understand(in, m)
		if err != nil {
			return 0, err
		}
		switch w.possible(w.all()) {
		case yes:
			return n, nil
		case unknown:
			return 0, m.err
		}
	}
	return 0, nil
}
