package dispatch_test

import (
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// listener is a conn that also keeps the cancels.
type listener struct {
	conn
	cancels []*pb.Cancel
}

func (c *listener) Send(m *pb.LeaderMessage) bool {
	c.mu.Lock()
	c.cancels = append(c.cancels, m.Cancels...)
	c.mu.Unlock()
	return c.conn.Send(m)
}

// TestSupersededTaskIsNotCancelled has an operation be superseded while an agent works on one of its tasks: neither this leader nor the next
// one cancels the task, no other task is sent, and the operation ends with it. An abort of the operation cancels it after all.
func TestSupersededTaskIsNotCancelled(t *testing.T) {
	for name, abort := range map[string]bool{"its task ends": false, "it is aborted": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { notCancelled(t, abort) }) })
	}
}

func notCancelled(t *testing.T, abort bool) {
	l := newLog(t)
	b := plan.NewBuilder([]string{"00000001-1000", "00000001-1001"}, []string{"s"})
	b.Edge(b.Task(model.Install, 0, 0), b.Task(model.Install, 1, 0))
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	open := model.Operation{ID: "00000001-001", Tenant: "one", Cluster: "00000001", Type: model.OpUpgrade}
	cl := model.Cluster{ID: "00000001", Tenant: "one", Name: "a", Operation: open.ID, Operations: 1}
	l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "one"})}}},
		&pb.Command{Tenant: "one", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Operation: logtest.Operation(open),
			Cluster: logtest.Cluster(cl), Graph: g.Encode()}}})
	d, end := l.dispatcher()
	defer func() { end() }()
	hears := func(session string, held ...*pb.Held) *listener {
		t.Helper()
		c := &listener{}
		if err := d.Open(t.Context(), session, &pb.Hello{Agent: "a", Slots: 4, Held: held}, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		return c
	}
	first := hears("s")
	if first.got() != 1 {
		t.Fatalf("%d tasks were sent", first.got())
	}
	task := first.tasks[0]
	have, _ := l.machine.View().Cluster("one", cl.ID)
	next := model.Operation{ID: "00000001-002", Tenant: "one", Cluster: cl.ID, Type: model.OpUpgrade, Status: model.OpAccepted}
	l.must(&pb.Command{Tenant: "one", Actor: "bob", Change: &pb.Command_QueueOperation{QueueOperation: &pb.QueueOperation{
		Operation: logtest.Operation(next), Request: logtest.Request(operation.Request{Type: model.OpUpgrade}),
		ClusterVersion: have.Version, Supersedes: open.ID}}})
	synctest.Wait()
	end()
	d, end = l.dispatcher()
	again := hears("s2", &pb.Held{Task: task.Id, Fence: task.Fence})
	if n, more := len(first.cancels)+len(again.cancels), again.got(); n > 0 || more > 0 {
		t.Fatalf("%d cancels and %d more tasks were sent", n, more)
	}
	if op, _ := l.machine.View().Operation("", open.ID); op.Status != model.OpAborting || op.SupersededBy != next.ID {
		t.Fatalf("it is %s, superseded by %q", op.Status, op.SupersededBy)
	}
	want, outcome := model.OpSuperseded, pb.Outcome_OUTCOME_SUCCEEDED
	if abort {
		want, outcome = model.OpAborted, pb.Outcome_OUTCOME_CANCELLED
		l.must(&pb.Command{Tenant: "one", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
			Operation: open.ID, Order: pb.OperationOrder_OPERATION_ORDER_ABORT}}})
		synctest.Wait()
		if len(again.cancels) != 1 || again.cancels[0].Task != task.Id {
			t.Fatalf("an abort sends the cancels %v", again.cancels)
		}
	}
	d.ReportSoon("s2", []*pb.Result{{Task: task.Id, Fence: task.Fence, Outcome: outcome}})
	synctest.Wait()
	if op, _ := l.machine.View().Operation("", open.ID); op.Status != want {
		t.Fatalf("it is %s, not %s", op.Status, want)
	}
	if n := again.got(); n > 0 {
		t.Fatalf("%d more tasks were sent", n)
	}
}
