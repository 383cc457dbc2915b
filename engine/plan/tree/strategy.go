package tree

import (
	"fmt"
	"strings"
)

// Kind is how the children of an element follow each other.
type Kind uint8

// The kinds; snapshots have their numbers (docs/spec/plans.md §3; Batch: docs/spec/planner.md, "Graph" 4).
const (
	Serial     Kind = iota // one after the other
	Parallel               // all at once
	Dependency             // each after those that it depends on
	Random                 // any one
	Batch                  // so many at once
)

var kindNames = [...]string{"serial", "parallel", "dependency", "random", "batch"}

// canaries is how many steps an operator releases one by one.
const canaries = 2

// Strategy is how the children of an element are worked on. The zero value is
// serial, the default.
type Strategy struct {
	Kind Kind `json:"kind,omitempty"`
	// Canary is how many steps wait for an operator, one by one, before the rest
	// goes on; 0: none. Of phases only.
	Canary int `json:"canary,omitempty"`
	// Size is how many are worked on at once, with Percent of a hundred. For Batch.
	Size    int  `json:"size,omitempty"`
	Percent bool `json:"percent,omitempty"`
	// MaxFailures is how many steps may fail and the next batch still goes on.
	MaxFailures int `json:"max_failures,omitempty"`
}

// ParseStrategy reads a strategy's name: "serial" (or ""), "parallel",
// "dependency", "random", each with "-canary" behind it, "canary" (which is
// serial-canary), and "batch N" or "batch N%".
func ParseStrategy(name string) (Strategy, error) {
	base, canary := strings.CutSuffix(name, "canary")
	if canary {
		base = strings.TrimSuffix(base, "-")
	}
	s := Strategy{}
	if canary {
		s.Canary = canaries
	}
	if base == "" {
		return s, nil
	}
	if size, ok := strings.CutPrefix(base, "batch "); ok && !canary {
		s.Kind = Batch
		return s, s.SetBatch(size)
	}
	for i, n := range kindNames[:Batch] {
		if n == base && (!canary || name == n+"-canary") {
			s.Kind = Kind(i)
			return s, nil
		}
	}
	return s, fmt.Errorf("there is no strategy %q: it must be serial, parallel, canary, serial-canary, parallel-canary or batch", name)
}

// SetBatch reads how many steps are worked on at once: "3" or "25%".
func (s *Strategy) SetBatch(size string) error {
	digits, percent := strings.CutSuffix(size, "%")
	n := 0
	for _, c := range digits {
		if c < '0' || c > '9' || n > 1_000_000 {
			n = 0
			break
		}
		n = n*10 + int(c-'0')
	}
	if n < 1 || percent && n > 100 {
		return fmt.Errorf("a batch is a number of steps from 1 on, or 1%% to 100%% of them, but is %q", size)
	}
	s.Size, s.Percent = n, percent
	return nil
}

// String returns the strategy's name as the API shows it.
func (s Strategy) String() string {
	name := "unknown"
	if int(s.Kind) < len(kindNames) {
		name = kindNames[s.Kind]
	}
	if s.Canary > 0 {
		name += "-canary"
	}
	return name
}

// batch returns how many of n children are worked on at once: never more than asked for, but
// one at least.
func (s Strategy) batch(n int) int {
	if !s.Percent {
		return max(s.Size, 1)
	}
	return max(n*s.Size/100, 1)
}

// Tolerates reports whether so many failed children let the others go on.
func (s Strategy) Tolerates(failed int) bool { return failed <= s.MaxFailures }

// Child is what a parent sees of a child.
type Child struct {
	// Status is the one it is shown with.
	Status Status
	// Interrupted: an operator or a canary holds it back.
	Interrupted bool
	// Behind: it comes behind canaries that were not all released yet.
	Behind bool
	// Waits: something that it depends on is not complete (Dependency).
	Waits bool
	// Dirty: it conflicts with what is at work on the same asset.
	Dirty bool
	// Tolerated: it is ERROR, but so much may fail.
	Tolerated bool
	// Over: it is not complete, but counts so for those behind it, for all that
	// is not complete of it has failed and is tolerated.
	Over bool
}

func (c *Child) over() bool { return c.Status == Complete || c.Over }

// eligible reports whether a child may be worked on, as far as it is concerned (§3).
func (c *Child) eligible() bool {
	return !c.over() && (c.Status != Error || c.Tolerated) && !c.Interrupted && !c.Behind && !c.Dirty
}

// Candidates returns the indexes of the children that may be worked on now, those under way
// included. pick chooses one of n, for Random; nil takes the first.
//
// Order is kept on every run: who is restarted is waited for again, and the canaries of a
// serial phase follow each other too (in the SDK neither holds: §"What to do differently" 3).
func (s Strategy) Candidates(children []Child, pick func(n int) int) []int {
	from, to := 0, len(children)
	if s.Kind == Serial || s.Kind == Batch {
		size := 1
		if s.Kind == Batch {
			size = s.batch(to)
		}
		for from < to && children[from].over() {
			from++
		}
		from = from / size * size
		to = min(to, from+size)
	}
	var out []int
	for i := from; i < to; i++ {
		if c := &children[i]; c.eligible() && (s.Kind != Dependency || !c.Waits) {
			out = append(out, i)
		}
	}
	if s.Kind == Random && len(out) > 1 {
		i := 0
		if pick != nil {
			i = pick(len(out))
		}
		return []int{out[i]}
	}
	return out
}
