package tree

import (
	"slices"

	"github.com/coopr/coopr/engine/plan"
)

// Change is a gate to set (plan.Edit.Hold) or to remove (plan.Edit.Release).
type Change struct {
	Part plan.Part
	Gate plan.Gate
	Shut bool
}

// Arm returns the gates that a new plan starts with: those of its canaries and, for a custom
// plan, the one that waits for "start" (docs/spec/plans.md §4). Tasks that the state shows as
// done are no canaries.
func Arm(v *View, custom bool) []Change {
	var out []Change
	if custom {
		out = append(out, Change{plan.Whole(), plan.GateInterrupt, true})
	}
	for i := range v.Phases {
		out = v.arm(out, i, false)
	}
	return out
}

// arm appends the initial gates of a phase's canaries: the first steps that have not begun are
// interrupted, and the steps behind them wait for them. reset is true if every step is about
// to be reset.
func (v *View) arm(out []Change, phase int, reset bool) []Change {
	n := v.Phases[phase].Strategy.Canary
	if n == 0 {
		return out
	}
	some := false
	for i, c := range v.steps(phase) {
		fresh := reset || c.Status == Pending || c.Status == Waiting
		cage := fresh && n > 0
		if cage {
			n--
			some = true
		}
		behind := some && !cage && (reset || !c.over())
		at := plan.Step(v.Phases[phase].First + uint32(i))
		out = change(out, at, plan.GateInterrupt, c.Interrupted, cage)
		out = change(out, at, plan.GateCanary, c.Behind, behind)
	}
	return out
}

func change(out []Change, at plan.Part, gate plan.Gate, is, want bool) []Change {
	if is != want {
		out = append(out, Change{at, gate, want})
	}
	return out
}

// proceed appends the changes that let a phase go on: its next canary is released, and with
// the last one all steps behind them. A phase without canaries is released itself.
func (v *View) proceed(out []Change, phase int) []Change {
	out = change(out, plan.Phase(uint32(phase)), plan.GateInterrupt, v.Held[phase], false)
	caged := -1
	for i, c := range v.steps(phase) {
		if !c.Interrupted {
			continue
		}
		if caged >= 0 {
			return v.release(out, phase, caged)
		}
		caged = i
	}
	if caged < 0 {
		return out
	}
	return v.free(v.release(out, phase, caged), phase, nil)
}

// release appends the removal of one step's gates.
func (v *View) release(out []Change, phase, step int) []Change {
	return change(out, plan.Step(v.Phases[phase].First+uint32(step)), plan.GateInterrupt, v.steps(phase)[step].Interrupted, false)
}

// free appends the release of the steps behind a phase's canaries, unless a canary that is not
// among the opened ones is still held.
func (v *View) free(out []Change, phase int, opened func(step int) bool) []Change {
	steps := v.steps(phase)
	if opened != nil {
		for i, c := range steps {
			if c.Interrupted && !opened(i) {
				return out
			}
		}
	}
	for i, c := range steps {
		out = change(out, plan.Step(v.Phases[phase].First+uint32(i)), plan.GateCanary, c.Behind, false)
	}
	return out
}

// done appends the removal of the gates of steps that are forced to complete.
func (v *View) done(out []Change, phase int, which func(step int) bool) []Change {
	some := false
	for i, c := range v.steps(phase) {
		if which(i) && c.Interrupted {
			out = v.release(out, phase, i)
			some = true
		}
	}
	if !some {
		return out
	}
	return v.free(out, phase, which)
}

// interrupt appends the gate of a phase. It is ignored while the phase's canaries wait for an
// operator anyway.
func (v *View) interrupt(out []Change, phase int) []Change {
	for _, c := range v.steps(phase) {
		if c.Interrupted {
			return out
		}
	}
	return change(out, plan.Phase(uint32(phase)), plan.GateInterrupt, v.Held[phase], true)
}

// Caged returns the names of the phases with canaries that wait for an operator. An order to continue such a phase releases one.
func (v *View) Caged() []string {
	var out []string
	for i := range v.Phases {
		if v.Phases[i].Strategy.Canary > 0 && slices.ContainsFunc(v.steps(i), func(c Child) bool { return c.Interrupted }) {
			out = append(out, v.Phases[i].Name)
		}
	}
	return out
}
