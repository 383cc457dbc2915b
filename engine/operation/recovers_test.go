package operation

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// recovering returns a cluster of three nodes with the services db and web, and the definitions that it was made from.
func recovering(plans ...model.Plan) (Input, model.Set) {
	entry := map[string]map[string]any{"p": {"flavor": "f", "image": "i"}}
	known := model.Set{}
	known.Add(model.Define(model.KindHardwareType, &model.HardwareType{Base: model.Base{Name: "h"}, ProviderMap: entry}))
	known.Add(model.Define(model.KindImageType, &model.ImageType{Base: model.Base{Name: "i"}, ProviderMap: entry}))
	definitions := map[string]model.Service{}
	for _, name := range []string{"db", "web"} {
		s := model.Service{Base: model.Base{Name: name}, Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{
			"install": {Type: "x"}, "configure": {Type: "x"}, "initialize": {Type: "x"}, "start": {Type: "x"}, "stop": {Type: "x"},
		}}}
		definitions[name] = s
		known.Add(model.Define(model.KindService, &s))
	}
	tpl := model.ClusterTemplate{Base: model.Base{Name: "t"}, Plans: plans}
	tpl.Compatibility.Services = []string{"db", "web"}
	cl := &model.Cluster{ID: "00000001", Name: "c", Status: model.ClusterActive, Version: 3, Services: []string{"db", "web"},
		Definitions: definitions, Template: tpl, Provider: model.Provider{Base: model.Base{Name: "p"}}}
	at := Input{Cluster: cl}
	for i := range 3 {
		n := &model.Node{ID: fmt.Sprintf("n%d", i), Number: 1000 + i, Hostname: fmt.Sprintf("c-%d.local", i), Services: []string{"db", "web"},
			States: map[string]string{"db": "START", "web": "START"}, HardwareType: "h", ImageType: "i", Created: true, Confirmed: true,
			IPAddresses: map[string]string{"access_v4": fmt.Sprintf("10.0.0.%d", i)}, Automators: []string{"x"}}
		at.Nodes = append(at.Nodes, n)
	}
	return at, known
}

// pattern returns a plan that is the pattern of a recovery of db, with these steps.
func pattern(when, others string, tasks ...[]string) model.Plan {
	return model.Plan{Name: "own", Recovers: &model.Recovers{Service: "db", When: when}, Others: others,
		Phases: []model.PlanPhase{{Name: "all", Service: "db", Steps: []model.PlanSteps{{Node: "default", Tasks: tasks}}}}}
}

// shape returns the phases and steps of a prepared operation, and checks that its steps can be carried out one after the other.
func shape(t *testing.T, p *Prepared) string {
	t.Helper()
	s := plan.NewState(p.Graph)
	for len(s.Leasable()) > 0 {
		e := s.Edit()
		v := s.Leasable()[0]
		if err := e.Lease(v, 1, plan.Holder{Session: "s"}, 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Succeed(v, 1, plan.End{}, 2); err != nil {
			t.Fatal(err)
		}
		s = e.Done()
	}
	info := tree.ViewOf(p.Tree, s, 0).Info()
	if info.Status != "COMPLETE" {
		t.Errorf("carried out, it is %s", info.Status)
	}
	return strings.ReplaceAll(info.Text(p.Tree.Name), " (COMPLETE)", "")
}

// TestRecoversReplace checks that a plan of the template is the pattern by which a node is replaced: its steps, then the others one by one.
func TestRecoversReplace(t *testing.T) {
	replace := func(at Input, known model.Lookup, victims ...string) (*Prepared, error) {
		return Prepare(context.Background(), model.Caller{}, Request{Type: model.OpReplaceNode, Victims: victims, Forced: true}, at, known,
			"00000001-002")
	}
	at, known := recovering(pattern("replace", "restart", []string{"install", "configure"}, []string{"start"}))
	p, err := replace(at, known, "n1")
	if err != nil {
		t.Fatal(err)
	}
	want := `recovery (dependency strategy)
├─ replace (parallel strategy)
│  └─ n1:[delete, create, confirm, bootstrap, install web, configure web, initialize web, start web]
└─ own (serial strategy)
   ├─ n1:[install, configure]
   ├─ n1:[start]
   ├─ n0:[stop, start]
   └─ n2:[stop, start]`
	if got := shape(t, p); got != want {
		t.Errorf("%s", got)
	}
	if got := fmt.Sprint(p.Operation.Parameters); got != "map[COOPR_OLD_HOST:c-1.local COOPR_OLD_IP:10.0.0.1]" {
		t.Errorf("%s", got)
	}
	// Not by recovery, or without a pattern, nodes are replaced in the usual way.
	at.Nodes[2].States["db"] = "STOP" // what was stopped stays so
	p, err = replace(at, known, "n0")
	if err != nil {
		t.Fatal(err)
	}
	if got := shape(t, p); strings.Contains(got, "n2") || !strings.Contains(got, "n1:[stop, start]") {
		t.Errorf("%s", got)
	}
	if p, err = Prepare(context.Background(), model.Caller{}, Request{Type: model.OpReplaceNode, Victims: []string{"n0"}}, at, known,
		"00000001-002"); err != nil {
		t.Fatal(err)
	}
	if got := shape(t, p); strings.Contains(got, "own") || len(p.Operation.Parameters) > 0 {
		t.Errorf("%s", got)
	}
	if _, err = replace(at, known, "n0", "n1"); err == nil || !strings.Contains(err.Error(), "plan own recovers db on one node at a time") {
		t.Errorf("two nodes: %v", err)
	}
	at, known = recovering(pattern("restart", "", []string{"stop", "start"}))
	if p, err = replace(at, known, "n1"); err != nil || strings.Contains(shape(t, p), "own") {
		t.Errorf("a pattern for restarts: %v", err)
	}
}

// TestRecoversRestart checks that a plan of the template is the pattern by which a service is restarted where it is.
func TestRecoversRestart(t *testing.T) {
	at, _ := recovering(pattern("restart", "", []string{"stop"}, []string{"configure", "start"}))
	restart := func(units ...Unit) (*Prepared, error) {
		return Concurrent(model.Caller{}, model.OpRecover, units, at, "00000001-002")
	}
	p, err := restart(Unit{"n1", []string{"db", "web"}})
	if err != nil {
		t.Fatal(err)
	}
	want := `recovery (parallel strategy)
├─ c-1 (parallel strategy)
│  └─ n1:[stop web, start web]
└─ own (serial strategy)
   ├─ n1:[stop]
   └─ n1:[configure, start]`
	if got := shape(t, p); got != want {
		t.Errorf("%s", got)
	}
	if p, err = restart(Unit{"n1", []string{"web"}}, Unit{"n2", []string{"web"}}); err != nil || strings.Contains(shape(t, p), "own") {
		t.Errorf("another service: %v", err)
	}
	if _, err = restart(Unit{"n1", []string{"db"}}, Unit{"n2", []string{"db"}}); err == nil {
		t.Error("two nodes are restarted in one operation by a plan that has the address of one")
	}
	if p, err = Concurrent(model.Caller{}, model.OpPauseNode, []Unit{{"n1", []string{"db"}}}, at, "00000001-003"); err != nil ||
		strings.Contains(shape(t, p), "own") {
		t.Errorf("a pause: %v", err)
	}
}

// TestDecommissionByPlan checks that actions of a service's own come first when a node leaves, if the template's plan says so.
func TestDecommissionByPlan(t *testing.T) {
	at, known := recovering(model.Plan{Name: "decommission", Phases: []model.PlanPhase{{Name: "all", Service: "db",
		Steps: []model.PlanSteps{{Node: "default", Tasks: [][]string{{"drain"}, {"move"}, {"stop"}}}}}}})
	def := at.Cluster.Definitions["db"]
	for _, own := range []string{"drain", "move"} {
		def.Provisioner.Actions[own] = model.ServiceAction{Type: "x"}
	}
	shrink := func(forced bool) string {
		t.Helper()
		p, err := Prepare(context.Background(), model.Caller{}, Request{Type: model.OpShrink, Victims: []string{"n2"}, Forced: forced}, at, known,
			"00000001-002")
		if err != nil {
			t.Fatal(err)
		}
		return shape(t, p)
	}
	want := `decommission (serial strategy)
└─ c-2 (serial strategy)
   ├─ drain-c-2-db
   ├─ move-c-2-db
   ├─ kill-c-2-db
   ├─ kill-c-2-web
   └─ unreserve-c-2`
	if got := shrink(false); got != want {
		t.Errorf("%s", got)
	}
	if got := shrink(true); strings.Contains(got, "drain") {
		t.Errorf("its machine may be gone: %s", got)
	}
	delete(def.Provisioner.Actions, "stop")
	if got := shrink(false); !strings.Contains(got, "move-c-2-db") || strings.Index(got, "move-c-2-db") > strings.Index(got, "unreserve") {
		t.Errorf("a service that cannot be stopped: %s", got)
	}
}
