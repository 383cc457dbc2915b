package planner_test

import (
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
)

// TestWithIndependence checks that services with "exclusive: service" run concurrently with the
// other services of their nodes, each in its own order. In a plan that changes one node after the
// other, such services belong to the step of their node.
func TestWithIndependence(t *testing.T) {
	actions := map[string]model.ServiceAction{"install": {}, "start": {}}
	services := map[string]model.Service{}
	for name, exclusive := range map[string]string{"a": "", "b": model.ExclusiveNode, "x": model.ExclusiveService,
		"y": model.ExclusiveService} {
		services[name] = model.Service{Base: model.Base{Name: name}, Exclusive: exclusive,
			Provisioner: model.ServiceProvisioner{Actions: actions}}
	}
	in := planner.Input{Operation: model.OpCreate, Services: services, Nodes: []planner.Node{
		{ID: "n0", Number: 1000, Services: []string{"a", "b", "x", "y"}}, {ID: "n1", Number: 1001, Services: []string{"a", "x"}},
	}}
	g, err := planner.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	free, err := planner.WithIndependence(g, services)
	if err != nil {
		t.Fatal(err)
	}
	// widest leases all leasable tasks at once, again and again, and returns the names of each
	// round.
	widest := func(g *plan.Graph) [][]string {
		e := plan.NewState(g).Edit()
		var out [][]string
		for fence := uint64(1); ; fence++ {
			var names []string
			var held []uint32
			for _, v := range e.State().Leasable() {
				if err := e.Lease(v, fence, plan.Holder{}, 1); err == nil {
					held = append(held, v)
					names = append(names, g.Name(int(v)))
				}
			}
			if len(held) == 0 {
				return out
			}
			for _, v := range held {
				if err := e.Succeed(v, fence, plan.End{}, 1); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(names)
			out = append(out, names)
		}
	}
	on := func(names []string, node string) (n int) {
		for _, name := range names {
			if name[:2] == node {
				n++
			}
		}
		return n
	}
	for _, at := range widest(g) {
		if on(at, "n0") > 1 || on(at, "n1") > 1 {
			t.Errorf("at once on one node: %v", at)
		}
	}
	most, total := 0, 0
	for _, at := range widest(free) {
		most, total = max(most, on(at, "n0")), total+len(at)
		if slices.Contains(at, "n0/INSTALL/a") && slices.Contains(at, "n0/INSTALL/b") {
			t.Errorf("a and b do not take turns: %v", at)
		}
	}
	if most != 3 || total != free.Tasks() {
		t.Errorf("at most %d at once on a node, %d of %d tasks", most, total, free.Tasks())
	}
	d := tree.ByNode(free, "deploy", tree.Strategy{Kind: tree.Serial})
	c, err := d.Compile(free)
	if err != nil {
		t.Fatal(err)
	}
	if c.Steps() != 2 {
		t.Errorf("%d steps of two nodes that take turns", c.Steps())
	}
	again, err := plan.DecodeGraph(c.Encode())
	if err != nil || again.Machine(int32(len(again.Nodes)-1)) >= 2 {
		t.Errorf("after it was sent: %v", err)
	}
	if same, err := planner.WithIndependence(g, nil); err != nil || same != g {
		t.Errorf("without such services: another graph, %v", err)
	}
}
