package tree

import (
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// TestDecommission: node after node, each thing a step, and then the others
// (spec/plans.md §10).
func TestDecommission(t *testing.T) {
	b := plan.NewBuilder([]string{"n1", "n2", "n3"}, []string{"web"})
	var last []uint32
	for n := range 2 {
		stop := b.Task(model.Stop, n, 0)
		remove := b.Task(model.Remove, n, 0)
		gone := b.Task(model.Delete, n, plan.None)
		b.Edge(stop, remove)
		b.Edge(remove, gone)
		last = append(last, gone)
	}
	configure := b.Task(model.Configure, 2, 0)
	for _, v := range last {
		b.Edge(v, configure)
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := Decommission(g, "decommission", []Leaver{{"n2", "web-1"}, {"n1", "web-0"}})
	if got, want := names(t, d, g), "web-1 serial: n2:[stop web] n2:[remove web] n2:[delete]\nweb-0 serial: n1:[stop web] n1:[remove web] n1:[delete]\nconfigure dependency: n3:[configure web]\n"; got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	if g, err = d.Compile(g); err != nil {
		t.Fatal(err)
	}
	// In order: all of n2 before anything of n1.
	e := plan.NewState(g).Edit()
	var order []string
	for {
		ready := e.State().Leasable()
		if len(ready) == 0 {
			break
		}
		if len(ready) > 1 {
			t.Fatalf("%d tasks at once", len(ready))
		}
		order = append(order, g.Name(int(ready[0])))
		if err := e.Lease(ready[0], 1, plan.Holder{}, 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Succeed(ready[0], 1, plan.End{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(order) != 7 || order[2] != "n2/DELETE" || order[3] != "n1/STOP/web" || order[6] != "n3/CONFIGURE/web" {
		t.Errorf("%v", order)
	}
}
