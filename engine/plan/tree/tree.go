package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/plan"
)

// Tree names the phases of a plan and says how they are worked on. Its steps are
// those of the plan's graph, by number; their names are made when somebody asks.
// A Tree does not change once its plan runs.
type Tree struct {
	Name     string   `json:"name"`
	Strategy Strategy `json:"strategy,omitzero"`
	Phases   []Phase  `json:"phases"`
	// Errors are why the plan could not be made as it was asked for; a plan that
	// has some is ERROR for good.
	Errors []string `json:"errors,omitempty"`
}

// Phase is a set of steps under one strategy.
type Phase struct {
	Name     string   `json:"name"`
	Strategy Strategy `json:"strategy,omitzero"`
	// Service is the one that all tasks of the phase are about, or "": its name
	// is then left out of the steps' names.
	Service string `json:"service,omitempty"`
	// Teardown says that the phase takes something down; "": it does not.
	Teardown Teardown `json:"teardown,omitempty"`
	// Timeout is how long the phase may take, in milliseconds; 0: for ever.
	Timeout int64 `json:"timeout,omitempty"`
	// First and End bound the phase's steps.
	First uint32 `json:"first"`
	End   uint32 `json:"end"`
}

// Plain returns the tree of a graph without steps: one phase, one step, all of it.
func Plain(name string) *Tree {
	return &Tree{Name: name, Phases: []Phase{{Name: name, Strategy: Strategy{Kind: Dependency}, End: 1}}, Strategy: Strategy{Kind: Dependency}}
}

// Fits returns an error where the phases of the tree are not those of the graph.
// A tree that was stored apart from its graph is checked with it.
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

// StepName returns a step's name as the API shows it: "n1:[install, start]", with the node by
// its id. Where the phase is about no single service, the service stands behind each action.
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
			b.WriteString(node(g.NodeID(int(v))))
			b.WriteString(":[")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(g.Action[v].Key())
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

// Tolerates reports whether the step of v, which just failed, may fail: whether no more steps
// of its phase have failed, itself included, than max_failures says. The state is the one
// before the failure is written down.
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
