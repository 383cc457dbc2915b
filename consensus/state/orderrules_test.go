package state_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// ordered is a clinic with an operation on two nodes, whose phases are the nodes.
type ordered struct {
	*clinic
	op string
}

// newOrdered begins an operation. What fails is left, or pauses it.
func newOrdered(t *testing.T, typ model.OperationType, onFailure string) *ordered {
	t.Helper()
	o := &ordered{newClinic(t), "00000001-002"}
	cmd := intolerant(o.concurrent(o.op, typ, "ann", map[string]string{app: "app", db: "db"}))
	cmd.GetStartOperation().Operation.OnFailure = onFailure
	if typ == model.OpPlan {
		cmd.GetStartOperation().Operation.Plan = "backup"
	}
	if a := o.do(cmd); a.Err != nil {
		t.Fatal(a.Err)
	}
	if typ == model.OpPlan {
		o.must(pb.PlanOrder_PLAN_ORDER_START, "", "")
	}
	return o
}

func (o *ordered) order(order pb.PlanOrder, phase, step string) error {
	return o.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: o.op, Order: order,
		Phase: phase, Step: step}}}).Err
}

func (o *ordered) must(order pb.PlanOrder, phase, step string) {
	o.t.Helper()
	if err := o.order(order, phase, step); err != nil {
		o.t.Fatalf("%s %s %s: %v", order, phase, step, err)
	}
}

func (o *ordered) plan() *plan.State {
	s, _ := o.m.View().Plan(o.op)
	return s
}

// first returns the first task on a node.
func (o *ordered) first(node string) uint32 { return o.plan().Graph.On(node)[0] }

// step returns the id of the step on a node, which is the only one of its phase.
func (o *ordered) step(node string) string {
	v, _ := o.m.View().PlanTree("t", o.op, o.now)
	_, id := v.IDs(o.plan().Graph.StepOf(o.first(node)))
	return id
}

// end carries out the first task on a node.
func (o *ordered) end(node string, how pb.Outcome) {
	o.t.Helper()
	v := o.first(node)
	if a := o.do(lease(o.op, "s", v)); len(a.Refused) > 0 {
		o.t.Fatalf("no lease on %s", node)
	}
	o.do(report(o.op, v, o.plan().Fence(v), how, ""))
}

func (o *ordered) is(what string, want model.OperationStatus) {
	o.t.Helper()
	if is := o.operation(o.op); is.Status != want {
		o.t.Errorf("%s: the operation is %s: %s, not %s", what, is.Status, is.Message, want)
	}
}

// TestStartByFeatureLevel checks that "start" of a plan that is paused continues it only where all voters do so.
func TestStartByFeatureLevel(t *testing.T) {
	for level, want := range map[uint32]model.TaskStatus{logformat.OrdersLevel - 1: model.TaskReady, logformat.OrdersLevel: model.TaskSucceeded} {
		o := newOrdered(t, model.OpRecover, "leave")
		o.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
		o.end(app, pb.Outcome_OUTCOME_SUCCEEDED)
		o.must(pb.PlanOrder_PLAN_ORDER_INTERRUPT, "", "")
		o.must(pb.PlanOrder_PLAN_ORDER_START, "", "")
		if got := o.plan().Status(o.first(app)); got != want && (want != model.TaskReady || got != model.TaskUncertain) {
			t.Errorf("level %d: the task that was done is %s, not %s", level, got, want)
		}
	}
}

// TestOrdersAfterAFailureThatPauses checks that an operation that a failure has paused goes on as one that failed does (D3), and that
// one that a person has paused does not.
func TestOrdersAfterAFailureThatPauses(t *testing.T) {
	for _, r := range []struct {
		order       pb.PlanOrder
		phase, step bool
		want        model.OperationStatus
	}{
		{pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE, true, true, model.OpRunning},
		{pb.PlanOrder_PLAN_ORDER_RESTART, true, true, model.OpRunning},
		{pb.PlanOrder_PLAN_ORDER_RESTART, true, false, model.OpRunning},
		{pb.PlanOrder_PLAN_ORDER_RESTART, false, false, model.OpRunning},
		{pb.PlanOrder_PLAN_ORDER_CONTINUE, true, false, model.OpRunning},
		{pb.PlanOrder_PLAN_ORDER_CONTINUE, false, false, model.OpRunning},
		{pb.PlanOrder_PLAN_ORDER_START, false, false, model.OpRunning},
		{pb.PlanOrder_PLAN_ORDER_STOP, false, false, model.OpPaused},
	} {
		o := newOrdered(t, model.OpPlan, "pause")
		o.end(app, pb.Outcome_OUTCOME_FATAL)
		o.is("after the failure", model.OpPaused)
		phase, step := "", ""
		if r.phase {
			phase = app
		}
		if r.step {
			step = o.step(app)
		}
		o.must(r.order, phase, step)
		o.is(r.order.String()+" "+phase+" "+step, r.want)
	}
	// A pause is an order of its own: nothing has failed any more, and what failed is tried again once the plan is resumed.
	for _, level := range []uint32{logformat.OrdersLevel - 1, logformat.OrdersLevel} {
		now := level >= logformat.OrdersLevel
		o := newOrdered(t, model.OpPlan, "pause")
		o.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
		o.end(app, pb.Outcome_OUTCOME_FATAL)
		if err := o.order(pb.PlanOrder_PLAN_ORDER_INTERRUPT, "", ""); (err == nil) != now {
			t.Errorf("level %d: a pause after a failure: %v", level, err)
		}
		if err := o.order(pb.PlanOrder_PLAN_ORDER_INTERRUPT, "", ""); err == nil {
			t.Errorf("level %d: a second pause is carried out", level)
		}
		o.is("paused", model.OpPaused)
		if v, _ := o.m.View().PlanTree("t", o.op, o.now); now && (v.Status() != tree.Waiting || o.plan().Count(model.TaskFailed) > 0) {
			t.Errorf("paused after a failure, the plan is %s", v.Status())
		}
		if a := o.do(lease(o.op, "s", o.first(app))); len(a.Refused) == 0 {
			t.Errorf("level %d: a task that failed begins again while the plan is paused", level)
		}
		o.must(pb.PlanOrder_PLAN_ORDER_CONTINUE, "", "")
		o.run(o.op, nil)
		o.is("resumed", model.OpSucceeded)
	}
	// Of two failures, the first to be completed is not the last.
	o := newOrdered(t, model.OpPlan, "pause")
	o.do(lease(o.op, "s", o.first(app), o.first(db)))
	for _, node := range []string{app, db} {
		o.do(report(o.op, o.first(node), o.plan().Fence(o.first(node)), pb.Outcome_OUTCOME_FATAL, ""))
	}
	o.must(pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE, app, o.step(app))
	o.is("one of two failures completed", model.OpPaused)
	o.must(pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE, db, o.step(db))
	o.is("both completed", model.OpSucceeded)
	// A person's pause stays.
	o = newOrdered(t, model.OpPlan, "pause")
	o.end(app, pb.Outcome_OUTCOME_SUCCEEDED)
	o.do(order(o.op, "pause"))
	o.must(pb.PlanOrder_PLAN_ORDER_RESTART, app, o.step(app))
	o.is("a step restarted in an operation that a person paused", model.OpPaused)
}

// TestOrdersThatReviveNothing checks that an operation that has ended stays so if an order neither repeats anything nor takes away the
// last failure.
func TestOrdersThatReviveNothing(t *testing.T) {
	o := newOrdered(t, model.OpPlan, "leave")
	o.end(app, pb.Outcome_OUTCOME_SUCCEEDED)
	o.do(order(o.op, "abort"))
	o.is("aborted", model.OpAborted)
	o.must(pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE, app, o.step(app))
	o.is("a step of an aborted operation completed", model.OpAborted)
	o.must(pb.PlanOrder_PLAN_ORDER_INTERRUPT, db, "")
	o.is("a phase of an aborted operation paused", model.OpAborted)
	o.must(pb.PlanOrder_PLAN_ORDER_CONTINUE, "", "")
	o.is("continued", model.OpRunning)
	if s := o.plan(); !s.HeldBack(o.first(db)) {
		t.Error("the phase that was paused goes on with the plan")
	}
	o.must(pb.PlanOrder_PLAN_ORDER_CONTINUE, db, "")
	o.run(o.op, nil)
	o.is("at the end", model.OpSucceeded)

	o = newOrdered(t, model.OpPlan, "leave")
	o.end(app, pb.Outcome_OUTCOME_FATAL)
	o.must(pb.PlanOrder_PLAN_ORDER_INTERRUPT, db, "")
	o.is("a phase of a failed operation paused", model.OpFailed)
	o.must(pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE, "", "")
	o.is("the whole plan completed", model.OpSucceeded)
}

// TestStartKeepsTheLostNode checks that an order to start the plan of a recovery, which replaces its parameters, keeps those of the node
// that was lost.
func TestStartKeepsTheLostNode(t *testing.T) {
	o := &ordered{newClinic(t), "00000001-002"}
	cmd := o.concurrent(o.op, model.OpRecover, "ann", map[string]string{app: "app"})
	cmd.GetStartOperation().Operation.Parameters = map[string]string{operation.OldIP: "10.0.0.1", "A": "b"}
	if a := o.do(cmd); a.Err != nil {
		t.Fatal(a.Err)
	}
	o.must(pb.PlanOrder_PLAN_ORDER_START, "", "")
	if got := o.operation(o.op).Parameters; !maps.Equal(got, map[string]string{operation.OldIP: "10.0.0.1"}) {
		t.Errorf("the parameters are %v", got)
	}
}

// TestOrdersWithoutTheNode checks that the tasks of an operation that failed are not repeated if their node is gone, and that recovery
// is paused and resumed all the same.
func TestOrdersWithoutTheNode(t *testing.T) {
	o := newOrdered(t, model.OpRecover, "leave")
	o.end(app, pb.Outcome_OUTCOME_FATAL)
	o.is("failed", model.OpFailed)
	o.shrink("00000001-003", app)
	o.run("00000001-003", nil)
	if _, ok := o.m.View().Node("t", app); ok {
		t.Fatal("the node is still there")
	}
	if err := o.order(pb.PlanOrder_PLAN_ORDER_RESTART, "", ""); !errors.Is(err, problem.Conflict) || errors.Is(err, problem.Stale) {
		t.Errorf("a restart: %v", err)
	}
	for _, order := range []pb.PlanOrder{pb.PlanOrder_PLAN_ORDER_INTERRUPT, pb.PlanOrder_PLAN_ORDER_CONTINUE} {
		err := o.order(order, "", "")
		cl, _ := o.m.View().Cluster("t", "00000001")
		if paused := cl.RecoveryPaused != nil; err != nil || paused != (order == pb.PlanOrder_PLAN_ORDER_INTERRUPT) {
			t.Errorf("%s: %v, recovery is paused: %t", order, err, paused)
		}
	}
}

// TestResolvedRollbackStays checks that a rollback that failed takes no orders when a person has said that the cluster is in order: its
// nodes stay then.
func TestResolvedRollbackStays(t *testing.T) {
	o := &ordered{newClinic(t), "00000001-002"}
	cl, _ := o.m.View().Cluster("t", "00000001")
	g := graphOf([]string{app})
	if a := o.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
		Operation: logtest.Operation(model.Operation{ID: o.op, Tenant: "t", Cluster: "00000001", Type: model.OpRollback, OnFailure: "leave"}),
		Cluster:   logtest.Cluster(*cl), ClusterVersion: cl.Version, Graph: g.Encode(),
	}}}); a.Err != nil {
		t.Fatal(a.Err)
	}
	o.end(app, pb.Outcome_OUTCOME_FATAL)
	o.is("failed", model.OpFailed)
	if a := o.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ControlCluster{ControlCluster: &pb.ControlCluster{
		Cluster: "00000001", Order: pb.ClusterOrder_CLUSTER_ORDER_RESOLVE, Reason: "by hand"}}}); a.Err != nil {
		t.Fatal(a.Err)
	}
	if err := o.order(pb.PlanOrder_PLAN_ORDER_RESTART, "", ""); !errors.Is(err, problem.Conflict) {
		t.Errorf("a restart: %v", err)
	}
	o.is("afterwards", model.OpFailed)
}

// TestFailedRestartIsTriedAgain checks that an order to continue has the failed tasks of a restart tried again, which its plan tolerates so
// that one node does not stop the others.
func TestFailedRestartIsTriedAgain(t *testing.T) {
	o := &ordered{newClinic(t), "00000001-002"}
	if a := o.do(o.concurrent(o.op, model.OpRecover, "ann", map[string]string{app: "app", db: "db"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	o.run(o.op, func(g *plan.Graph, v uint32) bool { return g.NodeID(int(v)) == app && g.Action[v] == model.Start })
	o.is("a restart that failed on one node", model.OpFailed)
	o.must(pb.PlanOrder_PLAN_ORDER_CONTINUE, "", "")
	o.is("continued", model.OpRunning)
	s := o.plan()
	for _, v := range s.Graph.On(app) {
		if want := s.Graph.Action[v] == model.Stop; want != (s.Status(v) == model.TaskSucceeded) {
			t.Errorf("%s is %s", s.Graph.Name(int(v)), s.Status(v))
		}
	}
	o.run(o.op, nil)
	o.is("at the end", model.OpSucceeded)
}

// TestTwoBegunOnANode checks that two operations that have begun on one node end: a paused one leaves the node to a restart, and waits for
// it when it is resumed.
func TestTwoBegunOnANode(t *testing.T) {
	o := &ordered{newClinic(t), "00000001-002"}
	cl, _ := o.m.View().Cluster("t", "00000001")
	cmd := o.concurrent(o.op, model.OpRestart, "ann", map[string]string{app: "app"})
	cmd.GetStartOperation().Cluster, cmd.GetStartOperation().ClusterVersion = logtest.Cluster(*cl), cl.Version
	if a := o.do(cmd); a.Err != nil {
		t.Fatal(a.Err)
	}
	o.end(app, pb.Outcome_OUTCOME_SUCCEEDED)
	o.do(order(o.op, "pause"))
	restart := &ordered{o.clinic, "00000001-003"}
	if a := o.do(o.concurrent(restart.op, model.OpRecover, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	restart.end(app, pb.Outcome_OUTCOME_SUCCEEDED)
	o.do(order(o.op, "resume"))
	start := o.plan().Graph.On(app)[1]
	if a := o.do(lease(o.op, "s", start)); len(a.Refused) == 0 {
		t.Error("both are at work on the node")
	}
	o.run(restart.op, nil)
	restart.is("the restart", model.OpSucceeded)
	o.run(o.op, nil)
	o.is("the operation that was paused", model.OpSucceeded)
}
