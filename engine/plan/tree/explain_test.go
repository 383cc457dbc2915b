package tree

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/planner"
)

// TestExplain checks the reasons for which each step waits: other tasks, an operator, its next
// attempt, and the reasons that the caller supplies for tasks that are ready.
func TestExplain(t *testing.T) {
	in := planner.Input{Operation: model.OpCreate, Services: map[string]model.Service{"db": {
		Base: model.Base{Name: "db"}, Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"start": {Type: "shell"}}},
	}}}
	for i, id := range []string{"n0", "n1", "n2"} {
		in.Nodes = append(in.Nodes, planner.Node{ID: id, Number: i, Services: []string{"db"}})
	}
	g, err := planner.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	d := ByNode(g, "deploy", Strategy{Canary: 2})
	c, err := d.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	s := plan.NewState(c)
	now, fence := int64(1000), uint64(0)
	edit := func(f func(e *plan.Edit) error) {
		t.Helper()
		e := s.Edit()
		if err := f(e); err != nil {
			t.Fatal(err)
		}
		s = e.Done()
	}
	explain := func(ready func([]uint32) map[uint32]Wait) *Explanation {
		return ViewOf(&d.Tree, s, now).Explain(s, 10, now, ready)
	}
	kinds := func(e *Explanation) string {
		var out []string
		for _, w := range e.Steps {
			for _, r := range w.Waits {
				out = append(out, w.Name[:2]+" "+r.Kind)
			}
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	edit(func(e *plan.Edit) error { return Set(e, Arm(ViewOf(&d.Tree, s, now), false)) })
	// Canaries that also follow each other have two reasons.
	e := explain(nil)
	if got, want := kinds(e), "n0 gate, n1 dependency, n1 gate, n2 dependency, n2 gate"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if e.Waiting[WaitsGate] != 3 || e.Running != 0 || e.Done != 0 || e.Status != "WAITING" {
		t.Errorf("%+v", e)
	}
	edit(func(e *plan.Edit) error {
		return Set(e, Give([]*View{ViewOf(&d.Tree, s, now)}, Order{Command: "continue", Plan: "deploy", Phase: NodesPhase}).Gates)
	})
	// Explain asks the caller about ready tasks. A ready task for which the caller has no reason is
	// about to begin.
	asked := 0
	e = explain(func(tasks []uint32) map[uint32]Wait {
		asked += len(tasks)
		return map[uint32]Wait{tasks[0]: {Kind: WaitsLimit, Text: "provider cloud"}}
	})
	if asked != 1 || e.Waiting[WaitsLimit] != 1 || e.Steps[0].Waits[0].Text != "provider cloud" {
		t.Errorf("%d asked: %+v", asked, e)
	}
	if e = explain(nil); e.Waiting[WaitsNothing] != 1 {
		t.Errorf("%+v", e)
	}
	first := s.Leasable()[0]
	lease := func() {
		fence++
		edit(func(e *plan.Edit) error { return e.Lease(first, fence, plan.Holder{Session: "s"}, now) })
	}
	lease()
	if e = explain(nil); e.Running != 1 {
		t.Errorf("%+v", e)
	}
	edit(func(e *plan.Edit) error {
		return e.Retry(first, fence, false, plan.End{Outcome: "failed", Message: "no room"}, now+1500, now)
	})
	if e = explain(nil); !strings.HasSuffix(e.Steps[0].Waits[0].Text, " on n0 is tried again in 2 s: no room") || e.Waiting[WaitsDelay] != 1 {
		t.Errorf("%+v", e)
	}
	now += 2000
	lease()
	edit(func(e *plan.Edit) error {
		return e.Fail(first, fence, false, plan.End{Outcome: "failed", Message: "still no room"}, now)
	})
	if e = explain(nil); e.Waiting[WaitsFailed] != 1 || !strings.HasSuffix(e.Steps[0].Waits[0].Text, " on n0 failed: still no room") {
		t.Errorf("%+v", e)
	}
	edit(func(e *plan.Edit) error { return e.Hold(plan.Whole(), plan.GateInterrupt) })
	if e = explain(nil); len(e.Waits) != 1 || e.Waits[0].Kind != WaitsGate {
		t.Errorf("%+v", e)
	}
	// If a step waits for many tasks, only a few are named.
	d = Default(created(t, 9), "deploy")
	d.Strategy = Strategy{}
	if c, err = d.Compile(created(t, 9)); err != nil {
		t.Fatal(err)
	}
	s = plan.NewState(c)
	for _, w := range explain(nil).Steps {
		if w.Phase == "db" && (!strings.HasSuffix(w.Waits[0].Text, " and others") || strings.Count(w.Waits[0].Text, " on ") != named+1) {
			t.Errorf("%s waits for %s", w.Name, w.Waits[0].Text)
		}
	}
}
