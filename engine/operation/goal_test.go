package operation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestGoals: a new configuration restarts services that run, starts services with goal FINISH
// again, and leaves services with goal ONCE alone (docs/spec/plans.md §7).
func TestGoals(t *testing.T) {
	actions := map[string]model.ServiceAction{"configure": {Type: "x"}, "start": {Type: "x"}, "stop": {Type: "x"}}
	short := maps.Clone(actions)
	delete(short, "stop")
	cl := &model.Cluster{ID: "1", Name: "c", Status: model.ClusterActive, Version: 3, Services: []string{"once", "runs", "work"},
		Config: map[string]any{"a": "1"}, Definitions: map[string]model.Service{
			"runs": {Provisioner: model.ServiceProvisioner{Actions: actions}},
			"work": {Goal: model.GoalFinish, Provisioner: model.ServiceProvisioner{Actions: short}},
			"once": {Goal: model.GoalOnce, Provisioner: model.ServiceProvisioner{Actions: short}},
		}}
	started := map[string]string{"runs": "START", "work": "START", "once": "START"}
	n := &model.Node{ID: "1-1000", Number: 1000, Hostname: "c1-1000.local", Services: cl.Services, States: started, Created: true,
		Confirmed: true}
	at := Input{Cluster: cl, Nodes: []*model.Node{n}}
	p, err := Prepare(context.Background(), model.Caller{}, Request{Type: model.OpConfigure, Config: map[string]any{"a": "2"}, Restart: true},
		at, model.Set{}, "1-002")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for v := range p.Graph.Len() {
		if p.Graph.Action[v] != model.Barrier {
			got = append(got, strings.TrimPrefix(p.Graph.Name(v), "1-1000/"))
		}
	}
	slices.Sort(got)
	if want := []string{"CONFIGURE/runs", "CONFIGURE/work", "START/runs", "START/work", "STOP/runs"}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	units, err := Units(model.OpRecover, at, nil, []string{"c1-1000"}, nil)
	if err != nil || len(units) != 1 || !slices.Equal(units[0].Services, []string{"runs"}) {
		t.Errorf("a restart of the node: %v, %v", units, err)
	}
	units, err = Units(model.OpRecover, at, nil, []string{"1000"}, []string{"once"})
	if err != nil || !slices.Equal(units[0].Services, []string{"once"}) {
		t.Errorf("by name: %v, %v", units, err)
	}
	if _, err := Units(model.OpResumeNode, at, nil, []string{"1000"}, nil); err == nil ||
		!strings.Contains(err.Error(), "nothing on c1-1000 to resume") {
		t.Errorf("%v", err)
	}
	if _, err := Units(model.OpRecover, at, nil, []string{"1000"}, []string{"run"}); err == nil ||
		!strings.Contains(err.Error(), `did you mean "runs"`) {
		t.Errorf("%v", err)
	}
	paused := map[string]*model.NodeHealth{n.ID: {Paused: map[string]string{"runs": model.Paused}}}
	if units, err := Units(model.OpResumeNode, at, paused, []string{"1000"}, nil); err != nil ||
		!slices.Equal(units[0].Services, []string{"runs"}) {
		t.Errorf("%v, %v", units, err)
	}
	if units, err := Units(model.OpResumeNode, at, paused, []string{"1000"}, []string{"work", "runs"}); err != nil ||
		!slices.Equal(units[0].Services, []string{"runs"}) {
		t.Errorf("a resume by name of a paused service and one that runs: %v, %v", units, err)
	}
	if _, err := Units(model.OpResumeNode, at, paused, []string{"1000"}, []string{"work"}); err == nil ||
		!strings.Contains(err.Error(), "nothing on c1-1000 to resume") {
		t.Errorf("a resume by name of a service that runs: %v", err)
	}
}

// TestCompletes: an operation towards a new target completes what an earlier operation left half
// done on a node, and leaves a stopped service stopped.
func TestCompletes(t *testing.T) {
	actions := map[string]model.ServiceAction{"install": {Type: "x"}, "configure": {Type: "x"}, "start": {Type: "x"}, "stop": {Type: "x"}}
	service := model.Service{Provisioner: model.ServiceProvisioner{Actions: actions}}
	for state, want := range map[string][]string{
		"INSTALL":   {"CONFIGURE/web", "START/web"},
		"CONFIGURE": {"START/web"},
		"STOP":      nil,
		"START":     nil,
	} {
		cl := &model.Cluster{ID: "1", Name: "c", Status: model.ClusterInconsistent, Version: 3, Services: []string{"web"},
			Definitions: map[string]model.Service{"web": service}}
		n := &model.Node{ID: "1-1000", Number: 1000, Hostname: "c1-1000.local", Services: cl.Services, Created: true, Confirmed: true,
			States: map[string]string{"web": state}}
		p, err := Prepare(t.Context(), model.Caller{}, Request{Type: model.OpConfigure, Config: map[string]any{}},
			Input{Cluster: cl, Nodes: []*model.Node{n}}, model.Set{}, "1-002")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for v := range p.Graph.Len() {
			if p.Graph.Action[v] != model.Barrier {
				got = append(got, strings.TrimPrefix(p.Graph.Name(v), "1-1000/"))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("from %s: %v, not %v", state, got, want)
		}
	}
}
