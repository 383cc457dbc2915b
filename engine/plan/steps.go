package plan

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/coopr/coopr/engine/model"
)

// NoStep is the step of a vertex that belongs to none, such as a barrier.
const NoStep = math.MaxUint32

// maxSteps bounds the steps of a plan, because showing a plan needs memory for each step, even
// an empty one.
const maxSteps = 1 << 24

// ErrNoPart means that a plan has no such phase or step.
var ErrNoPart = errors.New("the plan has no such phase or step")

// Part is the subject of an order or a gate: a whole plan, one of its phases, or one of its
// steps.
type Part struct {
	level level
	index uint32
}

type level uint8

const (
	levelWhole level = iota
	levelPhase
	levelStep
)

// Whole returns the part that is the whole plan.
func Whole() Part { return Part{} }

// Phase returns the part that is a phase, by its number.
func Phase(i uint32) Part { return Part{levelPhase, i} }

// Step returns the part that is a step, by its number among the steps of all phases.
func Step(i uint32) Part { return Part{levelStep, i} }

// String returns the name of the part for messages: "phase 3".
func (p Part) String() string {
	switch p.level {
	case levelPhase:
		return fmt.Sprint("phase ", p.index)
	case levelStep:
		return fmt.Sprint("step ", p.index)
	}
	return "plan"
}

// WithSteps returns the graph with its vertices grouped into steps, and the steps into phases.
// The argument steps has the step of each vertex, or NoStep. Steps are numbered phase by
// phase, and sizes has the number of steps of each phase. Steps may be empty.
//
// A graph without steps has one phase with one step, to which every task belongs.
func (g *Graph) WithSteps(steps []uint32, sizes []uint32) (*Graph, error) {
	if len(steps) != g.Len() {
		return nil, fmt.Errorf("steps of %d vertices, but the graph has %d", len(steps), g.Len())
	}
	h := *g
	h.Step, h.PhaseOff = steps, make([]uint32, len(sizes)+1)
	total := uint64(0)
	for i, n := range sizes {
		total += uint64(n)
		if total > maxSteps {
			return nil, fmt.Errorf("the plan has %d steps or more, but at most %d are possible", total, maxSteps)
		}
		h.PhaseOff[i+1] = uint32(total)
	}
	h.members = make([]uint32, 0, g.Len())
	for v, s := range steps {
		if s == NoStep {
			continue
		}
		if uint64(s) >= total {
			return nil, fmt.Errorf("%s is in step %d of %d", g.Name(v), s, total)
		}
		if g.Action[v] != model.Barrier {
			h.members = append(h.members, uint32(v))
		}
	}
	slices.SortFunc(h.members, func(a, b uint32) int { return cmp.Or(cmp.Compare(steps[a], steps[b]), cmp.Compare(a, b)) })
	return &h, nil
}

// Phases returns the number of phases.
func (g *Graph) Phases() int {
	if g.PhaseOff == nil {
		return 1
	}
	return len(g.PhaseOff) - 1
}

// Steps returns the number of steps of all phases.
func (g *Graph) Steps() int {
	if g.PhaseOff == nil {
		return 1
	}
	return int(g.PhaseOff[len(g.PhaseOff)-1])
}

// StepOf returns v's step, or NoStep.
func (g *Graph) StepOf(v uint32) uint32 {
	if g.Step == nil {
		return 0
	}
	return g.Step[v]
}

// PhaseOf returns the phase of a step.
func (g *Graph) PhaseOf(step uint32) uint32 {
	if g.PhaseOff == nil {
		return 0
	}
	return uint32(sort.Search(len(g.PhaseOff)-1, func(p int) bool { return g.PhaseOff[p+1] > step }))
}

// StepsOf returns the range of steps of a phase: from first to before end.
func (g *Graph) StepsOf(phase uint32) (first, end uint32) {
	if g.PhaseOff == nil {
		return 0, 1
	}
	return g.PhaseOff[phase], g.PhaseOff[phase+1]
}

// Has checks that the plan has this part. The error is ErrNoPart.
func (g *Graph) Has(p Part) error {
	if (p.level == levelPhase && int(p.index) >= g.Phases()) || (p.level == levelStep && int(p.index) >= g.Steps()) {
		return fmt.Errorf("%s: %w", p, ErrNoPart)
	}
	return nil
}

// In returns the tasks of a part without barriers: those of the whole plan in order of number,
// others step by step.
func (g *Graph) In(p Part) iter.Seq[uint32] {
	if p.level == levelWhole || g.Step == nil {
		return func(yield func(uint32) bool) {
			for v, a := range g.Action {
				if a != model.Barrier && !yield(uint32(v)) {
					return
				}
			}
		}
	}
	first, end := p.index, p.index+1
	if p.level == levelPhase {
		first, end = g.StepsOf(p.index)
	}
	at := func(step uint32) int {
		return sort.Search(len(g.members), func(i int) bool { return g.Step[g.members[i]] >= step })
	}
	return slices.Values(g.members[at(first):at(end)])
}
