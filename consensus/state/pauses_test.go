package state_test

import (
	"slices"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

const creation, second, third, fourth = "00000001-001", "00000001-002", "00000001-003", "00000001-004"

// newCreation creates a cluster of two nodes, with a step for each task. The creation is paused when only the START on db is left.
func newCreation(t *testing.T, level uint32) *clinic {
	t.Helper()
	c := &clinic{t: t, m: fresh(t), now: 1000}
	c.do(tenant("t", 0, 0))
	c.do(session("s", "a"))
	c.level(level)
	actions := []model.Action{model.Create, model.Confirm, model.Install, model.Start}
	stages := make([][]int, len(actions))
	b := plan.NewBuilder([]string{db, app}, []string{"db", "app"})
	for n := range 2 {
		for i, a := range actions {
			service := plan.None
			if i > 1 {
				service = n
			}
			v := b.Task(a, n, service)
			if i > 0 {
				b.Edge(uint32(stages[i-1][n]), v)
			}
			stages[i] = append(stages[i], int(v))
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := tree.Staged(g, "deploy", stages)
	if g, err = d.Compile(g); err != nil {
		t.Fatal(err)
	}
	cmd := start("t", "00000001", "c", 2, "leave", "")
	cmd.GetStartOperation().Graph, cmd.GetStartOperation().Tree = g.Encode(), logtest.Tree(&d.Tree)
	if a := c.do(cmd); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.runAll(creation, func(g *plan.Graph, v uint32) bool { return g.Action[v] != model.Start || g.NodeID(int(v)) == app })
	c.do(order(creation, "pause"))
	return c
}

func (c *clinic) level(level uint32) {
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
}

// runAll completes the tasks of an operation for which which returns true, as long as one of them can be leased.
func (c *clinic) runAll(op string, which func(g *plan.Graph, v uint32) bool) {
	c.t.Helper()
	for {
		s, _ := c.m.View().Plan(op)
		i := slices.IndexFunc(s.Leasable(), func(v uint32) bool { return which(s.Graph, v) })
		if i < 0 {
			return
		}
		v := s.Leasable()[i]
		if a := c.do(lease(op, "s", v)); len(a.Refused) > 0 {
			c.t.Fatalf("no lease of %s", s.Graph.Name(int(v)))
		}
		s, _ = c.m.View().Plan(op)
		c.do(report(op, v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	}
}

// begin starts a concurrent operation on app.
func (c *clinic) begin(id string, typ model.OperationType) {
	c.t.Helper()
	if a := c.do(c.concurrent(id, typ, "ann", map[string]string{app: "app"})); a.Err != nil {
		c.t.Fatal(a.Err)
	}
}

// again repeats the step of the creation with an action on app, and lets the creation go on.
func (c *clinic) again(action model.Action) {
	c.t.Helper()
	s, _ := c.m.View().Plan(creation)
	v, _ := c.m.View().PlanTree("t", creation, c.now)
	for _, u := range s.Graph.On(app) {
		if s.Graph.Action[u] == action {
			phase, step := v.IDs(s.Graph.StepOf(u))
			if a := c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: creation,
				Order: pb.PlanOrder_PLAN_ORDER_RESTART, Phase: phase, Step: step}}}); a.Err != nil {
				c.t.Fatal(a.Err)
			}
		}
	}
	c.do(order(creation, "resume"))
}

// is checks the state of the service app, and its pause.
func (c *clinic) is(what, state, paused string) {
	c.t.Helper()
	n, _ := c.m.View().Node("t", app)
	if got := c.health(app).Paused["app"]; n.States["app"] != state || got != paused {
		c.t.Errorf("%s: the service is %s, not %s, and %q, not %q", what, n.States["app"], state, got, paused)
	}
}

// TestPauseOutlivesTheCreation pauses a service of a node that a creation has finished with, while the creation is at work on the other
// node. The end of the creation does not end the pause, also if an order has repeated another task on the node than the start.
func TestPauseOutlivesTheCreation(t *testing.T) {
	for _, again := range []model.Action{model.Barrier, model.Create, model.Install} {
		c := newCreation(t, logformat.OrdersLevel)
		c.begin(second, model.OpPauseNode)
		c.run(second, nil)
		c.again(again)
		c.run(creation, nil)
		if op := c.operation(creation); op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
		c.is("repeated was "+again.String(), "STOP", model.Paused)
	}
}

// TestMachineMadeAgainEndsAPause checks that a pause ends with the machine, which a CREATE that undoes an earlier one deletes.
func TestMachineMadeAgainEndsAPause(t *testing.T) {
	c := newCreation(t, logformat.OrdersLevel)
	c.begin(second, model.OpPauseNode)
	c.run(second, nil)
	c.again(model.Confirm)
	failed := false
	for !c.operation(creation).Status.Ended() {
		s, _ := c.m.View().Plan(creation)
		v := s.Leasable()[0]
		c.do(lease(creation, "s", v))
		s, _ = c.m.View().Plan(creation)
		outcome := pb.Outcome_OUTCOME_SUCCEEDED
		if s.Graph.Action[v] == model.Confirm && !failed {
			outcome, failed = pb.Outcome_OUTCOME_RETRYABLE, true
		}
		c.do(report(creation, v, s.Fence(v), outcome, ""))
	}
	n, _ := c.m.View().Node("t", app)
	if got := c.health(app).Paused; !failed || n.States["app"] == "STOP" || len(got) > 0 {
		t.Errorf("the service is %s, and paused are %v", n.States["app"], got)
	}
}

// TestStartEndsAPauseAtOnce checks that a paused service that the creation starts is not paused any more, before the creation ends.
func TestStartEndsAPauseAtOnce(t *testing.T) {
	for level, want := range map[uint32]string{logformat.OrdersLevel - 1: model.Paused, logformat.OrdersLevel: ""} {
		c := newCreation(t, level)
		c.begin(second, model.OpPauseNode)
		c.run(second, nil)
		c.again(model.Start)
		c.runAll(creation, func(g *plan.Graph, v uint32) bool { return g.NodeID(int(v)) == app })
		if op, got := c.operation(creation), c.health(app).Paused["app"]; op.Status != model.OpRunning || got != want {
			t.Errorf("level %d: the creation is %s, and the service %q, not %q", level, op.Status, got, want)
		}
	}
}

// TestResumeOfAStartedService checks that a resume that waits does not start a service that another operation has started meanwhile.
func TestResumeOfAStartedService(t *testing.T) {
	for level, want := range map[uint32]model.OperationStatus{logformat.OrdersLevel - 1: model.OpRunning, logformat.OrdersLevel: model.OpSucceeded} {
		c := newCreation(t, level)
		c.begin(second, model.OpPauseNode)
		c.run(second, nil)
		c.begin(third, model.OpResumeNode)
		c.again(model.Start)
		c.runAll(creation, func(g *plan.Graph, v uint32) bool { return g.NodeID(int(v)) == app })
		if op := c.operation(third); op.Status != want {
			t.Errorf("level %d: the resume is %s, not %s", level, op.Status, want)
		}
		if level < logformat.OrdersLevel {
			continue
		}
		if s, _ := c.m.View().Plan(third); !s.Note(0).Adopted || s.Fence(0) == 0 {
			t.Errorf("its task is %+v", s.Task(0))
		}
		c.is("after the resume", "START", "")
		c.run(creation, nil)
		c.is("after the creation", "START", "")
	}
}

// TestRestartGoesOnAfterAStart checks that a restart that was aborted between its stop and its start, and goes on, does not start a service
// that another operation has started meanwhile, unless another one has paused it since.
func TestRestartGoesOnAfterAStart(t *testing.T) {
	for paused, adopts := range map[bool]bool{false: true, true: false} {
		c := newCreation(t, logformat.OrdersLevel)
		c.begin(second, model.OpRecover)
		c.runAll(second, func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Stop })
		c.do(order(second, "abort"))
		c.again(model.Start)
		c.runAll(creation, func(g *plan.Graph, v uint32) bool { return g.NodeID(int(v)) == app })
		if paused {
			c.begin(third, model.OpPauseNode)
			c.run(third, nil)
		}
		o := &ordered{c, second}
		o.is("before the order", model.OpAborted)
		o.must(pb.PlanOrder_PLAN_ORDER_CONTINUE, "", "")
		if want := map[bool]model.OperationStatus{true: model.OpSucceeded, false: model.OpRunning}[adopts]; c.operation(second).Status != want {
			t.Errorf("paused %t: the restart is %s, not %s", paused, c.operation(second).Status, want)
		}
	}
}

// TestStartDuringAPause checks that a pause, which is at work on another node, does not record at its end as paused what was started after
// it was done with the node; unless an order has forced its step to be complete.
func TestStartDuringAPause(t *testing.T) {
	for forced, want := range map[bool]string{false: "", true: model.Paused} {
		c := newCreation(t, logformat.OrdersLevel)
		if a := c.do(c.concurrent(second, model.OpPauseNode, "ann", map[string]string{app: "app", db: "db"})); a.Err != nil {
			t.Fatal(a.Err)
		}
		onApp := func(g *plan.Graph, v uint32) bool { return g.NodeID(int(v)) == app }
		if o := (&ordered{c, second}); forced {
			c.do(lease(second, "s", o.first(app)))
			v, _ := c.m.View().PlanTree("t", second, c.now)
			phase, step := v.IDs(o.plan().Graph.StepOf(o.first(app)))
			o.must(pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE, phase, step)
		} else {
			c.runAll(second, onApp)
		}
		c.again(model.Start)
		c.runAll(creation, onApp)
		c.run(second, nil)
		if op := c.operation(second); op.Status != model.OpSucceeded || c.operation(creation).Status != model.OpRunning {
			t.Fatal(op.Status, op.Message)
		}
		if got := c.health(app).Paused["app"]; got != want || c.health(db).Paused["db"] != model.Paused {
			t.Errorf("forced %t: it is %q, not %q", forced, got, want)
		}
	}
}

// TestPauseOfAPausedService checks that a pause that fails leaves a service paused that was paused before.
func TestPauseOfAPausedService(t *testing.T) {
	for level, want := range map[uint32]string{logformat.OrdersLevel - 1: "", logformat.OrdersLevel: model.Paused} {
		c := newCreation(t, level)
		c.do(order(creation, "resume"))
		c.run(creation, nil)
		c.begin(second, model.OpPauseNode)
		c.run(second, nil)
		c.begin(third, model.OpPauseNode)
		c.do(order(third, "abort"))
		if op := c.operation(third); op.Status != model.OpAborted {
			t.Fatal(op.Status, op.Message)
		}
		c.is("after the second pause", "STOP", want)
		c.begin(fourth, model.OpPauseNode)
		c.run(fourth, nil)
		c.is("after the third pause", "STOP", model.Paused)
	}
}

// TestPausedServiceLeaves checks that nothing is left of the pause of a service that has left its node.
func TestPausedServiceLeaves(t *testing.T) {
	for level, want := range map[uint32]string{logformat.OrdersLevel - 1: model.Paused, logformat.OrdersLevel: ""} {
		c := newClinic(t)
		c.level(level)
		c.begin(second, model.OpPauseNode)
		c.run(second, nil)
		cl, _ := c.m.View().Cluster("t", "00000001")
		n, _ := c.m.View().Node("t", app)
		next, leaving := *cl, *n
		next.Operations++
		leaving.Leaving = []string{"app"}
		cmd := c.concurrent(third, model.OpPauseNode, "ann", map[string]string{app: "app"})
		s := cmd.GetStartOperation()
		s.Operation = logtest.Operation(model.Operation{ID: third, Tenant: "t", Cluster: "00000001", Type: model.OpRemoveServices,
			OnFailure: "leave"})
		s.Cluster, s.ClusterVersion = logtest.Cluster(next), cl.Version
		s.Nodes = append(s.Nodes, logtest.Node(leaving))
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run(third, nil)
		n, _ = c.m.View().Node("t", app)
		if got := c.health(app).Paused["app"]; len(n.Services) > 0 || got != want {
			t.Errorf("level %d: services are %v, and app is %q, not %q", level, n.Services, got, want)
		}
	}
}

// TestRestartEndsAPause checks that a paused service that a concurrent operation has started is not paused any more, so that it is checked
// and recovered again.
func TestRestartEndsAPause(t *testing.T) {
	c := newClinic(t)
	for i, typ := range []model.OperationType{model.OpPauseNode, model.OpRecover} {
		id := string(model.ClusterID("00000001").Operation(i + 2))
		if a := c.do(c.concurrent(id, typ, "ann", map[string]string{app: "app"})); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run(id, nil)
	}
	if n, _ := c.m.View().Node("t", app); n.States["app"] != model.Start.String() || len(c.health(app).Paused) > 0 {
		t.Errorf("the service is %s, and paused are %v", n.States["app"], c.health(app).Paused)
	}
}
