package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/plan"
)

// Tree has the names of a plan's phases and their strategies. Its steps are those of the
// plan's graph, by number; their names are made on demand. A Tree does not change once its
// plan runs.
type Tree struct {
	Name     string   `json:"name"`
	Strategy Strategy `json:"strategy,omitzero"`
	Phases   []Phase  `json:"phases"`
	// Errors are the reasons why the plan could not be made as requested. A plan with errors
	// stays in status ERROR.
	Errors []string `json:"errors,omitempty"`
}

// Phase is a set of steps under one strategy.
type Phase struct {
	Name     string   `json:"name"`
	Strategy Strategy `json:"strategy,omitzero"`
	// Service is the service of all tasks of the phase, or "". The names of steps leave it out.
	Service string `json:"service,omitempty"`
	// Teardown marks a phase that removes something, or is "".
	Teardown Teardown `json:"teardown,omitempty"`
	// Timeout is the longest duration of the phase, in milliseconds; 0: no limit.
	Timeout int64 `json:"timeout,omitempty"`
	// First and End are the range of the phase's steps.
	First uint32 `json:"first"`
	End   uint32 `json:"end"`
}

// Plain returns the tree of a graph without steps: one phase with one step that has all tasks.
func Plain(name string) *Tree {
	return &Tree{Name: name, Phases: []Phase{{Name: name, Strategy: Strategy{Kind: Dependency}, End: 1}}, Strategy: Strategy{Kind: Dependency}}
}

// Fits checks that the phases of the tree are those of the graph. It is used for trees that
// are stored apart from their graph.
func (t *Tree) Fits(g *plan.Graph) error {
	if t.Strategy.Canary != 0 {
		return errors.New("plan tree: only phases have canaries")
	}
	at := uint32(0)
	for i, p := range t.Phases {
		if p.First != at || p.End < at || p.Strategy.Kind > Batch || p.Strategy.Canary < 0 {
			return fmt.Errorf("plan tree: phase %d has no such steps or strategy", i)
		}
		at = p.End
	}
	if len(t.Phases) != g.Phases() || int(at) != g.Steps() {
		return fmt.Errorf("plan tree: %d phases with %d steps, but the graph has %d with %d", len(t.Phases), at, g.Phases(), g.Steps())
	}
	return nil
}

// StepName returns a step's name as in the API: "n1:[install, start]", with the node's id. If
// the phase has no single service, each action is followed by the service.
func (t *Tree) StepName(g *plan.Graph, step uint32) string {
	return t.stepName(g, step, func(id string) string { return id })
}

func (t *Tree) stepName(g *plan.Graph, step uint32, node func(id string) string) string {
	if g.Step == nil {
		return "all"
	}
	phase := &t.Phases[t.phaseOf(step)]
	if phase.lasts() {
		return "deregister"
	}
	if phase.Teardown != "" {
		return phase.Teardown.name(g, step, node)
	}
	var b strings.Builder
	service := phase.Service
	for v := range g.In(plan.Step(step)) {
		if b.Len() == 0 {
			b.WriteString(place(node(g.NodeID(int(v)))))
			b.WriteString(":[")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(g.ActionKey(int(v)))
		if s := g.ServiceName(int(v)); s != service {
			b.WriteString(" " + s)
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("step-%d:[]", step)
	}
	return b.String() + "]"
}

func (t *Tree) phaseOf(step uint32) int {
	i, _ := slices.BinarySearchFunc(t.Phases, step, func(p Phase, s uint32) int {
		if p.End <= s {
			return -1
		}
		return 1
	})
	return i
}

// Tolerates reports whether the failure of v's step is tolerated: whether the number of failed
// steps in its phase, including it, is at most max_failures. The state is the one before the
// failure is recorded.
func (t *Tree) Tolerates(s *plan.State, v uint32) bool {
	step := s.Graph.StepOf(v)
	if step == plan.NoStep {
		return false
	}
	p := t.Phases[t.phaseOf(step)]
	if p.Strategy.MaxFailures == 0 {
		return false
	}
	failed := 1
	for i := p.First; i < p.End; i++ {
		if i != step && s.Failures(plan.Step(i)) > 0 {
			failed++
		}
	}
	return p.Strategy.Tolerates(failed)
}
