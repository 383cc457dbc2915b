package solver

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// MaxSizes is the most numbers of nodes that Sizes looks at in one call.
const MaxSizes = 1000

// SizeTable says what each number of nodes gives.
type SizeTable struct {
	// Comparator is the one that decided.
	Comparator string      `json:"comparator"`
	Sizes      []SizeRange `json:"sizes"`
}

// SizeRange is numbers of nodes, one after the other, of which the same can be
// said: a layout whose counts are constant or grow evenly, or why there is none.
type SizeRange struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Layout, most preferred group first; empty where there is none.
	Layout []SizeGroup `json:"layout,omitempty"`
	// Cost of the first and of the last size; nil where a hardware type of the
	// layout has none.
	Cost *SizeCost `json:"cost,omitempty"`
	// Conflict explains, in the words for the first size, why there is none.
	Conflict []Constraint `json:"conflict,omitempty"`
	// Minimal is false where some of Conflict may not matter.
	Minimal bool `json:"minimal,omitempty"`
	// Undecided: the search ended before it knew. Nothing follows from it.
	Undecided string `json:"undecided,omitempty"`
}

// SizeGroup is equal nodes: From of them at the range's first size, To at its last.
type SizeGroup struct {
	From         int      `json:"from"`
	To           int      `json:"to"`
	HardwareType string   `json:"hardwaretype"`
	ImageType    string   `json:"imagetype"`
	Services     []string `json:"services"`
}

// SizeCost is what the first and the last size of a range cost.
type SizeCost struct {
	From Cost `json:"from"`
	To   Cost `json:"to"`
}

// Sizes solves a new cluster of every number of nodes from..to, at most
// MaxSizes, and puts together what is alike. in.Nodes does not matter, and
// in.Budget is for all sizes together. Faults of the input, or of the numbers,
// are its only error.
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
		in.Nodes = 1 // the rest of what is wrong
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

// size returns what is to be said of one size.
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

// extend adds the next size to a range; false where it says something else.
func (r *SizeRange) extend(next *SizeRange) bool {
	sameRule := func(a, b Constraint) bool { return a.Path == b.Path }
	sameKind := func(a, b SizeGroup) bool {
		return a.HardwareType == b.HardwareType && a.ImageType == b.ImageType && slices.Equal(a.Services, b.Services)
	}
	if r.Undecided != next.Undecided || r.Minimal != next.Minimal || (r.Cost == nil) != (next.Cost == nil) ||
		!slices.EqualFunc(r.Conflict, next.Conflict, sameRule) || !slices.EqualFunc(r.Layout, next.Layout, sameKind) {
		return false
	}
	// The counts, and with them the cost, go on as they began.
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

// SmallestSize returns the least number of nodes from..to of which there is a layout; 0 where
// there is none. Its errors are those of Solve.
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
