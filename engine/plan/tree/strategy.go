package tree

import (
	"fmt"
	"strings"
)

// Kind is the order in which the children of an element are handled.
type Kind uint8

// The kinds. Snapshots contain their numbers (docs/spec/plans.md §3; Batch:
// docs/spec/planner.md, "Graph" 4).
const (
	Serial     Kind = iota // one after the other
	Parallel               // all at once
	Dependency             // each after its dependencies
	Random                 // any one
	Batch                  // a given number at once
)

var kindNames = [...]string{"serial", "parallel", "dependency", "random", "batch"}

// canaries is the number of steps that an operator releases one by one.
const canaries = 2

// Strategy defines how the children of an element are handled. The zero value is serial, the
// default.
type Strategy struct {
	Kind Kind `json:"kind,omitempty"`
	// Canary is the number of steps that wait for an operator, one by one, before the rest goes
	// on; 0: none. For phases only.
	Canary int `json:"canary,omitempty"`
	// Size is how many children are handled at once, or with Percent, how many percent of them.
	// For Batch.
	Size    int  `json:"size,omitempty"`
	Percent bool `json:"percent,omitempty"`
	// MaxFailures is how many steps may fail while the others go on. If one more fails, no further
	// batch begins.
	MaxFailures int `json:"max_failures,omitempty"`
}

// ParseStrategy parses the name of a strategy: "serial" (or ""), "parallel", "dependency",
// "random", each optionally followed by "-canary", "canary" (which is serial-canary), and
// "batch N" or "batch N%".
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

// SetBatch parses the size of a batch: "3" or "25%".
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

// String returns the strategy's name as in the API.
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

// batch returns how many of n children are handled at once: at most Size, and at least one.
func (s Strategy) batch(n int) int {
	if !s.Percent {
		return max(s.Size, 1)
	}
	return max(n*s.Size/100, 1)
}

// Tolerates reports whether the others may go on after this number of failed children.
func (s Strategy) Tolerates(failed int) bool { return failed <= s.MaxFailures }

// Child is the state of a child as its parent uses it.
type Child struct {
	// Status is the status that it is shown with.
	Status Status
	// Interrupted: an operator or a canary holds it back.
	Interrupted bool
	// Behind: it is behind canaries that have not all been released.
	Behind bool
	// GoesOn: it has begun, and goes on to its end while its phase or the plan is held back.
	GoesOn bool
	// Waits: a dependency of it is not complete (Dependency).
	Waits bool
	// Dirty: it conflicts with current work on the same node or service.
	Dirty bool
	// Tolerated: it is ERROR, but within the tolerated failures.
	Tolerated bool
	// Over: it is not complete, but counts as complete for the children behind it, because
	// everything unfinished in it is a tolerated failure.
	Over bool
}

func (c *Child) over() bool { return c.Status == Complete || c.Over }

// eligible reports whether a child may be handled, as far as its own state is concerned (§3).
func (c *Child) eligible() bool {
	return !c.over() && (c.Status != Error || c.Tolerated) && !c.Interrupted && !c.Behind && !c.Dirty
}

// Candidates returns the indexes of the children that may be handled now, including running
// ones. The function pick chooses one of n for Random; nil takes the first.
//
// Order is kept in every run: later children wait again for a restarted one, and the canaries
// of a serial phase follow each other too (unlike in the SDK: §"What to do differently" 3).
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
