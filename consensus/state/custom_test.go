package state_test

import (
	"testing"

	"github.com/coopr/coopr/consensus/duty/recovery"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	decide "github.com/coopr/coopr/engine/recovery"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// shrink starts an operation that removes a node of the clinic.
func (c *clinic) shrink(op, node string) {
	c.t.Helper()
	b := plan.NewBuilder([]string{node}, []string{"app"})
	b.Edge(b.Task(model.Stop, 0, 0), b.Task(model.Delete, 0, plan.None))
	g, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	have, _ := c.m.View().Cluster("t", "00000001")
	n, _ := c.m.View().Node("t", node)
	cl, leaving := *have, *n
	cl.Operation, leaving.Leaves = op, true
	cl.Operations++
	if a := c.do(&pb.Command{Tenant: "t", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
		Operation: logtest.Operation(model.Operation{ID: op, Tenant: "t", Cluster: cl.ID, Type: model.OpShrink, OnFailure: "leave"}),
		Cluster:   logtest.Cluster(cl), ClusterVersion: have.Version, Nodes: logtest.Nodes(leaving), Graph: g.Encode(),
	}}}); a.Err != nil {
		c.t.Fatal(a.Err)
	}
}

// A concurrent operation that ends before a shrink does not remove the nodes that the shrink
// removes.
func TestConcurrentOperationsKeepLeavingNodes(t *testing.T) {
	c := newClinic(t)
	if a := c.do(c.concurrent("00000001-002", model.OpPlan, "alice", map[string]string{db: "db"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.shrink("00000001-003", app)
	order := func(o string) state.Answer {
		return c.do(&pb.Command{Tenant: "t", Actor: "alice",
			Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: "00000001-002", Order: logformat.PlanOrders.Number(o),
				Parameters: map[string]string{"A": "b"}}}})
	}
	if op := c.operation("00000001-002"); op.Status != model.OpPaused {
		t.Errorf("a plan that nobody has started is %s", op.Status)
	}
	if a := order("start"); a.Err != nil {
		t.Fatal(a.Err)
	}
	if op := c.operation("00000001-002"); op.Status != model.OpRunning || op.Parameters["A"] != "b" {
		t.Errorf("%s, parameters %v", op.Status, op.Parameters)
	}
	c.run("00000001-002", nil)
	if op := c.operation("00000001-002"); op.Status != model.OpSucceeded {
		t.Fatalf("%s: %s", op.Status, op.Message)
	}
	if n, ok := c.m.View().Node("t", app); !ok || !n.Leaves {
		t.Errorf("the node that the shrink takes away: %+v, there: %t", n, ok)
	}
	if h := c.m.View().Health("t", db); h != nil && h.Operation == "00000001-002" {
		t.Errorf("an operator's plan counts as recovery: %+v", h)
	}
	c.run("00000001-003", nil)
	if _, ok := c.m.View().Node("t", app); ok {
		t.Error("the node is there still")
	}
	// A restart runs the same plan again and leaves the cluster as it is.
	if a := order("restart"); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run("00000001-002", nil)
	if cl, _ := c.m.View().Cluster("t", "00000001"); cl.Status != model.ClusterActive || cl.Operation != "00000001-003" {
		t.Errorf("the cluster is %s, its operation %s", cl.Status, cl.Operation)
	}
}

// A plan of the template that is held back does not keep nodes from recovery. It does not keep
// machines that belong to no node from being removed.
func TestHeldBackPlanHoldsNoNode(t *testing.T) {
	c := newClinic(t)
	cmd := c.concurrent("00000001-002", model.OpPlan, "ann", map[string]string{app: "app", db: "db"})
	cmd.GetStartOperation().Operation.Status = string(model.OpPaused)
	if a := c.do(cmd); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.verdict(app, "app", false, 0)
	input := func() decide.Input {
		t.Helper()
		v := c.m.View()
		cl, _ := v.Cluster("t", "00000001")
		s, ok := recovery.Snapshot(v, cl, c.now)
		if !ok {
			t.Fatal("nothing fails")
		}
		return s
	}
	if s := input(); len(s.Busy) > 0 || s.Recovering > 0 {
		t.Errorf("held back, it holds %v, and counts as %d recoveries", s.Busy, s.Recovering)
	}
	drop := func() error {
		return c.do(&pb.Command{Tenant: "t", Change: &pb.Command_DropResource{DropResource: &pb.DropResource{Cluster: "00000001",
			Node: "00000001-1999", Id: "stray"}}}).Err
	}
	if err := drop(); err != nil {
		t.Errorf("a machine that is no node's: %v", err)
	}
	if a := c.do(c.concurrent("00000001-003", model.OpRecover, model.Self, map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	if s := input(); s.Busy[app] != "00000001-003" || s.Recovering != 1 {
		t.Errorf("busy %v, %d recoveries", s.Busy, s.Recovering)
	}
}
