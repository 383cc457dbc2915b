package planner_test

import (
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/planner"
)

// TestWithReadiness checks that a service starts only after the readiness checks of the services on
// which it depends.
func TestWithReadiness(t *testing.T) {
	actions := map[string]model.ServiceAction{"install": {Type: "x"}, "start": {Type: "x"}, "check": {Type: "x"}}
	db := model.Service{ReadinessCheck: &model.Probe{}, Provisioner: model.ServiceProvisioner{Actions: actions}}
	app := model.Service{Provisioner: model.ServiceProvisioner{Actions: actions}}
	app.Dependencies.Runtime.Requires = []string{"db"}
	services := map[string]model.Service{"db": db, "app": app}
	g, err := planner.Plan(planner.Input{Operation: model.OpCreate, Services: services, Nodes: []planner.Node{
		{ID: "n1", Number: 1, Services: []string{"db"}}, {ID: "n2", Number: 2, Services: []string{"db"}},
		{ID: "n3", Number: 3, Services: []string{"app"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := planner.WithReadiness(g, services)
	if err != nil {
		t.Fatal(err)
	}
	if r.Tasks() != g.Tasks()+2 {
		t.Fatalf("%d tasks, before %d", r.Tasks(), g.Tasks())
	}
	for v, action := range r.Action {
		for _, w := range r.Next(v) {
			if w <= uint32(v) {
				t.Errorf("%s comes before %s", r.Name(int(w)), r.Name(v))
			}
			if action == model.Start && r.ServiceName(v) == "db" && r.Action[w] != model.Check {
				t.Errorf("%s waits for %s, not for its check", r.Name(int(w)), r.Name(v))
			}
		}
	}
	// No app starts before both checks are done.
	s := plan.NewState(r).Edit()
	done := 0
	for checks := 0; ; {
		ready := s.State().Leasable()
		if len(ready) == 0 {
			break
		}
		v := ready[0]
		if r.Action[v] == model.Start && r.ServiceName(int(v)) == "app" && checks < 2 {
			t.Errorf("app starts after %d checks", checks)
		}
		if r.Action[v] == model.Check {
			checks++
		}
		if err := s.Lease(v, 1, plan.Holder{}, 1); err != nil {
			t.Fatal(err)
		}
		if err := s.Succeed(v, 1, plan.End{}, 1); err != nil {
			t.Fatal(err)
		}
		done++
	}
	if done != r.Tasks() {
		t.Errorf("%d of %d tasks can be done", done, r.Tasks())
	}
	back, err := plan.DecodeGraph(r.Encode())
	if err != nil || back.Tasks() != r.Tasks() {
		t.Errorf("after the codec: %v", err)
	}
	delete(services, "db")
	if same, err := planner.WithReadiness(g, services); err != nil || same != g {
		t.Error("a graph without readiness is made anew")
	}
}
