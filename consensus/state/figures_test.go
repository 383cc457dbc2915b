package state_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestFigures follows what is counted in the state, and in the batches, from the start of a cluster until recovery gives up.
func TestFigures(t *testing.T) {
	c := newClinic(t)
	var sum state.Tally
	stop := c.m.Watch(func(b state.Batch) {
		sum.GivenUp += b.Tally.GivenUp
		for k, n := range b.Tally.Tasks {
			if sum.Tasks == nil {
				sum.Tasks = map[state.TaskEnd]int{}
			}
			sum.Tasks[k] += n
		}
		for k, n := range b.Tally.Operations {
			if sum.Operations == nil {
				sum.Operations = map[state.OperationEnd]int{}
			}
			sum.Operations[k] += n
		}
		for k, n := range b.Tally.Recoveries {
			if sum.Recoveries == nil {
				sum.Recoveries = map[model.OperationType]int{}
			}
			sum.Recoveries[k] += n
		}
	})
	defer stop()
	type both struct {
		state.Census
		view.Figures
	}
	figures := func() both { return both{c.m.Census(), c.m.View().Figures(c.now)} }
	if f := figures(); f.Clusters[state.ClusterGroup{Status: model.ClusterActive}] != 1 || len(f.Clusters) != 1 || len(f.Operations) > 0 {
		t.Fatalf("after the creation: %+v", f)
	}

	const unknown = pb.Machine_MACHINE_UNKNOWN
	const db, app = "00000001-1000", "00000001-1001"
	c.verdict(db, "db", true, unknown)
	if f := figures(); f.Nodes["healthy"] != 1 || f.Clusters[state.ClusterGroup{Status: model.ClusterActive, Health: "healthy"}] != 1 {
		t.Errorf("with a healthy node: %+v", f)
	}
	c.verdict(app, "app", false, unknown)
	if f := figures(); f.Nodes["unhealthy"] != 1 || f.Clusters[state.ClusterGroup{Status: model.ClusterActive, Health: "unhealthy"}] != 1 ||
		len(f.Clusters) != 1 || f.Abandoned != 0 {
		t.Errorf("with a service that fails: %+v", f)
	}

	fails := func(g *plan.Graph, v uint32) bool { return g.Action[v] == model.Start }
	for i := 2; figures().Abandoned == 0; i++ {
		op := fmt.Sprintf("00000001-%03d", i)
		if i > 20 {
			t.Fatal("recovery does not give up")
		}
		if a := c.do(c.concurrent(op, model.OpRecover, model.Self, map[string]string{app: "app"})); a.Err != nil {
			t.Fatal(a.Err)
		}
		if f := figures(); f.Operations[view.OperationKey{Type: model.OpRecover, Status: model.OpRunning}] != 1 ||
			f.Tasks[model.TaskReady] != 1 || f.Tasks[model.TaskBlocked] != 1 || f.Waiting != 0 {
			t.Fatalf("while a recovery runs: %+v", f)
		}
		if i == 2 {
			c.do(order(op, "pause"))
			if f := figures(); f.Waiting != 1 || f.Operations[view.OperationKey{Type: model.OpRecover, Status: model.OpPaused}] != 1 {
				t.Errorf("while it is paused: %+v", f)
			}
			c.do(order(op, "resume"))
		}
		c.run(op, fails)
	}
	f := figures()
	tries := sum.Recoveries[model.OpRecover]
	if tries != 10 || sum.GivenUp != 1 || f.Abandoned != 1 || f.Waiting != 0 || len(f.Operations) != 0 {
		t.Errorf("after recovery gave up: %+v, %+v", f, sum)
	}
	if n := sum.Tasks[state.TaskEnd{Action: model.Stop, Outcome: "succeeded"}]; n != tries {
		t.Errorf("%d stops succeeded, not %d", n, tries)
	}
	if n := sum.Tasks[state.TaskEnd{Action: model.Start, Outcome: "fatal"}]; n != tries {
		t.Errorf("%d starts failed, not %d", n, tries)
	}
	ended := 0
	for k, n := range sum.Operations {
		if k.Type != model.OpRecover {
			t.Errorf("an operation ended: %+v", k)
		}
		ended += n
	}
	if ended != tries {
		t.Errorf("%d operations ended, not %d", ended, tries)
	}
	if err := c.m.Restore(io.NopCloser(bytes.NewReader(dump(t, c.m)))); err != nil {
		t.Fatal(err)
	}
	if f := figures(); f.Abandoned != 1 || f.Nodes["healthy"] != 1 || len(f.Clusters) != 1 {
		t.Errorf("after a snapshot: %+v", f)
	}
	c.verdict(app, "app", true, unknown)
	if f := figures(); f.Abandoned != 0 || f.Nodes["healthy"] != 2 {
		t.Errorf("after a person has repaired it: %+v", f)
	}
}

// BenchmarkFigures measures the passes of a scrape over a state with 10,000 clusters that are being created.
func BenchmarkFigures(b *testing.B) {
	m := fresh(b)
	index := uint64(0)
	apply := func(cs ...*pb.Command) {
		index++
		for _, a := range do(b, m, entry(index, 1000, cs...)) {
			if a.Err != nil {
				b.Fatal(a.Err)
			}
		}
	}
	const tenants, clusters, nodes = 4, 10_000, 5
	for i := range tenants {
		apply(tenant(fmt.Sprint("t", i), clusters*nodes, clusters))
	}
	for i := 1; i <= clusters; i++ {
		id, of := string(model.NewClusterID(i)), fmt.Sprint("t", i%tenants)
		apply(start(of, id, "c"+id, nodes, "leave", ""))
		var changes []*pb.HealthChange
		for n := range nodes {
			node, _ := m.View().Node(of, string(model.ClusterID(id).Node(1000+n)))
			changes = append(changes, &pb.HealthChange{Tenant: of, Node: node.ID, Version: node.Version, Service: node.Services[0], Healthy: true})
		}
		apply(&pb.Command{Change: &pb.Command_ReportHealth{ReportHealth: &pb.ReportHealth{Changes: changes}}})
	}
	b.Run("census", func(b *testing.B) {
		for b.Loop() {
			m.Census()
		}
	})
	b.Run("figures", func(b *testing.B) {
		for b.Loop() {
			m.View().Figures(1000)
		}
	})
	b.Run("rows", func(b *testing.B) {
		for b.Loop() {
			m.View().Rows()
		}
	})
}
