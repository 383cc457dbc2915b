package orchestrate

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// An order to pause recovery is not lost to an operation that was planned before it.
func TestPauseOfRecoveryIsKept(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.define(1, "hello")
		ctx := context.Background()
		p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: 3}, false)
		if err != nil {
			t.Fatal(err)
		}
		l.run(p.Operation.ID, never, never)
		q, err := l.o.Prepare(ctx, who, p.Cluster.ID, operation.Request{Type: model.OpGrow, Nodes: 1})
		if err != nil {
			t.Fatal(err)
		}
		l.must(&pb.Command{Tenant: "t", Actor: "ann",
			Change: &pb.Command_ControlCluster{ControlCluster: &pb.ControlCluster{Cluster: p.Cluster.ID,
				Order: pb.ClusterOrder_CLUSTER_ORDER_PAUSE_RECOVERY}}})
		cl, _ := l.m.View().Cluster("t", p.Cluster.ID)
		if cl.RecoveryPaused == nil {
			t.Fatal("not paused at all")
		}
		if _, err := l.o.start(ctx, who, q); err != nil {
			t.Fatal(err)
		}
		if cl, _ = l.m.View().Cluster("t", p.Cluster.ID); cl.RecoveryPaused == nil {
			t.Fatal("the operator's pause of recovery was lost to an operation that was planned before it")
		}
		l.must(&pb.Command{Tenant: "t", Actor: "ann",
			Change: &pb.Command_ControlCluster{ControlCluster: &pb.ControlCluster{Cluster: p.Cluster.ID,
				Order: pb.ClusterOrder_CLUSTER_ORDER_RESUME_RECOVERY}}})
		l.run(q.Operation.ID, never, never)
		if cl, _ = l.m.View().Cluster("t", p.Cluster.ID); cl.RecoveryPaused != nil {
			t.Fatal("the pause, taken back while the operation ran, came back with it")
		}
	})
}
