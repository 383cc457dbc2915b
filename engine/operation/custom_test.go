package operation

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// clusterWith returns a cluster of two nodes with the service s, whose template has these
// plans.
func clusterWith(plans ...model.Plan) Input {
	cl := &model.Cluster{ID: "00000001", Tenant: "t", Name: "c", Services: []string{"s"}, Template: model.ClusterTemplate{Plans: plans},
		Definitions: map[string]model.Service{"s": {
			Base: model.Base{Name: "s"}, Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"start": {}, "stop": {},
				"check": {}}},
		}}}
	at := Input{Cluster: cl}
	for _, id := range []string{"n0", "n1"} {
		at.Nodes = append(at.Nodes, &model.Node{ID: id, Services: []string{"s"}})
	}
	return at
}

func TestCustomPlans(t *testing.T) {
	steps := []model.PlanSteps{{Node: "default", Tasks: [][]string{{"stop"}, {"start", "check"}}}}
	at := clusterWith(model.Plan{Name: "deploy"},
		model.Plan{Name: "bounce", Phases: []model.PlanPhase{{Name: "all", Service: "s", Steps: steps}}}, model.Plan{Name: "recovery"})
	if got := CustomPlans(at.Cluster); len(got) != 1 || got[0] != "bounce" {
		t.Errorf("%v", got)
	}
	p, err := Custom(model.Caller{}, "bounce", at, "00000001-007")
	if err != nil {
		t.Fatal(err)
	}
	want := `bounce (serial strategy) (PENDING)
└─ all (serial strategy) (PENDING)
   ├─ n0:[stop] (PENDING)
   ├─ n0:[start, check] (PENDING)
   ├─ n1:[stop] (PENDING)
   └─ n1:[start, check] (PENDING)`
	if got := tree.ViewOf(p.Tree, plan.NewState(p.Graph), 0).Info().Text("bounce"); got != want {
		t.Errorf("%s", got)
	}
	if p.Operation.Status != model.OpPaused || p.Operation.Plan != "bounce" || !p.Operation.Type.Concurrent() || len(p.Write) > 0 {
		t.Errorf("%+v", p.Operation)
	}
	for _, name := range []string{"deploy", "recovery", "no"} {
		if _, err := Custom(model.Caller{}, name, at, "x"); !errors.Is(err, ErrNoPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// All faults are reported at once.
	at = clusterWith(model.Plan{Name: "bad", Phases: []model.PlanPhase{{Name: "a", Service: "s"}, {Name: "b", Service: "q"},
		{Name: "c", Service: "s", Steps: []model.PlanSteps{{Node: "0", Tasks: [][]string{{"nap"}}}}}}})
	var fs model.Faults
	if _, err := Custom(model.Caller{}, "bad", at, "x"); !errors.As(err, &fs) || len(fs) != 3 {
		t.Fatalf("%v", err)
	}
	for _, words := range []string{"Unable to find pod", "step refers to a task that does not exist", "Missing '1' step entry"} {
		if !strings.Contains(fs.Error(), words) {
			t.Errorf("no %s in %v", words, fs)
		}
	}
}

func TestWithParameters(t *testing.T) {
	if got := string(WithParameters([]byte(`{"taskId":"x"}`),
		map[string]string{"A": `b"c`})); got != `{"parameters":{"A":"b\"c"},"taskId":"x"}` {
		t.Error(got)
	}
	if got := string(WithParameters([]byte(`{}`), nil)); got != `{}` {
		t.Error(got)
	}
}

// TestOwnActions checks that the steps of a plan may name actions of a service's own, and that a plugin gets them under their names.
func TestOwnActions(t *testing.T) {
	steps := []model.PlanSteps{{Node: "default", Tasks: [][]string{{"drain", "stop"}, {"start"}}}}
	at := clusterWith(model.Plan{Name: "bounce", Phases: []model.PlanPhase{{Name: "all", Service: "s", Steps: steps}}})
	def := at.Cluster.Definitions["s"]
	def.Provisioner.Actions["drain"] = model.ServiceAction{Type: "shell", Fields: map[string]any{"script": "d"}, Timeout: "3m"}
	p, err := Custom(model.Caller{}, "bounce", at, "00000001-007")
	if err != nil {
		t.Fatal(err)
	}
	want := `bounce (serial strategy)
└─ all (serial strategy)
   ├─ n0:[drain, stop]
   ├─ n0:[start]
   ├─ n1:[drain, stop]
   └─ n1:[start]`
	if got := shape(t, p); got != want {
		t.Errorf("%s", got)
	}
	if !p.Graph.HasOwnActions() || p.Graph.ServiceName(0) != "s" || p.Graph.Name(0) != "n0/DRAIN/s" {
		t.Errorf("%v", p.Graph.Name(0))
	}
	src := NewSource(at.Cluster, at.Nodes)
	w, err := src.Work("o", "o-1", at.Nodes[0], nil, p.Graph.Action[0], p.Graph.Entry(0))
	if err != nil || w.Action != "DRAIN" || w.Plugin != "shell" || !w.Automator || w.Timeout != 3*time.Minute {
		t.Errorf("%+v, %v", w, err)
	}
	for _, words := range []string{`"taskName":"DRAIN"`, `"service":{"name":"s"`, `"script":"d"`} {
		if !strings.Contains(string(w.Input), words) {
			t.Errorf("no %s in %s", words, w.Input)
		}
	}
}

// TestStepsOnAnAgent checks that a plan has a step on an agent once, before or after the steps on nodes as it is written, and what an agent
// gets to do.
func TestStepsOnAnAgent(t *testing.T) {
	phase := func(name, strategy string, steps ...model.PlanSteps) model.PlanPhase {
		return model.PlanPhase{Name: name, Service: "s", Strategy: strategy, Steps: steps}
	}
	agent := model.PlanSteps{Node: "agent", Tasks: [][]string{{"drain", "check"}, {"drain"}}}
	nodes := model.PlanSteps{Node: "default", Tasks: [][]string{{"stop"}}}
	at := clusterWith(model.Plan{Name: "bounce", Phases: []model.PlanPhase{
		phase("first", "", agent, nodes), phase("last", "parallel", nodes, agent), phase("alone", "", agent),
	}})
	def := at.Cluster.Definitions["s"]
	at.Cluster.Target, at.Cluster.Earlier = 2, []model.Target{{Number: 0, Definitions: map[string]model.Service{"s": {Base: model.Base{Name: "s"},
		Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"check": {Type: "shell", Timeout: "1m"}}}}}}}
	for _, key := range []string{"check", "drain"} {
		def.Provisioner.Actions[key] = model.ServiceAction{Type: "shell", Fields: map[string]any{"script": key}, Timeout: "3m"}
	}
	p, err := Custom(model.Caller{}, "bounce", at, "00000001-007")
	if err != nil {
		t.Fatal(err)
	}
	want := `bounce (serial strategy)
├─ first (serial strategy)
│  ├─ agent:[drain, check]
│  ├─ agent:[drain]
│  ├─ n0:[stop]
│  └─ n1:[stop]
├─ last (dependency strategy)
│  ├─ n0:[stop]
│  ├─ n1:[stop]
│  ├─ agent:[drain, check]
│  └─ agent:[drain]
└─ alone (serial strategy)
   ├─ agent:[drain, check]
   └─ agent:[drain]`
	if got := shape(t, p); got != want {
		t.Errorf("%s", got)
	}
	// The steps follow each other also where nodes are handled in parallel.
	var on []int
	for v := range p.Graph.AgentTasks() {
		on = append(on, v)
	}
	if len(on) != 9 || p.Graph.Name(on[1]) != "agent/CHECK/s" || p.Graph.Action[on[1]] != model.Run || len(p.Graph.Nodes) != 2 {
		t.Fatalf("%v of %v", on, p.Graph.Nodes)
	}
	if last := on[5]; p.Graph.Preds[last] < 2 {
		t.Errorf("%s waits for %d", p.Graph.Name(last), p.Graph.Preds[last])
	}
	w, err := NewSource(at.Cluster, at.Nodes).Work("o", "o-1", Nowhere(at.Cluster), nil, p.Graph.Action[on[1]], p.Graph.Entry(on[1]))
	if err != nil || w.Action != "CHECK" || w.Plugin != "shell" || !w.Automator || w.Timeout != 3*time.Minute ||
		!strings.Contains(string(w.Input), `"script":"check"`) {
		t.Errorf("%+v, %s, %v", w, w.Input, err)
	}
	// Only automators that run programs where their plugin is can do without a node.
	def.Provisioner.Actions["drain"] = model.ServiceAction{Type: "chef-solo"}
	if _, err := Custom(model.Caller{}, "bounce", at, "00000001-007"); err == nil ||
		!strings.Contains(err.Error(), "action drain of s is of automator chef-solo, which works on a node only") {
		t.Errorf("%v", err)
	}
}
