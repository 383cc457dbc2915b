package tree

import "github.com/coopr/coopr/engine/plan"

// Apply does to a plan what an order came to.
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
	return nil
}

// Set shuts and opens gates.
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

// Canaries says whether any phase has some.
func (t *Tree) Canaries() bool {
	for i := range t.Phases {
		if t.Phases[i].Strategy.Canary > 0 {
			return true
		}
	}
	return false
}
