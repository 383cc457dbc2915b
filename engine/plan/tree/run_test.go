package tree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/planner"
)

// created returns the graph of a create of nodes that all carry db and web, where web needs db.
func created(t *testing.T, nodes int) *plan.Graph {
	t.Helper()
	service := func(name string, needs ...string) model.Service {
		return model.Service{
			Base: model.Base{Name: name}, Dependencies: model.Dependencies{Runtime: model.Needs{Requires: needs}},
			Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"install": {Type: "shell"}, "start": {Type: "shell"}}},
		}
	}
	in := planner.Input{Operation: model.OpCreate, Services: map[string]model.Service{"db": service("db"), "web": service("web", "db")}}
	for i := range nodes {
		in.Nodes = append(in.Nodes, planner.Node{ID: fmt.Sprintf("n%d", i), Number: i, Services: []string{"db", "web"}})
	}
	g, err := planner.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestRealPlans runs plans of real operations to their end under every grouping, and checks the
// status that they show on the way.
func TestRealPlans(t *testing.T) {
	g := created(t, 3)
	stages := Staged(g, "staged", planner.SplitStages(g, planner.Stages(g)))
	o, err := Outlines(model.Plan{Name: "template", Phases: []model.PlanPhase{
		{Name: "databases", Service: "db", Batch: "2"}, {Name: "front", Service: "web", Strategy: "parallel-canary"},
	}}, map[string]Instances{"db": {Nodes: []string{"n0", "n1", "n2"}}, "web": {Nodes: []string{"n0", "n1", "n2"}}})
	if err != nil {
		t.Fatal(err)
	}
	template, err := o.Draft(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Draft{Default(g, "default"), stages, template} {
		c, err := d.Compile(g)
		if err != nil {
			t.Fatal(err)
		}
		s := plan.NewState(c)
		now, fence, continues := int64(0), uint64(0), 0
		edit := func(f func(e *plan.Edit) error) {
			t.Helper()
			e := s.Edit()
			if err := f(e); err != nil {
				t.Fatalf("%s: %v", d.Name, err)
			}
			s = e.Done()
		}
		gates := func(changes []Change) {
			edit(func(e *plan.Edit) error {
				for _, ch := range changes {
					hold := e.Release
					if ch.Shut {
						hold = e.Hold
					}
					if err := hold(ch.Part, ch.Gate); err != nil {
						return err
					}
				}
				return nil
			})
		}
		gates(Arm(ViewOf(&d.Tree, s, now), false))
		if st := ViewOf(&d.Tree, s, now).Status(); st != Pending {
			t.Errorf("%s begins %s", d.Name, st)
		}
		for !s.Complete() {
			now++
			var next uint32
			some := false
			for _, v := range s.Leasable() {
				if !some && !s.HeldBack(v) {
					next, some = v, true
				}
			}
			if !some {
				v := ViewOf(&d.Tree, s, now)
				if continues++; v.Status() != Waiting || continues > 2 {
					t.Fatalf("%s stands still as %s:\n%s", d.Name, v.Status(), v.Info().Text(d.Name))
				}
				gates(Give([]*View{v}, Order{Command: "continue", Plan: d.Name, Phase: "front"}).Gates)
				continue
			}
			fence++
			edit(func(e *plan.Edit) error { return e.Lease(next, fence, plan.Holder{Session: "s"}, now) })
			if st := ViewOf(&d.Tree, s, now).Steps[s.Graph.StepOf(next)].Status; st != Starting {
				t.Errorf("%s: a step at work is %s", d.Name, st)
			}
			edit(func(e *plan.Edit) error { return e.Succeed(next, fence, plan.End{}, now+1) })
		}
		info := ViewOf(&d.Tree, s, now).Info()
		text := info.Text(d.Name)
		if strings.Count(text, "(COMPLETE)") != strings.Count(text, "\n")+1 || info.Code() != CodeOK || info.Started != 1 || info.Ended != now+1 {
			t.Errorf("%d to %d:\n%s", info.Started, info.Ended, text)
		}
		if want := map[string]int{"template": 2}[d.Name]; continues != want {
			t.Errorf("%s waited %d times for an operator, not %d", d.Name, continues, want)
		}
	}
}

// TestFailuresAreTold checks that a failure is shown with its reason, and that a task that waits
// for its next attempt is delayed.
func TestFailuresAreTold(t *testing.T) {
	g := created(t, 1)
	d := Default(g, "deploy")
	c, err := d.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	s := plan.NewState(c)
	try := func(fence uint64, end func(e *plan.Edit) error) *View {
		t.Helper()
		e := s.Edit()
		if err := e.Lease(0, fence, plan.Holder{Session: "s"}, int64(fence)*10); err != nil {
			t.Fatal(err)
		}
		if err := end(e); err != nil {
			t.Fatal(err)
		}
		s = e.Done()
		return ViewOf(&d.Tree, s, int64(fence)*10)
	}
	v := try(1, func(e *plan.Edit) error { return e.Retry(0, 1, false, plan.End{Message: "once"}, 20, 10) })
	if v.Steps[0].Status != Delayed || v.PhaseStatus(0) != Delayed || len(v.Failed) != 0 || v.Candidates(nil) != nil {
		t.Errorf("%s", v.Info().Text("deploy"))
	}
	v = try(2, func(e *plan.Edit) error { return e.Fail(0, 2, false, plan.End{Message: "no such flavor"}, 20) })
	if text := v.Info().Text("deploy"); !strings.Contains(text, "deploy (dependency strategy) (ERROR)") ||
		!strings.HasSuffix(text, "\n\nErrors:\n- n0/CREATE: no such flavor") {
		t.Errorf("%s", text)
	}
}

// TestOverdue checks that a phase that runs longer than its timeout is reported.
func TestOverdue(t *testing.T) {
	v := pure(t, "x", "serial", "a serial: S", "b serial: P", "c serial: C")
	v.Times = func(s uint32) (int64, int64) { return []int64{10, 0, 1}[s], 0 }
	for i := range v.Phases {
		v.Phases[i].Timeout = 5
	}
	if got := v.Overdue(15); got != nil {
		t.Errorf("%v", got)
	}
	if got := v.Overdue(16); len(got) != 1 || got[0] != 0 {
		t.Errorf("%v", got)
	}
}

// TestPlanOfAGrow checks that a grow configures the existing nodes after everything else, even if a
// template's serial plan has new and old nodes of a service in one phase.
func TestPlanOfAGrow(t *testing.T) {
	actions := map[string]model.ServiceAction{"install": {Type: "shell"}, "configure": {Type: "shell"}, "start": {Type: "shell"},
		"stop": {Type: "shell"}}
	services := map[string]model.Service{
		"db": {Base: model.Base{Name: "db"}, Provisioner: model.ServiceProvisioner{Actions: actions}},
		"web": {Base: model.Base{Name: "web"}, Dependencies: model.Dependencies{Runtime: model.Needs{Requires: []string{"db"}}},
			Provisioner: model.ServiceProvisioner{Actions: actions}},
	}
	all := []string{"db", "web"}
	runs := map[string]string{"db": "START", "web": "START"}
	g, err := planner.Plan(planner.Input{
		Operation: model.OpGrow, Services: services, PlannedNodes: []string{"new"},
		Nodes: []planner.Node{
			{ID: "old", Services: all, States: runs, Created: true},
			{ID: "new", Number: 1, Services: all},
		},
		Reconfigure: map[string][]string{"old": all},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := Instances{Nodes: []string{"old", "new"}, Tasks: []string{"install", "configure", "start", "stop"}}
	o, err := Outlines(model.Plan{Name: "deploy",
		Phases: []model.PlanPhase{{Name: "databases", Service: "db"}, {Name: "front", Service: "web", Batch: "50%"}}},
		map[string]Instances{"db": at, "web": at})
	if err != nil {
		t.Fatal(err)
	}
	d, err := o.Draft(g)
	if err != nil {
		t.Fatal(err)
	}
	want := `nodes dependency: new:[create, confirm, bootstrap]
databases serial: new:[install, configure, start]
front batch: new:[install, configure, start]
reconfigure dependency: old:[stop web, stop db, configure db, configure web, start db, start web]
`
	if got := names(t, d, g); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
}

// TestPlainTree checks that a plan without a tree, made before trees existed, is shown as one step.
func TestPlainTree(t *testing.T) {
	g := created(t, 1)
	v := ViewOf(Plain("deploy"), plan.NewState(g), 0)
	if got, want := v.Info().Text("deploy"), "deploy (dependency strategy) (PENDING)\n└─ deploy (dependency strategy) (PENDING)\n   "+
		"└─ all (PENDING)"; got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	if err := v.Fits(g); err != nil {
		t.Error(err)
	}
}
