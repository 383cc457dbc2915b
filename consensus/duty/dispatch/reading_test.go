package dispatch_test

import (
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// part is a step or a phase as the rules see it.
type part struct {
	status                       string
	gated, behind, waits         bool
	over, tolerated, interrupted bool
}

// reading returns the statuses of a plan, its phases and their steps, one a line. It reads them from the tasks and the gates by the words of
// docs/spec/plans.md §1 to §3, and shares no code with the tree.
// A step of a pause is STARTED until all its services are resumed (§9): paused reports whether a service on a node is paused.
func reading(op *model.Operation, t *tree.Tree, s *plan.State, now int64, paused func(node, service string) bool) string {
	interrupted := op.Status == model.OpPaused || s.Gates(plan.Whole())&plan.GateInterrupt != 0
	broken := slices.Contains([]model.OperationStatus{model.OpFailed, model.OpAborted, model.OpAborting, model.OpRollingBack,
		model.OpRolledBack}, op.Status)
	var lines []string
	var phases []part
	for i := range t.Phases {
		var steps []part
		for n := t.Phases[i].First; n < t.Phases[i].End; n++ {
			step := readStep(s, n, now)
			for v := range s.Graph.Len() {
				if op.Type == model.OpPauseNode && step.status == "COMPLETE" && s.Graph.StepOf(uint32(v)) == n &&
					paused(s.Graph.NodeID(v), s.Graph.ServiceName(v)) {
					step.status = "STARTED"
				}
			}
			steps = append(steps, step)
		}
		p := readPhase(t.Phases[i].Strategy, s.Gates(plan.Phase(uint32(i)))&plan.GateInterrupt != 0, steps)
		phases = append(phases, p)
		lines = append(lines, "  "+p.status)
		for _, step := range steps {
			lines = append(lines, "    "+step.status)
		}
	}
	var can []part
	if !interrupted {
		can = readCandidates(t.Strategy, phases)
	}
	return strings.Join(append([]string{aggregated(broken, interrupted, phases, can)}, lines...), "\n")
}

// readStep reads a step. Its tasks follow each other for the most part, so that its status is that of the present one.
func readStep(s *plan.State, n uint32, now int64) part {
	gates := s.Gates(plan.Step(n))
	p := part{gated: gates&plan.GateInterrupt != 0, behind: gates&plan.GateCanary != 0, status: "PENDING", waits: true}
	ended, tolerated, all := 0, 0, 0
	found := map[string]bool{}
	for v, step := range s.Graph.Step {
		if step != n || s.Graph.Action[v] == model.Barrier {
			continue
		}
		all++
		task := s.Task(uint32(v))
		name := task.Status.String()
		later := task.Note != nil && task.Note.RetryAt > now
		switch {
		case (name == "ready" || name == "uncertain") && later:
			name = "delayed"
		case name == "leased" && s.Graph.Action[v] == model.Check:
			name = "running"
		}
		found[name] = true
		if name == "succeeded" {
			ended++
		}
		if task.Tolerated {
			tolerated++
		}
	}
	p.waits = !found["ready"] && !found["uncertain"] && !found["delayed"] && !found["leased"] && !found["running"]
	switch {
	case found["failed"]:
		p.status, p.tolerated = "ERROR", tolerated > 0
		p.over = p.tolerated && ended+tolerated == all
	case all > 0 && ended == all:
		p.status = "COMPLETE"
	case found["leased"]:
		p.status = "STARTING"
	case found["running"]:
		p.status = "STARTED"
	case found["delayed"] && !found["ready"] && !found["uncertain"]:
		p.status = "DELAYED"
	case ended > 0 || found["uncertain"]:
		p.status = "PREPARED"
	}
	if p.interrupted = p.gated; p.gated && (p.status == "PENDING" || p.status == "PREPARED") {
		p.status = "WAITING"
	}
	return p
}

// readPhase reads a phase. One with canaries counts as interrupted while a canary is, and no released step is unfinished.
func readPhase(strategy tree.Strategy, held bool, steps []part) part {
	done := func(c part) bool { return c.status == "COMPLETE" || c.over }
	p := part{interrupted: held, over: true, tolerated: true}
	if strategy.Canary > 0 {
		caged := slices.ContainsFunc(steps, func(c part) bool { return c.gated })
		at := slices.ContainsFunc(steps, func(c part) bool { return !c.gated && !c.behind && !done(c) })
		p.interrupted = held || caged && !at
	}
	for _, c := range steps {
		p.over = p.over && done(c)
		p.tolerated = p.tolerated && (c.status != "ERROR" || c.tolerated)
	}
	var can []part
	if !p.interrupted {
		can = readCandidates(strategy, steps)
		if len(can) == 0 && strategy.Kind == tree.Dependency { // all that is left waits for other phases
			can = readCandidates(tree.Strategy{Kind: tree.Parallel}, steps)
		}
	}
	p.gated = p.interrupted
	p.status = aggregated(false, p.interrupted, steps, can)
	return p
}

// readCandidates returns the parts that may be worked on: each that is eligible, and whose predecessors by the strategy are done.
func readCandidates(strategy tree.Strategy, all []part) (out []part) {
	size := 1
	if strategy.Kind == tree.Batch {
		if size = strategy.Size; strategy.Percent {
			size = len(all) * strategy.Size / 100
		}
		size = max(size, 1)
	}
	for i, c := range all {
		if c.status == "COMPLETE" || c.over || c.status == "ERROR" && !c.tolerated || c.gated || c.behind {
			continue
		}
		ahead := 0 // of the parts before it, those that have to be done first
		switch strategy.Kind {
		case tree.Serial, tree.Batch:
			ahead = i / size * size
		case tree.Dependency:
			if c.waits {
				continue
			}
		default:
		}
		if !slices.ContainsFunc(all[:ahead], func(c part) bool { return c.status != "COMPLETE" && !c.over }) {
			out = append(out, c)
		}
	}
	return out
}

// aggregated returns the status of a parent by the table of docs/spec/plans.md §2, with its two deviations.
func aggregated(failed, interrupted bool, children, candidates []part) string {
	is := func(status string) func(part) bool { return func(c part) bool { return c.status == status } }
	child := func(status string) bool { return slices.ContainsFunc(children, is(status)) }
	can := func(status string) bool { return slices.ContainsFunc(candidates, is(status)) }
	halted := func(status string) bool {
		return slices.ContainsFunc(children, func(c part) bool { return c.interrupted && c.status == status })
	}
	every := func(list []part, status string) bool {
		return !slices.ContainsFunc(list, func(c part) bool { return c.status != status })
	}
	pending := can("PENDING") || can("DELAYED")
	for _, rule := range []struct {
		fits   bool
		status string
	}{
		{failed || child("ERROR"), "ERROR"},
		{every(children, "COMPLETE"), "COMPLETE"},
		{interrupted, "WAITING"},
		{len(candidates) > 0 && every(candidates, "DELAYED"), "DELAYED"},
		{every(children, "DELAYED") && every(candidates, "DELAYED"), "DELAYED"},
		{child("PREPARED"), "IN_PROGRESS"},
		{can("WAITING"), "WAITING"},
		{can("IN_PROGRESS"), "IN_PROGRESS"},
		{child("COMPLETE") && (pending || can("STARTING") || can("STARTED")), "IN_PROGRESS"},
		{pending, "PENDING"},
		{child("WAITING") || halted("DELAYED"), "WAITING"},
		{can("STARTING") || halted("STARTING"), "STARTING"},
		{can("STARTED") || halted("STARTED"), "STARTED"},
	} {
		if rule.fits {
			return rule.status
		}
	}
	return "ERROR"
}

// shown returns the statuses of a tree in the form of reading.
func shown(v *tree.View) string {
	lines := []string{v.Status().String()}
	for i := range v.Phases {
		lines = append(lines, "  "+v.PhaseStatus(i).String())
		for n := v.Phases[i].First; n < v.Phases[i].End; n++ {
			lines = append(lines, "    "+v.Steps[n].Status.String())
		}
	}
	return strings.Join(lines, "\n")
}

// agrees fails the test unless the tree of an operation shows what the rules say.
func (p *play) agrees(id string, now int64) {
	p.t.Helper()
	v := p.machine.View()
	op, _ := v.Operation("one", id)
	s, kept := v.Plan(id)
	t, ok := v.PlanTree("one", id, now)
	if !kept || !ok || s.Graph.Step == nil {
		return
	}
	paused := func(node, service string) bool {
		h := v.ClusterHealth("one", op.Cluster)[node]
		return h != nil && h.Paused[service] == model.Paused
	}
	if got, want := shown(t), reading(op, t.Tree, s, now, paused); got != want {
		p.t.Errorf("operation %s is %s, and shows\n%s\nthe rules say\n%s", id, op.Status, got, want)
	}
}
