package tree

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// TestDecommission checks the plan of a decommission: node after node, with a step for each action,
// and then the remaining nodes (docs/spec/plans.md §10).
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
	if got, want := names(t, d, g), "web-1 serial: kill-n2-web erase-n2-web unreserve-n2\nweb-0 serial: kill-n1-web erase-n1-web "+
		"unreserve-n1\nconfigure dependency: n3:[configure web]\n"; got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	if g, err = d.Compile(g); err != nil {
		t.Fatal(err)
	}
	// All tasks of n2 come before those of n1.
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

// TestUninstall checks the plan of an uninstall: a phase for running services, one for each machine
// by name, and one for the cluster itself, which ends last (docs/spec/plans.md §11).
func TestUninstall(t *testing.T) {
	b := plan.NewBuilder([]string{"n1", "n2"}, []string{"db", "web"})
	for n := range 2 {
		stop := b.Task(model.Stop, n, 1)
		remove := b.Task(model.Remove, n, 1)
		db := b.Task(model.Stop, n, 0)
		gone := b.Task(model.Delete, n, plan.None)
		b.Edge(stop, remove)
		b.Edge(remove, db)
		b.Edge(db, gone)
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := Uninstall(g, "deploy", []Leaver{{"n1", "web-1"}, {"n2", "web-0"}})
	if got, want := names(t, d, g), `kill-tasks parallel: kill-task-n1-web kill-task-n1-db kill-task-n2-web kill-task-n2-db
unreserve-resources-web-0 parallel: unreserve-n2
unreserve-resources-web-1 parallel: unreserve-n1
deregister-service serial: deregister
`; got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	if g, err = d.Compile(g); err != nil {
		t.Fatal(err)
	}
	if got := ViewOf(&d.Tree, plan.NewState(g), 1).StepName(0); got != "kill-task-web-1-web" {
		t.Errorf("where nodes have names: %s", got)
	}
	e := plan.NewState(g).Edit()
	statuses := func() string {
		v := ViewOf(&d.Tree, e.State(), 1)
		out := v.Status().String() + ":"
		for i := range v.Phases {
			out += " " + v.PhaseStatus(i).String()
		}
		return out
	}
	seen := []string{statuses()}
	for {
		ready := e.State().Leasable()
		if len(ready) == 0 {
			break
		}
		if err := e.Lease(ready[0], 1, plan.Holder{}, 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Succeed(ready[0], 1, plan.End{}, 1); err != nil {
			t.Fatal(err)
		}
		if s := statuses(); s != seen[len(seen)-1] {
			seen = append(seen, s)
		}
	}
	if got, want := strings.Join(seen, "\n"), `PENDING: PENDING PENDING PENDING PENDING
IN_PROGRESS: IN_PROGRESS PENDING PENDING PENDING
IN_PROGRESS: IN_PROGRESS PENDING COMPLETE PENDING
IN_PROGRESS: COMPLETE PENDING COMPLETE PENDING
COMPLETE: COMPLETE COMPLETE COMPLETE COMPLETE`; got != want {
		t.Errorf("the statuses were\n%s\nnot\n%s", got, want)
	}
	// If services are not stopped first, the first phase is empty.
	b = plan.NewBuilder([]string{"n1"}, nil)
	b.Task(model.Delete, 0, plan.None)
	if g, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	d = Uninstall(g, "deploy", []Leaver{{"n1", "web-0"}})
	if got, want := names(t, d, g), "kill-tasks parallel:\nunreserve-resources-web-0 parallel: unreserve-n1\nderegister-service "+
		"serial: deregister\n"; got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
}
