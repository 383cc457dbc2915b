package state_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func TestHealthIsOfWhatIsThereNow(t *testing.T) {
	c := newClinic(t)
	if a := c.verdict(app, "app", true, 0); len(a.Refused) > 0 || c.health(app).Status() != "healthy" {
		t.Fatalf("%v, %+v", a, c.health(app))
	}
	since := c.health(app).Services["app"].Since
	c.verdict(app, "app", true, 0)
	if c.health(app).Services["app"].Since != since {
		t.Error("the same verdict has a new time")
	}
	c.verdict(app, "app", false, pb.Machine_MACHINE_GONE)
	if h := c.health(app); h.Status() != "gone" || len(h.Failing()) != 1 {
		t.Errorf("%+v", h)
	}
	c.verdict(app, "", false, pb.Machine_MACHINE_THERE)
	if h := c.health(app); h.Status() != "unhealthy" {
		t.Errorf("%+v", h)
	}
	stale := &pb.Command{Change: &pb.Command_ReportHealth{ReportHealth: &pb.ReportHealth{Changes: []*pb.HealthChange{
		{Tenant: "t", Node: app, Version: 1, Service: "app", Healthy: true}, {Tenant: "t", Node: "nobody", Service: "app"},
	}}}}
	if a := c.do(stale); len(a.Refused) != 2 || c.health(app).Status() != "unhealthy" {
		t.Errorf("%v, %+v", a.Refused, c.health(app))
	}
	again := fresh(t)
	if err := again.Restore(io.NopCloser(bytes.NewReader(dump(t, c.m)))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dump(t, again), dump(t, c.m)) || again.View().Health("t", app).Status() != "unhealthy" {
		t.Error("another state after a snapshot")
	}
}

func TestRecoveryRunsConcurrentlyAndIsCounted(t *testing.T) {
	c := newClinic(t)
	c.verdict(app, "app", false, 0)
	before, _ := c.m.View().Cluster("t", "00000001")
	if a := c.do(c.concurrent("00000001-002", model.OpRecover, model.Self, map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	if h := c.health(app); h.Attempts != 1 || h.Operation != "00000001-002" {
		t.Errorf("%+v", h)
	}
	again := c.do(c.concurrent("00000001-003", model.OpRecover, model.Self, map[string]string{app: "app"}))
	if !errors.Is(again.Err, problem.Conflict) {
		t.Errorf("two recoveries of one node: %v", again.Err)
	}
	c.run("00000001-002", func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Start })
	h := c.health(app)
	cl, _ := c.m.View().Cluster("t", "00000001")
	if op := c.operation("00000001-002"); op.Status != model.OpFailed || h.Services["app"].Status != model.Unhealthy ||
		h.Next != c.now+60_000 {
		t.Errorf("%s, %+v at %d", op.Status, h, c.now)
	}
	if cl.Status != before.Status || cl.Operation != before.Operation || cl.Snapshots != before.Snapshots || cl.Version == before.Version {
		t.Errorf("the cluster: %+v, before: %+v", cl, before)
	}
	for i := 3; i <= 11; i++ {
		id := "00000001-" + string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10)})
		if a := c.do(c.concurrent(id, model.OpRecover, model.Self, map[string]string{app: "app"})); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run(id, func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Start })
	}
	if h := c.health(app); !h.GaveUp || h.Attempts != 10 {
		t.Errorf("after ten attempts: %+v", h)
	}
	// A person's restart resets the attempts, and a service that was restarted has no verdict until
	// its next check.
	if a := c.do(c.concurrent("00000001-012", model.OpRecover, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run("00000001-012", nil)
	if h := c.health(app); h.GaveUp || h.Attempts != 0 || h.Status() != "" {
		t.Errorf("after a person's restart: %+v", h)
	}
	if n, _ := c.m.View().Node("t", app); n.States["app"] != "START" {
		t.Errorf("%v", n.States)
	}
}

// A recovery that has ended runs again on a person's order, if no other operation is at work on its
// nodes (docs/spec/plans.md §8: complete phases stay until restart).
func TestRecoveryAgain(t *testing.T) {
	c := newClinic(t)
	restart := func(op string) error {
		return c.do(&pb.Command{Tenant: "t", Actor: "ann",
			Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: op, Order: pb.PlanOrder_PLAN_ORDER_RESTART}}}).Err
	}
	recoverApp := func(id string) {
		t.Helper()
		if a := c.do(c.concurrent(id, model.OpRecover, model.Self, map[string]string{app: "app"})); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	recoverApp("00000001-002")
	c.run("00000001-002", nil)
	recoverApp("00000001-003")
	if err := restart("00000001-002"); !errors.Is(err, problem.Conflict) {
		t.Fatalf("while another is at work there: %v", err)
	}
	c.run("00000001-003", nil)
	if err := restart("00000001-002"); err != nil {
		t.Fatal(err)
	}
	if op, h := c.operation("00000001-002"), c.health(app); op.Status != model.OpRunning || h.Operation != op.ID || h.Attempts != 0 {
		t.Errorf("%+v, %+v", op, h)
	}
	if cl, _ := c.m.View().Cluster("t", "00000001"); cl.Status != model.ClusterActive {
		t.Errorf("the cluster is %s", cl.Status)
	}
	done := 0
	c.run("00000001-002", func(*plan.Graph, uint32) bool { done++; return false })
	if op := c.operation("00000001-002"); op.Status != model.OpSucceeded || done != 2 {
		t.Errorf("%s after %d tasks", op.Status, done)
	}
}

// An operation that has begun its work on a node holds the node until its tasks there are done
// (docs/decisions/023-recovery.md).
func TestOperationsOfAClusterTakeTurnsOnANode(t *testing.T) {
	c := newClinic(t)
	both := map[string]string{app: "app", db: "db"}
	if a := c.do(c.concurrent("00000001-002", model.OpRecover, model.Self, map[string]string{db: "db"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	// Start a main operation on both nodes before the concurrent one has begun.
	cl, _ := c.m.View().Cluster("t", "00000001")
	next := *cl
	next.Operations++
	main := c.concurrent("00000001-003", model.OpRestart, "ann", both)
	s := main.GetStartOperation()
	s.Cluster, s.ClusterVersion = logtest.Cluster(next), cl.Version
	if a := c.do(main); a.Err != nil {
		t.Fatal(a.Err)
	}
	if a := c.do(lease("00000001-002", "s", 0)); len(a.Refused) > 0 {
		t.Fatal("nobody has begun on the node")
	}
	// The main operation has tasks 0 and 1 on n1000, and tasks 2 and 3 on n1001.
	if a := c.do(lease("00000001-003", "s", 0, 2)); !slices.Equal(a.Refused, []uint32{0}) {
		t.Fatalf("refused %v", a.Refused)
	}
	p, _ := c.m.View().Plan("00000001-002")
	c.do(report("00000001-002", 0, p.Fence(0), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	if a := c.do(lease("00000001-003", "s", 0)); len(a.Refused) != 1 {
		t.Fatal("between two tasks of the other the node is free")
	}
	again := c.do(c.concurrent("00000001-004", model.OpRecover, model.Self, map[string]string{app: "app"}))
	if !errors.Is(again.Err, problem.Conflict) {
		t.Errorf("recovery where another has begun: %v", again.Err)
	}
	c.run("00000001-002", nil)
	if a := c.do(lease("00000001-003", "s", 0)); len(a.Refused) != 0 {
		t.Fatal("the node is not free again")
	}
	if busy := c.m.View().Busy("t", "00000001"); len(busy) != 2 || busy[db] != "00000001-003" {
		t.Errorf("%v", busy)
	}
}

// Operations on other services of a node do not clash: they take turns there. Operations on the same service do, unless the one that
// came first is done with it there, though it is at work on other nodes.
func TestOperationsOnOtherServicesOfANode(t *testing.T) {
	for _, level := range []uint32{logformat.OrdersLevel - 1, logformat.OrdersLevel} {
		now := level >= logformat.OrdersLevel
		c := newClinic(t)
		c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
		next := "00000001-00"
		begins := func(n string, typ model.OperationType, on map[string]string) error {
			t.Helper()
			return c.do(c.concurrent(next+n, typ, "ann", on)).Err
		}
		if err := begins("2", model.OpRecover, map[string]string{app: "app", db: "db"}); err != nil {
			t.Fatal(err)
		}
		err := begins("3", model.OpPauseNode, map[string]string{app: "app"})
		const named = `step "00000001-1001:[stop app, start app]" of phase "00000001-1001" in operation 00000001-002`
		if !errors.Is(err, problem.Conflict) || now && !strings.Contains(err.Error(), named) {
			t.Errorf("level %d: an order about the same service: %v", level, err)
		}
		if err = begins("3", model.OpRecover, map[string]string{app: "db"}); (err == nil) != now {
			t.Errorf("level %d: an order about another service: %v", level, err)
		}
		s, _ := c.m.View().Plan(next + "2")
		for range s.Graph.On(app) {
			s, _ = c.m.View().Plan(next + "2")
			for _, v := range s.Leasable() {
				if s.Graph.NodeID(int(v)) != app {
					continue
				}
				c.do(lease(next+"2", "s", v))
				if a := c.do(lease(next+"3", "s", 0)); now && len(a.Refused) != 1 && len(s.Leasable()) > 1 {
					t.Errorf("two operations are at work on a node at once")
				}
				s, _ = c.m.View().Plan(next + "2")
				c.do(report(next+"2", v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
				break
			}
		}
		if c.operation(next+"2").Status != model.OpRunning {
			t.Fatal("it is not at work on the other node")
		}
		if err = begins("4", model.OpRecover, map[string]string{app: "app"}); (err == nil) != now {
			t.Errorf("level %d: an order about a service that the first is done with: %v", level, err)
		}
		if err = begins("5", model.OpRecover, map[string]string{db: "db"}); !errors.Is(err, problem.Conflict) {
			t.Errorf("level %d: an order about a service that the first is not done with: %v", level, err)
		}
		for _, op := range c.m.View().ActiveOperations() {
			c.run(op.ID, nil)
		}
		if left := c.m.View().ActiveOperations(); len(left) > 0 {
			t.Errorf("level %d: %d operations wait for each other", level, len(left))
		}
	}
}

// begun starts an operation on both nodes and finishes it on one of them.
func (c *clinic) begun(op string, typ model.OperationType) {
	c.t.Helper()
	if a := c.do(c.concurrent(op, typ, "ann", map[string]string{app: "app", db: "db"})); a.Err != nil {
		c.t.Fatal(a.Err)
	}
	for {
		s, _ := c.m.View().Plan(op)
		i := slices.IndexFunc(s.Leasable(), func(v uint32) bool { return s.Graph.NodeID(int(v)) == app })
		if i < 0 {
			return
		}
		v := s.Leasable()[i]
		c.do(lease(op, "s", v))
		s, _ = c.m.View().Plan(op)
		c.do(report(op, v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	}
}

// A service is paused when the pause ends. Until then it cannot be restarted, though it is stopped already.
func TestRestartDuringAPauseOfOtherNodes(t *testing.T) {
	c := newClinic(t)
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.OrdersLevel}}})
	const pause = "00000001-002"
	c.begun(pause, model.OpPauseNode)
	if a := c.do(c.concurrent("00000001-003", model.OpRecover, "ann", map[string]string{app: "app"})); !errors.Is(a.Err, problem.Conflict) {
		t.Errorf("a restart of a service that is being paused: %v", a.Err)
	}
	c.run(pause, nil)
	if a := c.do(c.concurrent("00000001-003", model.OpRecover, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Errorf("a restart of a service that is paused: %v", a.Err)
	}
}

// The result of a later restart stays when an earlier one, which was at work on other nodes, ends.
func TestLaterRestartFails(t *testing.T) {
	c := newClinic(t)
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.OrdersLevel}}})
	const first, second = "00000001-002", "00000001-003"
	c.begun(first, model.OpRecover)
	if a := c.do(c.concurrent(second, model.OpRecover, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run(second, func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Start })
	c.run(first, nil)
	if op := c.operation(first); op.Status != model.OpSucceeded || c.operation(second).Status != model.OpFailed {
		t.Fatal(op.Status, op.Message, c.operation(second).Status)
	}
	n, _ := c.m.View().Node("t", app)
	if failing := c.health(app).Failing(); n.States["app"] != "START?" || !slices.Equal(failing, []string{"app"}) {
		t.Errorf("it is %s, and %v fail", n.States["app"], failing)
	}
	if n, _ = c.m.View().Node("t", db); n.States["db"] != model.Start.String() || len(c.health(db).Failing()) > 0 {
		t.Errorf("the other node is %v", n.States)
	}
}

func TestPausedServices(t *testing.T) {
	c := newClinic(t)
	c.verdict(app, "app", true, 0)
	pause := c.concurrent("00000001-002", model.OpPauseNode, "ann", map[string]string{app: "app"})
	if a := c.do(pause); a.Err != nil || c.health(app).Paused["app"] != model.Pausing {
		t.Fatalf("%v, %+v", a.Err, c.health(app))
	}
	c.run("00000001-002", nil)
	if h := c.health(app); h.Paused["app"] != model.Paused || h.Status() != "paused" {
		t.Errorf("%+v", h)
	}
	c.verdict(app, "app", false, 0)
	if h := c.health(app); len(h.Failing()) > 0 {
		t.Errorf("a paused service fails: %+v", h)
	}
	if a := c.do(c.concurrent("00000001-003", model.OpResumeNode, "ann", map[string]string{app: "app"})); a.Err != nil ||
		c.health(app).Paused["app"] != model.Resuming {
		t.Fatalf("%v, %+v", a.Err, c.health(app))
	}
	c.run("00000001-003", nil)
	if h := c.health(app); len(h.Paused) > 0 {
		t.Errorf("%+v", h)
	}
	for _, o := range []string{"pause-recovery", "resume-recovery"} {
		cmd := order("00000001", o)
		cmd.Tenant = "t"
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
		if cl, _ := c.m.View().Cluster("t", "00000001"); (cl.RecoveryPaused != nil) != (o == "pause-recovery") {
			t.Errorf("%s: %+v", o, cl.RecoveryPaused)
		}
	}
}

// An operation that starts a paused service ends its pause: the running service is not shown as
// paused, and is checked and recovered.
func TestStartEndsAPause(t *testing.T) {
	c := newClinic(t)
	if a := c.do(c.concurrent("00000001-002", model.OpPauseNode, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run("00000001-002", nil)
	main := func(id string, on map[string]string) {
		t.Helper()
		cl, _ := c.m.View().Cluster("t", "00000001")
		next := *cl
		next.Operations++
		cmd := c.concurrent(id, model.OpRestart, "ann", on)
		s := cmd.GetStartOperation()
		s.Cluster, s.ClusterVersion = logtest.Cluster(next), cl.Version
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run(id, nil)
		if op := c.operation(id); op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
	}
	main("00000001-003", map[string]string{db: "db"})
	if h := c.health(app); h.Paused["app"] != model.Paused {
		t.Errorf("paused no more, though only another service was started: %+v", h)
	}
	main("00000001-004", map[string]string{app: "app"})
	if h := c.health(app); len(h.Paused) > 0 {
		t.Errorf("it runs, and is paused: %+v", h)
	}
	c.verdict(app, "app", false, 0)
	if h := c.health(app); !slices.Equal(h.Failing(), []string{"app"}) {
		t.Errorf("it fails, and nobody sees it: %+v", h)
	}
}

// A node that is paused when an operation under way is done with it stays paused when that operation ends.
func TestPauseOutlivesAnOperation(t *testing.T) {
	for _, level := range []uint32{logformat.OrdersLevel - 1, logformat.OrdersLevel} {
		c := newClinic(t)
		c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
		cl, _ := c.m.View().Cluster("t", "00000001")
		next := *cl
		next.Operations++
		const main = "00000001-002"
		cmd := c.concurrent(main, model.OpRestart, "ann", map[string]string{app: "app", db: "db"})
		s := cmd.GetStartOperation()
		s.Cluster, s.ClusterVersion = logtest.Cluster(next), cl.Version
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
		for {
			p, _ := c.m.View().Plan(main)
			i := slices.IndexFunc(p.Leasable(), func(v uint32) bool { return p.Graph.NodeID(int(v)) == app })
			if i < 0 {
				break
			}
			v := p.Leasable()[i]
			c.do(lease(main, "s", v))
			p, _ = c.m.View().Plan(main)
			c.do(report(main, v, p.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
		}
		if a := c.do(c.concurrent("00000001-003", model.OpPauseNode, "ann", map[string]string{app: "app"})); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run("00000001-003", nil)
		c.run(main, nil)
		if op := c.operation(main); op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
		n, _ := c.m.View().Node("t", app)
		stays := n.States["app"] == model.Stop.String() && c.health(app).Paused["app"] == model.Paused
		if stays != (level >= logformat.OrdersLevel) {
			t.Errorf("level %d: it is %s, and paused are %v", level, n.States["app"], c.health(app).Paused)
		}
		if n, _ = c.m.View().Node("t", db); n.States["db"] != model.Start.String() {
			t.Errorf("level %d: the other node is %v", level, n.States)
		}
	}
}

// A pause says nothing about the machine that an operation makes after it.
func TestPauseOfAMachineThatIsReplaced(t *testing.T) {
	c := newClinic(t)
	b := plan.NewBuilder([]string{app}, []string{"app"})
	stop := b.Task(model.Stop, 0, 0)
	gone := b.Task(model.Delete, 0, plan.None)
	made := b.Task(model.Create, 0, plan.None)
	b.Edge(stop, gone)
	b.Edge(gone, made)
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := tree.PerNode(g, "deploy", func(n string) string { return n })
	if g, err = d.Compile(g); err != nil {
		t.Fatal(err)
	}
	cl, _ := c.m.View().Cluster("t", "00000001")
	next := *cl
	next.Operations++
	const main = "00000001-002"
	cmd := c.concurrent(main, model.OpReplaceNode, "ann", map[string]string{app: "app"})
	s := cmd.GetStartOperation()
	s.Cluster, s.ClusterVersion, s.Graph, s.Tree = logtest.Cluster(next), cl.Version, g.Encode(), logtest.Tree(&d.Tree)
	if a := c.do(cmd); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.do(lease(main, "s", stop))
	p, _ := c.m.View().Plan(main)
	c.do(report(main, stop, p.Fence(stop), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	// The pause is begun by order while the operation is paused.
	c.do(order(main, "pause"))
	if a := c.do(c.concurrent("00000001-003", model.OpPauseNode, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run("00000001-003", nil)
	c.do(order(main, "resume"))
	c.run(main, nil)
	if n, _ := c.m.View().Node("t", app); c.operation(main).Status != model.OpSucceeded || n.States["app"] != "" {
		t.Errorf("%s: the new machine has %v", c.operation(main).Status, n.States)
	}
}

// Orders about a plan that has ended change nothing if there is nothing to do. A failed recovery
// has the status error (docs/spec/plans.md §2 rule 1, §5).
func TestOrdersAfterTheEnd(t *testing.T) {
	c := newClinic(t)
	order := func(op, what string) error {
		return c.do(&pb.Command{Tenant: "t", Actor: "ann",
			Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: op, Order: logformat.PlanOrders.Number(what)}}}).Err
	}
	if err := order("00000001-001", "stop"); err != nil || c.operation("00000001-001").Status != model.OpSucceeded {
		t.Errorf("a stop of what is complete: %v, it is %s", err, c.operation("00000001-001").Status)
	}
	for i, typ := range []model.OperationType{model.OpPauseNode, model.OpResumeNode} {
		id := []string{"00000001-002", "00000001-003"}[i]
		if a := c.do(c.concurrent(id, typ, "ann", map[string]string{app: "app"})); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run(id, nil)
		if err := order(id, "start"); err != nil || c.operation(id).Status != model.OpSucceeded {
			t.Errorf("a start of %s, which is done: %v", typ, err)
		}
	}
	if a := c.do(c.concurrent("00000001-004", model.OpRecover, model.Self, map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run("00000001-004", func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Start })
	v, ok := c.m.View().PlanTree("t", "00000001-004", c.now)
	if !ok || v.Status() != tree.Error || v.Info().Code() != tree.CodeErrors {
		t.Errorf("a recovery that failed is shown as %s", v.Status())
	}
}
