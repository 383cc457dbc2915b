package tree

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/plan"
)

// Order is an operator's order for a plan (docs/spec/plans.md §5).
type Order struct {
	// Command is "start", "stop", "interrupt", "continue", "forceComplete" or
	// "restart".
	Command string
	// Plan is the plan's name. Phase and Step are names or ids, "" for none.
	Plan, Phase, Step string
	// Params are for start. They become environment variables of the plan's tasks.
	Params map[string]string
}

// The codes of a Result are those of the API.
const (
	CodeOK       = 200
	CodeGoingOn  = 202 // of a plan: not complete
	CodeAlready  = 208
	CodeBad      = 400
	CodeNotFound = 404
	CodeErrors   = 417 // of a plan: it has errors
)

// Result is the answer to an order and its effects. The state machine applies the effects in
// this order: Gates, Complete, Restart, Retry. There are none unless Code is CodeOK.
type Result struct {
	Code    int
	Message string
	// Plan is the index of the plan that the order concerns, or -1.
	Plan int
	// Complete are the parts that count as done. Restart are the parts to reset; their running
	// attempts are cancelled.
	Complete, Restart []plan.Part
	// Retry are the parts whose failed tasks have another round of attempts.
	Retry []plan.Part
	Gates []Change
	// Params replace the parameters of the plan's tasks if Start is true.
	Start  bool
	Params map[string]string
}

const already = "Command has already been reported or completed"

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckParams checks the parameters of an order before the plan is looked up. If ok is false,
// the result is the refusal.
func CheckParams(params map[string]string) (r Result, ok bool) {
	for _, k := range slices.Sorted(maps.Keys(params)) {
		if !envName.MatchString(k) {
			return refuse(CodeBad, "Couldn't parse parameters: %s is not a valid environment variable name", k), false
		}
	}
	return Result{}, true
}

func refuse(code int, format string, args ...any) Result {
	return Result{Code: code, Message: fmt.Sprintf(format, args...), Plan: -1}
}

// Find returns the index of the plan with this name, or -1.
func Find(plans []*View, name string) int {
	return slices.IndexFunc(plans, func(v *View) bool { return v.Name == name })
}

// Give computes the result of an order for one of the plans of a cluster.
func Give(plans []*View, o Order) Result {
	if o.Command == "start" {
		if r, ok := CheckParams(o.Params); !ok {
			return r
		}
	}
	if o.Step != "" && o.Phase == "" {
		return refuse(CodeBad, "Missing phase")
	}
	at := Find(plans, o.Plan)
	if at < 0 {
		return refuse(CodeNotFound, "Plan %s not found", o.Plan)
	}
	v := plans[at]
	var phases []int
	if o.Phase != "" {
		if phases = v.find(o.Phase); len(phases) == 0 {
			return refuse(CodeNotFound, "Phase %s not found", o.Phase)
		}
	}
	step, phase := -1, -1
	if o.Step != "" {
		if phase, step = v.findStep(phases, o.Step); step < 0 {
			return refuse(CodeNotFound, "Step %s not found", o.Step)
		}
		phases = []int{phase}
	}
	give := v.give
	switch {
	case step >= 0:
		give = func(command string, r *Result) bool { return v.giveStep(command, phase, step, r) }
	case phases != nil:
		give = func(command string, r *Result) bool { return v.givePhases(command, phases, r) }
	}
	r := Result{Code: CodeOK, Plan: at, Message: o.Received()}
	switch o.Command {
	case "start", "stop":
		if phases != nil {
			return refuse(CodeBad, "%s is of whole plans: leave the phase away", o.Command)
		}
	case "interrupt", "continue":
		if step >= 0 {
			return refuse(CodeBad, "%s is of plans and phases: leave the step away", o.Command)
		}
	}
	switch o.Command {
	case "start":
		r.Start, r.Params = true, o.Params
	case "forceComplete", "restart", "stop", "interrupt", "continue":
	default:
		return refuse(CodeBad, "there is no order %q: it must be start, stop, interrupt, continue, forceComplete or restart", o.Command)
	}
	if !give(o.Command, &r) {
		return Result{Code: CodeAlready, Message: already, Plan: at}
	}
	return r
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

// javaMap formats parameters as the SDK does: "{A=b, C=d}".
func javaMap(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, k+"="+m[k])
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// find returns the phases with this name, or the one with this id.
func (v *View) find(name string) []int {
	var out []int
	for i := range v.Phases {
		if v.Phases[i].Name == name || v.PhaseID(i) == name {
			out = append(out, i)
		}
	}
	return out
}

// findStep searches phases, which are indexes into v.Phases, for the step with this name or id. It returns
// the index of the step's phase in v.Phases and the index of the step in that phase. Both are -1 if no
// step matches or several do.
func (v *View) findStep(phases []int, name string) (phase, step int) {
	phase, step = -1, -1
	id := isID(name)
	for _, p := range phases {
		for i := range v.steps(p) {
			if v.stepName(v.Phases[p].First+uint32(i)) == name || id && v.StepID(p, i) == name {
				if step >= 0 {
					return -1, -1
				}
				phase, step = p, i
			}
		}
	}
	return phase, step
}

func (v *View) stepName(step uint32) string {
	if v.StepName != nil {
		return v.StepName(step)
	}
	return fmt.Sprint(step)
}

// give adds the effects of an operator's order on the whole plan to r. It returns false if the order changes
// nothing.
func (v *View) give(command string, r *Result) bool {
	status := v.Status()
	hold := func(shut bool) {
		r.Gates = change(r.Gates, plan.Whole(), plan.GateInterrupt, v.Interrupted, shut)
	}
	again := func() {
		r.Restart = []plan.Part{plan.Whole()}
		for i := range v.Phases {
			r.Gates = v.arm(r.Gates, i, true)
		}
	}
	switch command {
	case "start":
		// Steps of a template's plan that had begun when the plan was held back start from their
		// beginning: "continue" goes on (unlike in the SDK, §"What to do differently" 4).
		if status == Complete || v.Interrupted && !v.Continues && v.begun() {
			again()
		} else {
			r.Retry = []plan.Part{plan.Whole()}
		}
		hold(false)
	case "stop":
		again()
		hold(true)
	case "interrupt":
		if v.Interrupted || status == Complete {
			return false
		}
		hold(true)
	case "continue":
		if status.Running() || status == Complete {
			return false
		}
		r.Retry = []plan.Part{plan.Whole()}
		hold(false)
	case "forceComplete":
		if status == Complete {
			return false
		}
		r.Complete = []plan.Part{plan.Whole()}
		for i := range v.Phases {
			r.Gates = v.done(r.Gates, i, func(int) bool { return true })
		}
	case "restart":
		if status == Pending {
			return false
		}
		again()
		hold(false)
	}
	return true
}

// begun reports whether any step has begun.
func (v *View) begun() bool {
	return slices.ContainsFunc(v.Steps, func(c Child) bool { return c.Status != Pending && c.Status != Waiting })
}

// givePhases adds the effects of an operator's order on phases to r. The phases are all those with the name
// in the order. It returns false, and leaves r as it is, if the order changes nothing in any of them.
func (v *View) givePhases(command string, phases []int, r *Result) bool {
	all := func(is func(c Child) bool) bool {
		return !slices.ContainsFunc(phases, func(p int) bool { return !is(v.child(p)) })
	}
	complete := all(func(c Child) bool { return c.Status == Complete })
	switch command {
	case "interrupt":
		if complete || all(func(c Child) bool { return c.Interrupted }) {
			return false
		}
	case "continue":
		if complete || all(func(c Child) bool { return c.Status.Running() }) {
			return false
		}
	case "forceComplete":
		if complete {
			return false
		}
	case "restart":
		if all(func(c Child) bool { return c.Status == Pending }) {
			return false
		}
	}
	for _, p := range phases {
		part := plan.Phase(uint32(p))
		switch command {
		case "interrupt":
			r.Gates = v.interrupt(r.Gates, p)
		case "continue":
			r.Gates = v.proceed(r.Gates, p)
			r.Retry = append(r.Retry, part)
		case "forceComplete":
			r.Complete = append(r.Complete, part)
			r.Gates = v.done(r.Gates, p, func(int) bool { return true })
		case "restart":
			// Canaries are held again, and none is released (unlike in the SDK, §"What to do
			// differently" 5).
			r.Restart = append(r.Restart, part)
			r.Gates = v.arm(r.Gates, p, true)
			r.Gates = change(r.Gates, part, plan.GateInterrupt, v.Held[p], false)
		}
	}
	return true
}

// giveStep adds the effects of an operator's order on one step of a phase to r. It returns false if the order
// changes nothing.
func (v *View) giveStep(command string, phase, step int, r *Result) bool {
	c := v.steps(phase)[step]
	part := plan.Step(v.Phases[phase].First + uint32(step))
	switch command {
	case "forceComplete":
		r.Complete = []plan.Part{part}
		r.Gates = v.done(r.Gates, phase, func(i int) bool { return i == step })
		return c.Status != Complete
	case "restart":
		// A canary stays held: only "continue" releases one.
		r.Restart = []plan.Part{part}
		return c.Status != Pending
	}
	return true
}
