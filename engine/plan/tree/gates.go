package tree

import "github.com/coopr/coopr/engine/plan"

// Change is a gate to be shut (plan.Edit.Hold) or opened (plan.Edit.Release).
type Change struct {
	Part plan.Part
	Gate plan.Gate
	Shut bool
}

// Arm returns the gates that a new plan starts with: those of its canaries and, where it is a
// custom plan, the one that waits for "start" (docs/spec/plans.md §4). Tasks that are done
// already make no canaries; the state may say so.
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

// arm appends what it takes for a phase's canaries to stand as they do at the
// beginning: the first steps that have not begun are interrupted, those behind
// them wait for them. reset says that every step is about to be put back.
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

// proceed appends what lets a phase go on: its next canary is released; with
// the last one, all that comes behind them. Without canaries the phase itself is.
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

// release appends what opens the cage of one step.
func (v *View) release(out []Change, phase, step int) []Change {
	return change(out, plan.Step(v.Phases[phase].First+uint32(step)), plan.GateInterrupt, v.steps(phase)[step].Interrupted, false)
}

// free appends what lets go of the steps behind a phase's canaries, unless one
// is still caged that is not among the opened.
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

// done appends what opens the gates of steps that are forced to complete.
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

// interrupt appends what holds a phase back. While its canaries wait for an
// operator anyway it is ignored.
func (v *View) interrupt(out []Change, phase int) []Change {
	for _, c := range v.steps(phase) {
		if c.Interrupted {
			return out
		}
	}
	return change(out, plan.Phase(uint32(phase)), plan.GateInterrupt, v.Held[phase], true)
}
