package tree

import (
	"fmt"

	"github.com/coopr/coopr/engine/plan"
)

// Received is the message for an order that is carried out.
func (o Order) Received() string {
	m := "Received cmd: " + o.Command
	switch o.Command {
	case "start":
		m += fmt.Sprintf(" %s with parameters: %s", o.Plan, javaMap(o.Params))
	case "forceComplete", "restart":
		m += fmt.Sprintf(" for Plan: %s, Phase: %s, Step: %s", o.Plan, orNull(o.Phase), orNull(o.Step))
	}
	return m
}

// Apply applies the result of an order to a plan.
func Apply(e *plan.Edit, r Result, o plan.Order) error {
	if err := Set(e, r.Gates); err != nil {
		return err
	}
	for _, p := range r.Complete {
		if err := e.ForceComplete(p, o); err != nil {
			return err
		}
	}
	for _, p := range r.Restart {
		if err := e.Restart(p, o); err != nil {
			return err
		}
	}
	for _, p := range r.Retry {
		if e.State().Failures(p) > 0 {
			e.Reopen(e.State().Graph.In(p))
		}
	}
	return nil
}

// Set sets and removes gates.
func Set(e *plan.Edit, gates []Change) error {
	for _, c := range gates {
		set := e.Release
		if c.Shut {
			set = e.Hold
		}
		if err := set(c.Part, c.Gate); err != nil {
			return err
		}
	}
	return nil
}

// Canaries reports whether any phase has canaries.
func (t *Tree) Canaries() bool {
	for i := range t.Phases {
		if t.Phases[i].Strategy.Canary > 0 {
			return true
		}
	}
	return false
}
