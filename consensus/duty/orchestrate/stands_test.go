package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func never() bool  { return false }
func always() bool { return true }

// shop is a lab with a cluster that runs; it gives the cluster's id.
func shop(t *rapid.T, nodes int) (*lab, string) {
	l := newLab(t)
	l.define(1, "hello")
	p, _, err := l.o.Create(context.Background(), who,
		model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: model.Int(nodes)}, false)
	if err != nil {
		t.Fatal(err)
	}
	if op := l.run(p.Operation.ID, never, never); op.Status != model.OpSucceeded {
		t.Fatal(op.Status, op.Message)
	}
	return l, p.Cluster.ID
}

// do starts an operation.
func (l *lab) do(cluster string, req operation.Request) string {
	l.t.Helper()
	p, _, err := l.o.Operate(context.Background(), who, cluster, req)
	if err != nil {
		l.t.Fatal(req.Type, err)
	}
	return p.Operation.ID
}

// last returns a cluster and its latest operation.
func (l *lab) last(cluster string) (*model.Cluster, *model.Operation) {
	cl, _ := l.m.View().Cluster("t", cluster)
	op, _ := l.m.View().Operation("t", cl.Operation)
	return cl, op
}

// The result of an operation that has succeeded stays. An order that repeats a part of it removes
// nothing, even if the repetition fails.
func TestWhatSucceededStands(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 3)
		again := func(op string) *model.Operation {
			t.Helper()
			l.must(&pb.Command{Tenant: "t", Actor: "ann",
				Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: op, Order: pb.PlanOrder_PLAN_ORDER_RESTART, Phase: "web"}}})
			l.run(op, always, never)
			if err := l.o.follow(context.Background(), op); err != nil {
				t.Fatal(err)
			}
			cl, last := l.last(id)
			if last.ID != op || last.Status != model.OpFailed || cl.Status != model.ClusterInconsistent {
				t.Fatalf("the cluster is %s, its latest operation %+v", cl.Status, last)
			}
			return last
		}
		_, create := l.last(id)
		again(create.ID)
		if l.run(l.do(id, operation.Request{Type: model.OpGrow, Nodes: 1, Retries: 3}), never, never).Status != model.OpSucceeded {
			t.Fatal("grow")
		}
		_, grow := l.last(id)
		again(grow.ID)
		if n := len(l.m.View().Nodes("t", id)); n != 4 {
			t.Fatalf("%d nodes are left", n)
		}
	})
}

// TestWayBackIsKept: the message of a failed cluster names a snapshot to return to, and that
// snapshot outlives any number of attempts to replace a node.
func TestWayBackIsKept(t *testing.T) {
	seeded(t, "2")
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 3)
		before := l.essence(id)
		grow := l.do(id, operation.Request{Type: model.OpGrow, Nodes: 1})
		left := rapid.IntRange(3, 6).Draw(t, "fails after")
		l.run(grow, func() bool { left--; return left <= 0 }, never)
		if err := l.o.follow(context.Background(), grow); err != nil {
			t.Fatal(err)
		}
		_, back := l.last(id)
		l.run(back.ID, always, never)
		cl, _ := l.last(id)
		if cl.Status != model.ClusterFailed || !strings.Contains(cl.Message, fmt.Sprintf("--to %d`", cl.ReturnTo)) {
			t.Fatalf("the cluster is %s: %s", cl.Status, cl.Message)
		}
		for range 15 {
			victim := l.m.View().Nodes("t", id)[0].ID
			l.run(l.do(id, operation.Request{Type: model.OpReplaceNode, Victims: []string{victim}, OnFailure: "leave"}), always, never)
		}
		l.run(l.do(id, operation.Request{Type: model.OpRollback, To: cl.ReturnTo}), never, never)
		if cl, op := l.last(id); cl.Status != model.ClusterActive || cl.ReturnTo != 0 {
			t.Fatalf("the cluster is %s: %s; %s is %s", cl.Status, cl.Message, op.Type, op.Status)
		}
		if after := l.essence(id); after != before {
			t.Fatalf("%s, not %s", after, before)
		}
	})
}

// A queued operation has its turn when the operation before it should be tried again with
// another layout, but there is none.
func TestQueueBehindRetry(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 3)
		grow := l.do(id, operation.Request{Type: model.OpGrow, Nodes: 1, Retries: 2})
		waits := l.do(id, operation.Request{Type: model.OpRestart, Rollout: model.Rollout{Queue: true}})
		l.run(grow, always, never)
		for ended := grow; ; {
			for _, next := range []func(context.Context, string) error{l.o.follow, l.o.dequeue} {
				if err := next(context.Background(), ended); err != nil {
					t.Fatal(err)
				}
			}
			_, op := l.last(id)
			if op.ID == waits {
				break
			}
			if op.ID == ended {
				t.Fatalf("%s waits for ever behind %s, which is %s", waits, op.ID, op.Status)
			}
			if ended = op.ID; op.Type == model.OpGrow {
				l.run(ended, always, never)
			} else {
				l.run(ended, never, never)
			}
		}
	})
}

// A failure that is put up with loses nothing: a node whose machine was not
// deleted stays in the records, and so does a service that was not removed.
func TestToleratedLosesNothing(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 5)
		var victim string
		for _, n := range l.m.View().Nodes("t", id) {
			if n.Services[0] == "web" {
				victim = n.ID
			}
		}
		l.broken = func(n *model.Node) bool { return n.ID == victim }
		l.run(l.do(id, operation.Request{Type: model.OpShrink, Victims: []string{victim}, Rollout: model.Rollout{MaxFailures: 1}}), never, never)
		n, ok := l.m.View().Node("t", victim)
		if _, op := l.last(id); op.Status != model.OpSucceeded || !ok || !n.Created || n.Leaves || l.machines[victim] == nil {
			t.Fatalf("%s: the node's record is there: %v, its machine: %v", op.Status, ok, l.machines[victim] != nil)
		}
		l.broken = func(n *model.Node) bool { return n.ID == victim }
		l.run(l.do(id, operation.Request{Type: model.OpDelete, Graceful: true, Rollout: model.Rollout{MaxFailures: 1}}), never, never)
		if cl, op := l.last(id); op.Status != model.OpFailed || cl.Status == model.ClusterTerminated || l.machines[victim] == nil {
			t.Fatalf("the delete is %s, the cluster %s", op.Status, cl.Status)
		}
		if _, ok := l.m.View().Node("t", victim); !ok {
			t.Fatal("the node that could not be deleted has no record any more")
		}
		l.broken = nil
		l.run(l.do(id, operation.Request{Type: model.OpDelete}), never, never)
		if cl, _ := l.last(id); cl.Status != model.ClusterTerminated || len(l.machines) > 0 {
			t.Fatalf("in the end the cluster is %s, and there are %d machines", cl.Status, len(l.machines))
		}
	})
}

// The snapshot that is gone back to is kept until that is done, and tried again.
func TestOldestSnapshotIsKept(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 3)
		for i := range 15 {
			l.run(l.do(id, operation.Request{Type: model.OpConfigure, Restart: true, Config: map[string]any{"greeting": fmt.Sprint(i)}}),
				never, never)
			l.run(l.do(id, operation.Request{Type: model.OpRestart}), never, never)
		}
		oldest := l.m.View().History("t", id)[0].Number
		back := operation.Request{Type: model.OpRollback, To: oldest}
		l.run(l.do(id, back), always, never)
		if _, ok := l.m.View().Snapshot("t", id, oldest); !ok {
			t.Fatal("the snapshot went while it was gone back to")
		}
		l.run(l.do(id, back), never, never)
		if cl, op := l.last(id); op.Status != model.OpSucceeded || cl.Status != model.ClusterActive {
			t.Fatalf("the second time: %s, the cluster is %s", op.Status, cl.Status)
		}
	})
}

// A tenant's limit of nodes holds for whatever makes more of them.
func TestQuotaOfGrowth(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 3)
		l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t", MaxNodes: 4})}}})
		if _, _, err := l.o.Operate(context.Background(), who, id, operation.Request{Type: model.OpGrow, Nodes: 2}); !errors.Is(err,
			problem.Quota) {
			t.Fatalf("two more than there may be: %v", err)
		}
		l.run(l.do(id, operation.Request{Type: model.OpGrow, Nodes: 1}), never, never)
		if n := len(l.machines); n != 4 {
			t.Fatalf("%d machines", n)
		}
		// The quota does not prevent a rollback to more nodes.
		l.run(l.do(id, operation.Request{Type: model.OpShrink, Nodes: 1}), never, never)
		l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "t", MaxNodes: 3})}}})
		_, shrink := l.last(id)
		l.run(l.do(id, operation.Request{Type: model.OpRollback, To: shrink.Before}), never, never)
		if n := len(l.machines); n != 4 {
			t.Fatalf("rolled back to %d machines", n)
		}
	})
}

// TestRollbackWithoutAMachine: a machine that is gone does not keep a cluster from being rolled
// back. Its node is left to recovery, and the cluster is inconsistent until then.
func TestRollbackWithoutAMachine(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		l.define(2, "hello")
		upgrade := l.do(id, operation.Request{Type: model.OpUpgrade})
		left := rapid.IntRange(2, 6).Draw(t, "fails after")
		if op := l.run(upgrade, func() bool { left--; return left <= 0 }, never); op.Status != model.OpRollingBack {
			t.Fatal(op.Status)
		}
		nodes := l.m.View().Nodes("t", id)
		n := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "gone")]
		l.raze(n.ID)
		l.notice(n.ID)
		if err := l.o.follow(context.Background(), upgrade); err != nil {
			t.Fatal(err)
		}
		_, back := l.last(id)
		if op := l.run(back.ID, never, never); op.Type != model.OpRollback || op.Status != model.OpSucceeded {
			t.Fatalf("%s is %s: %s", op.Type, op.Status, op.Message)
		}
		if cl, op := l.last(id); cl.Status != model.ClusterInconsistent || len(op.Skipped) != 1 {
			t.Fatalf("without a machine the cluster is %s: %s; the rollback left out %v", cl.Status, cl.Message, op.Skipped)
		}
		l.follows(id, never)
		if cl, _ := l.last(id); cl.Status != model.ClusterActive {
			t.Fatalf("with a new machine the cluster is %s: %s", cl.Status, cl.Message)
		}
		l.check(id, "rolled back without a machine")
	})
}
