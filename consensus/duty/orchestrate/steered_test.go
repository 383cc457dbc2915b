package orchestrate

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// The plan of a failed rollback can be steered: it continues on an order, waits for another order
// where it fails again, and passes over a step that is forced (docs/spec/planner.md, "Transactions"
// 9).
func TestFailedRollbackIsSteered(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 3)
		before := l.essence(id)
		grow := l.do(id, operation.Request{Type: model.OpGrow, Nodes: 2})
		left := rapid.IntRange(3, 12).Draw(t, "fails after")
		if op := l.run(grow, func() bool { left--; return left <= 0 }, never); op.Status != model.OpRollingBack {
			t.Fatal(op.Status)
		}
		if err := l.o.follow(context.Background(), grow); err != nil {
			t.Fatal(err)
		}
		_, back := l.last(id)
		if op := l.run(back.ID, always, never); op.Status != model.OpFailed {
			t.Fatal(op.Status)
		}
		if cl, _ := l.last(id); cl.Status != model.ClusterFailed {
			t.Fatalf("the cluster is %s", cl.Status)
		}
		order := func(o *pb.OrderPlan) {
			t.Helper()
			o.Operation = back.ID
			l.must(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_OrderPlan{OrderPlan: o}})
		}
		order(&pb.OrderPlan{Order: pb.PlanOrder_PLAN_ORDER_RESTART})
		if rapid.Bool().Draw(t, "fails again") {
			// The plan waits, and continues on an order.
			s, _ := l.m.View().Plan(back.ID)
			ready := s.Leasable()[:1]
			l.must(&pb.Command{Change: &pb.Command_Lease{Lease: &pb.Lease{Operation: back.ID, Sessions: []string{"s"}, Tasks: ready,
				SessionOf: []uint32{0}}}})
			s, _ = l.m.View().Plan(back.ID)
			l.must(&pb.Command{Change: &pb.Command_Report{Report: &pb.Report{
				Operation: back.ID, Tasks: ready, Fences: []uint64{s.Fence(ready[0])},
				Outputs: []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_FATAL, Message: "broken"}},
			}}})
			if op, _ := l.m.View().Operation("t", back.ID); op.Status != model.OpPaused || !strings.Contains(op.Message, "broken") {
				t.Fatalf("it is %s: %s", op.Status, op.Message)
			}
			l.must(&pb.Command{Tenant: "t", Actor: "ann",
				Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: back.ID,
					Order: pb.OperationOrder_OPERATION_ORDER_RESUME}}})
		}
		if op := l.run(back.ID, never, never); op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
		if op, _ := l.m.View().Operation("t", grow); op.Status != model.OpRolledBack {
			t.Fatalf("what was to be undone is %s", op.Status)
		}
		l.check(id, "a steered rollback")
		if after := l.essence(id); after != before {
			t.Fatalf("before %s\nafter  %s", before, after)
		}
	})
}
