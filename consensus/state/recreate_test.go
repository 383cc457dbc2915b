package state_test

import (
	"errors"
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

// The main operation, and the one that replaces a machine meanwhile.
const deploys, recreates = "00000001-002", "00000001-003"

// recreates returns the command that replaces the machine of node app while another operation of its cluster is open.
func (c *clinic) recreates(id string) *pb.Command {
	c.t.Helper()
	return c.recreatesFor(id)
}

// recreatesFor is recreates, where others are services on node db that have the address of node app in their configuration.
func (c *clinic) recreatesFor(id string, others ...string) *pb.Command {
	c.t.Helper()
	b := plan.NewBuilder([]string{app, db}[:1+min(len(others), 1)], append([]string{"app"}, others...))
	last := b.Task(model.Delete, 0, plan.None)
	for _, a := range []model.Action{model.Create, model.Confirm, model.Install, model.Start} {
		service := 0
		if a.Hardware() {
			service = plan.None
		}
		next := b.Task(a, 0, service)
		b.Edge(last, next)
		last = next
		for i := range others {
			if a == model.Confirm {
				b.Edge(next, b.Task(model.Configure, 1, 1+i))
			}
		}
	}
	g, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	d := tree.PerNode(g, "recovery", func(n string) string { return n })
	if g, err = d.Compile(g); err != nil {
		c.t.Fatal(err)
	}
	op := model.Operation{ID: id, Tenant: "t", Cluster: "00000001", Type: model.OpRecreateNode, OnFailure: "leave", Plan: model.RecoveryPlan,
		Services: others}
	return &pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
		Operation: logtest.Operation(op), Cluster: logtest.Cluster(model.Cluster{ID: "00000001", Tenant: "t"}), Graph: g.Encode(),
		Tree: logtest.Tree(&d.Tree),
	}}}
}

// stops starts a main operation that stops both services. Of its two tasks, those on the nodes of done are carried out.
func (c *clinic) stops(done ...string) {
	c.t.Helper()
	c.stopsOn(nil, done...)
}

// stopsOn is stops with changed nodes.
func (c *clinic) stopsOn(nodes []model.Node, done ...string) {
	c.t.Helper()
	cl, _ := c.m.View().Cluster("t", "00000001")
	next := *cl
	next.Operations++
	next.Definitions = map[string]model.Service{"db": {Base: model.Base{Name: "db"}, Provisioner: model.ServiceProvisioner{
		Actions: map[string]model.ServiceAction{"configure": {Type: "shell"}}}}}
	cmd := c.concurrent(deploys, model.OpPauseNode, "ann", map[string]string{app: "app", db: "db"})
	op := model.Operation{ID: deploys, Tenant: "t", Cluster: "00000001", Type: model.OpStop, OnFailure: "leave", Services: []string{"app", "db"}}
	s := cmd.GetStartOperation()
	s.Operation, s.Cluster, s.ClusterVersion, s.Nodes = logtest.Operation(op), logtest.Cluster(next), cl.Version, logtest.Nodes(nodes...)
	if a := c.do(cmd); a.Err != nil {
		c.t.Fatal(a.Err)
	}
	for _, node := range done {
		s, _ := c.m.View().Plan(deploys)
		v := s.Graph.On(node)[0]
		c.do(lease(deploys, "s", v))
		s, _ = c.m.View().Plan(deploys)
		c.do(report(deploys, v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	}
}

func (c *clinic) node(id string) *model.Node {
	c.t.Helper()
	n, ok := c.m.View().Node("t", id)
	if !ok {
		c.t.Fatalf("node %s is gone", id)
	}
	return n
}

// TestRecreate replaces a machine on which the main operation has done its work. The main operation ends after it, and its work on the former
// machine is not taken for work on the new one.
func TestRecreate(t *testing.T) {
	c := newClinic(t)
	started := c.node(app).Marks["app"].Started
	c.stops(app)
	if a := c.do(c.recreates(recreates)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if busy := c.m.View().Busy("t", "00000001"); busy[app] != recreates {
		t.Errorf("the node is held by %q before the first task", busy[app])
	}
	c.run(deploys, nil)
	if op := c.operation(deploys); op.Status != model.OpRunning {
		t.Fatalf("the main operation is %s while a machine is replaced", op.Status)
	}
	c.run(recreates, nil)
	for _, id := range []string{recreates, deploys} {
		if op := c.operation(id); op.Status != model.OpSucceeded {
			t.Fatalf("%s is %s: %s", id, op.Status, op.Message)
		}
	}
	n := c.node(app)
	if n.States["app"] != "START" || !n.Created || !n.Confirmed || n.Broken || n.Marks["app"].Started <= started {
		t.Errorf("the node is %+v", n)
	}
	if n := c.node(db); n.States["db"] != "STOP" {
		t.Errorf("the other node is %+v", n)
	}
	if cl, _ := c.m.View().Cluster("t", "00000001"); cl.Status != model.ClusterActive {
		t.Errorf("the cluster is %s: %s", cl.Status, cl.Message)
	}
}

// An order that completes a task of the main operation after the machine was replaced has its effect, although the task has no lease.
func TestRecreateThenForce(t *testing.T) {
	c := newClinic(t)
	c.stops()
	if a := c.do(c.recreates(recreates)); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run(recreates, nil)
	if a := c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: deploys,
		Order: pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE}}}); a.Err != nil {
		t.Fatal(a.Err)
	}
	if n := c.node(app); c.operation(deploys).Status != model.OpSucceeded || n.States["app"] != "STOP" || !n.Created {
		t.Errorf("%s, %+v", c.operation(deploys).Status, n)
	}
}

// A replacement that is aborted before it has begun changes nothing.
func TestRecreateAborted(t *testing.T) {
	c := newClinic(t)
	c.stops(app, db)
	if op := c.operation(deploys); op.Status != model.OpSucceeded {
		t.Fatal(op.Status)
	}
	before := c.node(app)
	c = newClinic(t)
	c.stops(app)
	if a := c.do(c.recreates(recreates)); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
		Operation: recreates, Order: pb.OperationOrder_OPERATION_ORDER_ABORT}}})
	c.run(deploys, nil)
	n := c.node(app)
	if n.States["app"] != before.States["app"] || n.Created != before.Created || n.Marks["app"] != before.Marks["app"] || n.Recreated != 0 {
		t.Errorf("the node is %+v, and would be %+v", n, before)
	}
}

// A service with the address of the machine that is replaced is configured when the new one is known, and not before.
func TestRecreateConfigures(t *testing.T) {
	c := newClinic(t)
	c.stops(app)
	if a := c.do(c.recreatesFor(recreates, "db")); a.Err != nil {
		t.Fatal(a.Err)
	}
	if busy := c.m.View().Busy("t", "00000001"); busy[app] != recreates || busy[db] != recreates {
		t.Errorf("the nodes are held by %v", busy)
	}
	if h := c.health(db); h.Operation != "" || h.Attempts > 0 {
		t.Errorf("the node that is configured counts as recovered: %+v", h)
	}
	c.run(recreates, nil)
	c.run(deploys, nil)
	if op := c.operation(deploys); op.Status != model.OpSucceeded {
		t.Fatalf("the main operation is %s: %s", op.Status, op.Message)
	}
	if n := c.node(db); n.States["db"] != "STOP" || n.Marks["db"].Configured != recreates || n.Marks["db"].Config == model.HalfConfigured {
		t.Errorf("the other node is %+v", n)
	}
	if cl, _ := c.m.View().Cluster("t", "00000001"); cl.Status != model.ClusterActive {
		t.Errorf("the cluster is %s: %s", cl.Status, cl.Message)
	}
}

// A replacement that ends before it has configured other nodes says so.
func TestRecreateLeavesConfiguration(t *testing.T) {
	c := newClinic(t)
	c.stops()
	if a := c.do(c.recreatesFor(recreates, "db")); a.Err != nil {
		t.Fatal(a.Err)
	}
	s, _ := c.m.View().Plan(recreates)
	c.do(lease(recreates, "s", s.Leasable()[0])) // DELETE
	s, _ = c.m.View().Plan(recreates)
	c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
		Operation: recreates, Order: pb.OperationOrder_OPERATION_ORDER_ABORT}}})
	for v := range uint32(s.Graph.Len()) {
		if s.Status(v).Held() {
			c.do(report(recreates, v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
		}
	}
	if op := c.operation(recreates); op.Status != model.OpAborted {
		t.Fatalf("the replacement is %s", op.Status)
	}
	if n := c.node(db); n.Marks["db"].Config != model.HalfConfigured {
		t.Errorf("the other node is %+v", n)
	}
	c.run(deploys, nil)
	cl, _ := c.m.View().Cluster("t", "00000001")
	if cl.Status != model.ClusterInconsistent || !strings.Contains(cl.Message, "may have a former configuration: set the configuration of the cluster again") {
		t.Errorf("the cluster is %s: %s", cl.Status, cl.Message)
	}
}

// A machine is not replaced while a pause has begun on a node that is only configured: its effects there are not on record.
func TestRecreateAfterAttempts(t *testing.T) {
	c := newClinic(t)
	c.stops()
	pauses := "00000001-009"
	if a := c.do(c.concurrent(pauses, model.OpPauseNode, "ann", map[string]string{db: "db"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	r := c.recreatesFor(recreates, "db")
	s, _ := c.m.View().Plan(pauses)
	c.do(lease(pauses, "s", s.Leasable()[0]))
	if a := c.do(r); !errors.Is(a.Err, problem.Conflict) || !strings.Contains(a.Err.Error(), pauses) {
		t.Errorf("a replacement while a node with its address is paused: %v", a.Err)
	}
	s, _ = c.m.View().Plan(pauses)
	c.do(report(pauses, 0, s.Fence(0), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	if a := c.do(r); a.Err != nil {
		t.Error(a.Err)
	}
}

// No other operation configures a service between the deletion of a machine and the time at which the address of the new one is known.
// A replacement does not begin while one does.
func TestRecreateAwaited(t *testing.T) {
	configures := func(c *clinic, service, node string) {
		t.Helper()
		b := plan.NewBuilder([]string{node}, []string{service})
		b.Task(model.Configure, 0, 0)
		g, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		cl, _ := c.m.View().Cluster("t", "00000001")
		next := *cl
		next.Operations++
		if a := c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
			Operation: logtest.Operation(model.Operation{ID: deploys, Tenant: "t", Cluster: "00000001", Type: model.OpConfigure, OnFailure: "leave"}),
			Cluster:   logtest.Cluster(next), ClusterVersion: cl.Version, Graph: g.Encode(),
		}}}); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	c := newClinic(t)
	configures(c, "db", db)
	r := c.recreates(recreates)
	s := r.GetStartOperation() // it configures nothing: db was not installed when it was planned
	s.Operation.Services = logtest.Operation(model.Operation{Services: []string{"db"}}).Services
	if a := c.do(r); a.Err != nil {
		t.Fatal(a.Err)
	}
	main, _ := c.m.View().Plan(deploys)
	for _, action := range []model.Action{model.Delete, model.Create, model.Confirm} {
		if a := c.do(lease(deploys, "s", main.Leasable()[0])); len(a.Refused) == 0 {
			t.Fatalf("db is configured before %s", action)
		}
		s, _ := c.m.View().Plan(recreates)
		v := s.Leasable()[0]
		c.do(lease(recreates, "s", v))
		s, _ = c.m.View().Plan(recreates)
		c.do(report(recreates, v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	}
	if a := c.do(lease(deploys, "s", main.Leasable()[0])); len(a.Refused) > 0 {
		t.Error("db is not configured after the new machine is confirmed")
	}

	c = newClinic(t)
	configures(c, "db", db)
	main, _ = c.m.View().Plan(deploys)
	c.do(lease(deploys, "s", main.Leasable()[0]))
	if a := c.do(r); !errors.Is(a.Err, problem.Conflict) || !strings.Contains(a.Err.Error(), "is at work on node "+db) {
		t.Errorf("a replacement while db is configured: %v", a.Err)
	}
}

// A replacement that fails leaves a node without a machine, which the cluster says once the main operation has ended.
func TestRecreateFails(t *testing.T) {
	c := newClinic(t)
	c.stops(app)
	if a := c.do(c.recreates(recreates)); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run(recreates, func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Create })
	c.run(deploys, nil)
	n, h := c.node(app), c.health(app)
	if c.operation(recreates).Status != model.OpFailed || !n.Broken || h.Machine != model.MachineGone {
		t.Errorf("%s, %+v, %+v", c.operation(recreates).Status, n, h)
	}
	if op := c.operation(deploys); op.Status != model.OpSucceeded {
		t.Errorf("%s: %s", op.Status, op.Message)
	}
}

// TestRecreateRefused shows where a machine may not be replaced.
func TestRecreateRefused(t *testing.T) {
	refused := func(name string, c *clinic, kind error, words string) {
		t.Helper()
		a := c.do(c.recreates(recreates))
		if a.Err == nil || !errors.Is(a.Err, kind) || !strings.Contains(a.Err.Error(), words) {
			t.Errorf("%s: %v", name, a.Err)
		}
	}
	refused("no operation is open", newClinic(t), problem.Stale, "has ended")

	c := newClinic(t)
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.OrdersLevel - 1}}})
	c.stops()
	refused("an older voter", c, problem.Conflict, "before all agents are updated")

	c = newClinic(t)
	c.stops()
	s, _ := c.m.View().Plan(deploys)
	c.do(lease(deploys, "s", s.Graph.On(app)[0]))
	refused("a step is at work", c, problem.Conflict, "is at work on node "+app)
	c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
		Operation: deploys, Order: pb.OperationOrder_OPERATION_ORDER_ABORT}}})
	refused("the operation is being aborted", c, problem.Conflict, "is aborting")

	c = newClinic(t)
	leaving := *c.node(app)
	leaving.Leaving = []string{"app"}
	c.stopsOn([]model.Node{leaving})
	refused("services leave the node", c, problem.Conflict, deploys)
	v := c.m.View()
	main, _ := v.Operation("t", deploys)
	s, _ = v.Plan(deploys)
	if _, occupied := v.Occupies(main, s, app); !occupied { // recovery waits for the operation, and does not order it in vain
		t.Error("a node that services leave may be replaced")
	}
	if _, occupied := v.Occupies(main, s, db); occupied {
		t.Error("another node may not be replaced")
	}

	c = newClinic(t)
	c.stops()
	if a := c.do(c.recreates(recreates)); a.Err != nil {
		t.Fatal(a.Err)
	}
	if a := c.do(c.recreates("00000001-004")); !errors.Is(a.Err, problem.Conflict) || !strings.Contains(a.Err.Error(), recreates) {
		t.Errorf("a second one: %v", a.Err)
	}
	if a := c.do(c.concurrent("00000001-005", model.OpPauseNode, "ann", map[string]string{app: "app"})); !errors.Is(a.Err, problem.Conflict) {
		t.Errorf("a pause of the node: %v", a.Err)
	}
	if a := c.do(c.concurrent("00000001-006", model.OpPauseNode, "ann", map[string]string{db: "db"})); a.Err != nil {
		t.Errorf("a pause of another node: %v", a.Err)
	}
}

// A step that has failed on a node begins again after its machine was replaced. It stops what runs on the new machine, and skips what it had
// stopped on the former one if that does not run.
func TestRecreateHalfDone(t *testing.T) {
	for _, runs := range []bool{true, false} {
		c := newClinic(t)
		cl, _ := c.m.View().Cluster("t", "00000001")
		next := *cl
		next.Operations++
		cmd := c.concurrent(deploys, model.OpRecover, "ann", map[string]string{app: "app"})
		op := model.Operation{ID: deploys, Tenant: "t", Cluster: "00000001", Type: model.OpRestart, OnFailure: "pause", Services: []string{"app"}}
		s := cmd.GetStartOperation()
		s.Operation, s.Cluster, s.ClusterVersion = logtest.Operation(op), logtest.Cluster(next), cl.Version
		s.Tree.Phases[0].Strategy.MaxFailures = 0
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run(deploys, func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Start })
		if op := c.operation(deploys); op.Status != model.OpPaused {
			t.Fatal(op.Status, op.Message)
		}
		if a := c.do(c.recreates(recreates)); a.Err != nil {
			t.Fatal(a.Err)
		}
		if !runs {
			c.run(recreates, func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Start })
		}
		c.run(recreates, nil)
		p, _ := c.m.View().Plan(deploys)
		stop, begin := p.Graph.On(app)[0], p.Graph.On(app)[1]
		if note := p.Note(stop); p.Status(stop) != model.TaskReady || note != nil && note.Skip == runs || p.Status(begin) != model.TaskBlocked {
			t.Errorf("it runs: %t, and the STOP of the step is %s, %+v, its START %s", runs, p.Status(stop), note, p.Status(begin))
		}
		c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
			Operation: deploys, Order: pb.OperationOrder_OPERATION_ORDER_RESUME}}})
		c.run(deploys, nil)
		if n, op := c.node(app), c.operation(deploys); op.Status != model.OpSucceeded || n.States["app"] != "START" {
			t.Errorf("%s, %v", op.Status, n.States)
		}
	}
}

// A replacement supersedes the restart of a node, and waits for the task of it that runs.
func TestRecreateSupersedes(t *testing.T) {
	c := newClinic(t)
	c.stops()
	const restarts = "00000001-004"
	if a := c.do(c.concurrent(restarts, model.OpRecover, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	s, _ := c.m.View().Plan(restarts)
	c.do(lease(restarts, "s", s.Graph.On(app)[0]))
	if a := c.do(c.recreates(recreates)); a.Err != nil {
		t.Fatal(a.Err)
	}
	op := c.operation(restarts)
	if op.Status != model.OpAborting || !strings.Contains(op.Message, "superseded by operation "+recreates) {
		t.Fatalf("%s: %s", op.Status, op.Message)
	}
	if a := c.do(lease(recreates, "s", 0)); len(a.Refused) == 0 {
		t.Error("the machine is deleted while a task runs on it")
	}
	s, _ = c.m.View().Plan(restarts)
	v := s.Graph.On(app)[0]
	c.do(report(restarts, v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	c.run(recreates, nil)
	c.run(deploys, nil)
	for _, id := range []string{recreates, deploys} {
		if op := c.operation(id); op.Status != model.OpSucceeded {
			t.Errorf("%s is %s: %s", id, op.Status, op.Message)
		}
	}
	if n := c.node(app); n.States["app"] != "STOP" { // the main operation came last
		t.Errorf("the node is %v", n.States)
	}
}
