package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// View is a tree at one moment, with its gates and the statuses of its steps.
type View struct {
	*Tree
	// Interrupted is true if the whole plan is held back.
	Interrupted bool
	// Held is true for each phase that is held back.
	Held []bool
	// Steps are the states of the steps.
	Steps []Child
	// Failed are the reasons why steps failed, one per line. Broken is true if the whole plan
	// has failed and does not go on.
	Failed []string
	Broken bool
	// Continues reports that an order to start the plan while it is held back continues it. Else
	// the plan starts again from its beginning.
	Continues bool
	// Pick chooses one of n, for phases of any order; nil takes the first.
	Pick func(n int) int

	// Scope makes the ids of elements differ between plans with the same name. It is the id of
	// the plan's operation.
	Scope string
	// Node returns a node's name by its id. If it is nil, the id is the name.
	Node func(id string) string
	// StepName returns a step's name. Times returns when it began and ended, in Unix
	// milliseconds, 0 for not yet.
	StepName func(step uint32) string
	Times    func(step uint32) (started, ended int64)
	// Skipped returns the names of the tasks of a step that an order to repeat it left out; nil:
	// there are none.
	Skipped func(step uint32) []string
	// Shown are the states of pods that the API shows in place of the statuses of steps: PAUSING, PAUSED.
	Shown map[uint32]string
}

// Idle returns the view of a plan without work. It is COMPLETE.
func Idle(name, scope string) *View {
	return &View{Tree: &Tree{Name: name, Strategy: Strategy{Kind: Parallel}}, Scope: scope}
}

// maxFailed is the highest number of failed tasks in a view.
const maxFailed = 100

// ViewOf returns the view of a plan whose graph has the tree's steps. The argument now is in
// Unix milliseconds: a task whose next attempt is due later is delayed.
func ViewOf(t *Tree, s *plan.State, now int64) *View {
	v := &View{
		Tree: t, Interrupted: s.Gates(plan.Whole())&plan.GateInterrupt != 0,
		Held: make([]bool, len(t.Phases)), Steps: make([]Child, s.Graph.Steps()), Shown: map[uint32]string{},
	}
	torn := t.torn(s.Graph)
	v.StepName = func(step uint32) string {
		return t.stepName(s.Graph, step, func(id string) string {
			if name, ok := torn[id]; ok {
				return name
			}
			if v.Node != nil {
				return v.Node(id)
			}
			return id
		})
	}
	v.Times = func(step uint32) (int64, int64) { return times(s, step) }
	v.Skipped = func(step uint32) []string { return skipped(s, step) }
	for i := range t.Phases {
		v.Held[i] = s.Gates(plan.Phase(uint32(i)))&plan.GateInterrupt != 0
	}
	tallies := make([]tally, len(v.Steps))
	for w := range s.Graph.In(plan.Whole()) {
		if step := s.Graph.StepOf(w); step != plan.NoStep {
			tallies[step].add(s, w, now)
		}
		if s.Status(w) == model.TaskFailed {
			v.fail(s, w)
		}
	}
	for i := range v.Steps {
		gates := s.Gates(plan.Step(uint32(i)))
		c := &v.Steps[i]
		c.Interrupted, c.Behind = gates&plan.GateInterrupt != 0, gates&plan.GateCanary != 0
		c.GoesOn = gates == 0 && s.Begun(uint32(i))
		tallies[i].put(c)
	}
	v.last()
	return v
}

// last completes the steps that represent the end of all others.
func (v *View) last() {
	n := len(v.Phases)
	if n == 0 || !v.Phases[n-1].lasts() {
		return
	}
	first := v.Phases[n-1].First
	over := allOver(v.Steps[:first])
	for i := first; i < v.Phases[n-1].End; i++ {
		c := &v.Steps[i]
		if c.Waits = !over; over {
			c.Status = Complete
		}
	}
}

// fail records why a task is out of attempts.
func (v *View) fail(s *plan.State, w uint32) {
	switch n := len(v.Failed); {
	case n == maxFailed:
		v.Failed = append(v.Failed, "more tasks failed than are listed here")
		return
	case n > maxFailed:
		return
	}
	why := "failed"
	if n := s.Note(w); n != nil && len(n.History) > 0 {
		why = cmp.Or(n.History[len(n.History)-1].Message, why)
	}
	v.Failed = append(v.Failed, fmt.Sprintf("%s: %s", s.Graph.Name(int(w)), why))
}

// tally counts a step's tasks. They mostly follow each other, so the status of the step is
// that of its current task and not the least of all.
type tally struct{ all, done, tolerated, failed, delayed, leased, running, unsure, ready uint16 }

func (c *tally) add(s *plan.State, w uint32, now int64) {
	c.all++
	switch s.Status(w) {
	case model.TaskSucceeded:
		c.done++
	case model.TaskFailed:
		c.failed++
		if s.Task(w).Tolerated {
			c.tolerated++
		}
	case model.TaskCancelled:
		if s.Task(w).Tolerated {
			c.tolerated++
		}
	case model.TaskLeased:
		if s.Graph.Action[w] == model.Check {
			c.running++ // it was started and is not ready yet
			return
		}
		c.leased++
	case model.TaskRunning:
		c.running++
	case model.TaskReady, model.TaskUncertain:
		if n := s.Note(w); n != nil && n.RetryAt > now {
			c.delayed++
			return
		}
		c.ready++
		if s.Status(w) == model.TaskUncertain {
			c.unsure++
		}
	}
}

// put sets the status of a step from its tasks. A step that has begun and whose next task
// waits is PREPARED: its node is not free.
func (c *tally) put(to *Child) {
	status := Pending
	switch {
	case c.failed > 0:
		status = Error
		to.Tolerated = c.tolerated > 0
		to.Over = to.Tolerated && c.done+c.tolerated == c.all
	case c.done == c.all && c.all > 0:
		status = Complete
	case c.leased > 0:
		status = Starting
	case c.running > 0:
		status = Started
	case c.delayed > 0 && c.ready == 0:
		status = Delayed
	case c.done > 0 || c.unsure > 0:
		status = Prepared
	}
	to.Status = status.Shown(to.Interrupted)
	to.Waits = c.ready+c.delayed+c.leased+c.running == 0
}

func times(s *plan.State, step uint32) (started, ended int64) {
	over := true
	for v := range s.Graph.In(plan.Step(step)) {
		t := s.Task(v)
		if t.LeasedAt > 0 && (started == 0 || t.LeasedAt < started) {
			started = t.LeasedAt
		}
		ended = max(ended, t.EndedAt)
		over = over && t.Status.Ended()
	}
	if !over {
		ended = 0
	}
	return started, ended
}

func skipped(s *plan.State, step uint32) (out []string) {
	for v := range s.Graph.In(plan.Step(step)) {
		if n := s.Note(v); n != nil && n.Skip {
			out = append(out, s.Graph.Action[v].Key()+" "+s.Graph.ServiceName(int(v)))
		}
	}
	return out
}

// LeftOut returns the tasks that an order to repeat parts of the plan left out, as NODE:ACTION: those of steps that are not complete yet.
func (v *View) LeftOut() (out []string) {
	for i, c := range v.Steps {
		if v.Skipped == nil || c.over() {
			continue
		}
		for _, what := range v.Skipped(uint32(i)) {
			node, _, _ := strings.Cut(v.stepName(uint32(i)), ":")
			action, _, _ := strings.Cut(what, " ")
			out = append(out, node+":"+action)
		}
	}
	return out
}

// Overdue returns the phases that have been running for longer than their timeout.
func (v *View) Overdue(now int64) []int {
	var out []int
	for i, p := range v.Phases {
		if p.Timeout == 0 || v.Times == nil || allOver(v.steps(i)) {
			continue
		}
		for s := p.First; s < p.End; s++ {
			if started, _ := v.Times(s); started > 0 && now-started > p.Timeout {
				out = append(out, i)
				break
			}
		}
	}
	return out
}

func allOver(steps []Child) bool {
	return !slices.ContainsFunc(steps, func(c Child) bool { return !c.over() })
}

// steps returns the steps of a phase.
func (v *View) steps(phase int) []Child {
	p := &v.Phases[phase]
	return v.Steps[p.First:p.End]
}

// halted reports whether a phase has no work to offer: an operator interrupted it, or it waits
// for the release of a canary.
func (v *View) halted(phase int) bool {
	if v.Held[phase] {
		return true
	}
	if v.Phases[phase].Strategy.Canary == 0 {
		return false
	}
	caged := false
	for _, c := range v.steps(phase) {
		switch {
		case c.Interrupted:
			caged = true
		case !c.Behind && !c.over():
			return false // released and running
		}
	}
	return caged
}

// candidates returns the candidates among a phase's steps, as indexes within the phase. The
// function dirty reports which steps conflict with work of others; it may be nil.
func (v *View) candidates(phase int, dirty func(step uint32) bool) []int {
	if v.halted(phase) {
		return nil
	}
	steps, first := v.steps(phase), v.Phases[phase].First
	if dirty != nil {
		steps = slices.Clone(steps)
		for i := range steps {
			steps[i].Dirty = dirty(first + uint32(i))
		}
	}
	return v.Phases[phase].Strategy.Candidates(steps, v.Pick)
}

// PhaseStatus returns the status of a phase.
func (v *View) PhaseStatus(phase int) Status { return v.child(phase).Status }

// child returns the state of a phase in the form from which the plan's status follows.
func (v *View) child(phase int) Child {
	c := Child{Interrupted: v.halted(phase), Tolerated: true, Over: true}
	steps := v.steps(phase)
	for i := range steps {
		c.Over = c.Over && steps[i].over()
		c.Tolerated = c.Tolerated && (steps[i].Status != Error || steps[i].Tolerated)
	}
	can := v.candidates(phase, nil)
	if len(can) == 0 && !c.Interrupted && v.Phases[phase].Strategy.Kind == Dependency {
		// Everything that is left waits for other phases, which is not an error but pending.
		can = Strategy{Kind: Parallel}.Candidates(steps, nil)
	}
	c.Status = Aggregate(false, c.Interrupted, steps, can)
	return c
}

func (v *View) children() []Child {
	out := make([]Child, len(v.Phases))
	for i := range out {
		out[i] = v.child(i)
	}
	return out
}

// Status returns the status of the plan.
func (v *View) Status() Status { return v.status(v.children()) }

func (v *View) status(phases []Child) Status {
	var can []int
	if !v.Interrupted {
		can = v.Strategy.Candidates(phases, v.Pick)
	}
	return Aggregate(len(v.Errors) > 0 || v.Broken, v.Interrupted, phases, can)
}

// Candidates returns the steps that may begin or continue: those of candidate phases, without
// delayed ones and without those that the graph makes wait. Where the plan or a phase is held
// back, these are the steps that have begun. The function dirty reports which steps conflict with
// work of others; it may be nil.
func (v *View) Candidates(dirty func(step uint32) bool) []uint32 {
	open := *v
	open.Interrupted, open.Held = false, make([]bool, len(v.Phases))
	var out []uint32
	phases := open.children()
	for p := range phases {
		if v.Interrupted || v.Held[p] { // a step that fails meanwhile stops no other that has begun
			phases[p].Tolerated = true
		}
	}
	for _, p := range open.Strategy.Candidates(phases, v.Pick) {
		first, held := v.Phases[p].First, v.Interrupted || v.Held[p]
		for _, i := range open.candidates(p, dirty) {
			s := first + uint32(i)
			if c := &v.Steps[s]; c.Status != Delayed && !c.Waits && (c.GoesOn || !held) {
				out = append(out, s)
			}
		}
	}
	return out
}
