package operation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
)

// randomPlan draws a plan with tasks of services on nodes, of nodes as a whole, and barriers. Those of its tasks that done returns true for
// are done.
func randomPlan(t *rapid.T, label string, done func() bool) *plan.State {
	nodes, services := []string{"n0", "n1", "n2"}, []string{"a", "b"}
	b := plan.NewBuilder(nodes, services)
	var tasks []uint32
	for range rapid.IntRange(0, 12).Draw(t, label+" vertices") {
		node := rapid.IntRange(0, len(nodes)-1).Draw(t, "node")
		switch service := rapid.IntRange(-2, len(services)-1).Draw(t, "service"); service {
		case -2:
			b.Barrier()
		case -1:
			tasks = append(tasks, b.Task(model.Bootstrap, node, plan.None))
		default:
			action := rapid.SampledFrom([]model.Action{model.Stop, model.Install, model.Configure, model.Start}).Draw(t, "action")
			tasks = append(tasks, b.Task(action, node, service))
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	e := plan.NewState(g).Edit()
	for _, v := range tasks {
		if done() {
			if err := e.Inherit([]uint32{v}, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	return e.Done()
}

// TestFitting compares the tasks that a plan takes over from the one that it supersedes with those that a naive reading of the rule finds,
// one at a time.
func TestFitting(t *testing.T) {
	some := 0
	rapid.Check(t, func(t *rapid.T) {
		old := randomPlan(t, "old", func() bool { return rapid.IntRange(0, 3).Draw(t, "done") > 0 })
		g := randomPlan(t, "new", func() bool { return false }).Graph
		whole := rapid.Bool().Draw(t, "whole nodes")
		var want []uint32
		for v := range old.Graph.Len() {
			if fitsNaively(old, g, v, whole) {
				want = append(want, uint32(v))
			}
		}
		got := Fitting(old, g, whole)
		if some += len(got); !slices.Equal(got, want) {
			t.Fatalf("%d fit, not %d", got, want)
		}
	})
	if some == 0 {
		t.Error("no task fitted in any plan")
	}
}

func fitsNaively(old *plan.State, g *plan.Graph, v int, whole bool) bool {
	if old.Graph.Service[v] < 0 {
		return false
	}
	for w := range old.Graph.Len() {
		same := old.Graph.Node[w] >= 0 && old.Graph.NodeID(w) == old.Graph.NodeID(v)
		about := whole || old.Graph.Service[w] < 0 || old.Graph.ServiceName(w) == old.Graph.ServiceName(v)
		if same && about && old.Status(uint32(w)) != model.TaskSucceeded {
			return false
		}
	}
	for w := range g.Len() {
		same := g.Node[w] >= 0 && g.NodeID(w) == old.Graph.NodeID(v)
		about := whole || g.Service[w] < 0 || g.ServiceName(w) == old.Graph.ServiceName(v)
		if same && about {
			return false
		}
	}
	return true
}

// TestMaySupersede checks each pair of types and each status: the refusal is a conflict that names the open operation.
func TestMaySupersede(t *testing.T) {
	all := []model.OperationType{
		model.OpCreate, model.OpDelete, model.OpStart, model.OpStop, model.OpRestart, model.OpConfigure, model.OpGrow, model.OpShrink,
		model.OpAddServices, model.OpRemoveServices, model.OpUpgrade, model.OpReplaceNode, model.OpSyncTemplate, model.OpRollback,
	}
	rollout := []model.OperationType{model.OpConfigure, model.OpUpgrade, model.OpSyncTemplate}
	graph := func(actions ...model.Action) *plan.Graph {
		b := plan.NewBuilder([]string{"n"}, []string{"s"})
		for _, a := range actions {
			b.Task(a, 0, plan.None)
		}
		g, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	check := func(what string, next model.OperationType, open model.Operation, g *plan.Graph, may bool) {
		t.Helper()
		err := MaySupersede(next, &open, g)
		if may && err != nil || !may && (!errors.Is(err, problem.Conflict) || !strings.Contains(err.Error(), open.ID)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, next := range all {
		for _, is := range all {
			may := slices.Contains(rollout, next) && slices.Contains(rollout, is)
			check(fmt.Sprintf("%s after %s", next, is), next, model.Operation{ID: "o1", Type: is, Status: model.OpRunning}, graph(model.Install), may)
		}
	}
	upgrade := model.Operation{ID: "o1", Type: model.OpUpgrade, Status: model.OpPaused}
	check("a paused one", model.OpUpgrade, upgrade, graph(), true)
	check("one without a plan", model.OpUpgrade, upgrade, nil, false)
	check("one that makes a machine", model.OpUpgrade, upgrade, graph(model.Install, model.Create), false)
	check("one that removes a machine", model.OpUpgrade, upgrade, graph(model.Delete), false)
	for _, status := range []model.OperationStatus{model.OpAccepted, model.OpAborting, model.OpRollingBack, model.OpSuperseded} {
		check(string(status), model.OpUpgrade, model.Operation{ID: "o1", Type: model.OpUpgrade, Status: status}, graph(), false)
	}
	check("one that is superseded", model.OpUpgrade,
		model.Operation{ID: "o1", Type: model.OpUpgrade, Status: model.OpAborting, SupersededBy: "o2"}, graph(), false)
}

// TestTakenOverKeepsOrder checks that the tasks of a service which a plan takes over follow each other as before when they are repeated,
// also if only barriers and tasks of other nodes were between them.
func TestTakenOverKeepsOrder(t *testing.T) {
	b := plan.NewBuilder([]string{"n0", "n1"}, []string{"a"})
	other := b.Task(model.Configure, 1, 0)
	start := b.Task(model.Start, 0, 0) // the order of the vertices is not that of the tasks
	stop := b.Task(model.Stop, 0, 0)
	wall := b.Barrier()
	b.Edge(stop, wall)
	b.Edge(wall, other)
	b.Edge(other, start)
	old, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	e := plan.NewState(old).Edit()
	if err := e.Inherit([]uint32{other, start, stop}, 1); err != nil {
		t.Fatal(err)
	}
	g, err := plan.NewBuilder(nil, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	p := &Prepared{Graph: g}
	if err := p.takeOver(e.Done()); err != nil {
		t.Fatal(err)
	}
	e = plan.NewState(p.Graph).Edit()
	if err := e.Inherit(p.Done, 1); err != nil {
		t.Fatal(err)
	}
	if err := e.Restart(plan.Whole(), plan.Order{}); err != nil {
		t.Fatal(err)
	}
	var ready []string
	for _, v := range e.Done().Leasable() {
		ready = append(ready, p.Graph.Name(int(v)))
	}
	slices.Sort(ready)
	if want := []string{"n0/STOP/a", "n1/CONFIGURE/a"}; !slices.Equal(ready, want) {
		t.Errorf("%v may be repeated at once, not %v", ready, want)
	}
}
