package orchestrate

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestQueue checks that operations wait for those before them, in order, that waiting operations
// can be cancelled, that an operation that cannot start lets the next one start, and that
// operations that wait for a deleted cluster end with that reason.
func TestQueue(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.define(1, "hello")
		never := func() bool { return false }
		ctx := context.Background()
		p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: 3}, false)
		if err != nil {
			t.Fatal(err)
		}
		cluster, first := p.Cluster.ID, p.Operation.ID
		if _, _, err := l.o.Operate(ctx, who, cluster, operation.Request{Type: model.OpRestart}); !errors.Is(err, operation.ErrState) &&
			!errors.Is(err, problem.Conflict) {
			t.Fatalf("without a wish to wait: %v", err)
		}
		ask := func(req operation.Request) string {
			req.Queue = true
			p, _, err := l.o.Operate(ctx, who, cluster, req)
			if err != nil {
				t.Fatal(err)
			}
			return p.Operation.ID
		}
		grow := ask(operation.Request{Type: model.OpGrow, Nodes: 1})
		bad := ask(operation.Request{Type: model.OpShrink, Victims: []string{"4711"}})
		back := ask(operation.Request{Type: model.OpRestart})
		last := ask(operation.Request{Type: model.OpShrink, Nodes: 1})
		is := func(id string, want model.OperationStatus) {
			t.Helper()
			if op, ok := l.m.View().Operation("t", id); !ok || op.Status != want {
				t.Fatalf("operation %s is %+v, not %s", id, op, want)
			}
		}
		order := func(id, what string) state.Answer {
			answers, err := l.propose(ctx, &pb.Command{Tenant: "t", Actor: "ann",
				Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: id,
					Order: logformat.OperationOrders.Number(what)}}})
			if err != nil {
				t.Fatal(err)
			}
			return answers[0]
		}
		if a := order(grow, "pause"); !errors.Is(a.Err, problem.Conflict) {
			t.Fatalf("a pause of what waits: %v", a.Err)
		}
		if a := order(back, "abort"); a.Err != nil {
			t.Fatal(a.Err)
		}
		is(back, model.OpAborted)
		is(grow, model.OpAccepted)
		if rapid.Bool().Draw(t, "another leader") {
			l.o = New(l.o.cfg)
			if err := l.o.Restore(ctx); err != nil {
				t.Fatal(err)
			}
		}
		// turn ends an operation and gives the next its turn, as the duty does.
		turn := func(id string) {
			t.Helper()
			if op := l.run(id, never, never); op.Status != model.OpSucceeded {
				t.Fatalf("operation %s is %s: %s", id, op.Status, op.Message)
			}
			if err := l.o.dequeue(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
		turn(first)
		is(grow, model.OpRunning)
		is(bad, model.OpAccepted)
		turn(grow)
		is(bad, model.OpFailed)
		if err := l.o.dequeue(ctx, bad); err != nil { // its end is an end, too
			t.Fatal(err)
		}
		is(last, model.OpRunning)
		waits := ask(operation.Request{Type: model.OpRestart})
		end := ask(operation.Request{Type: model.OpDelete})
		never1 := ask(operation.Request{Type: model.OpRestart})
		order(waits, "abort")
		turn(last)
		is(end, model.OpRunning)
		l.run(end, never, never)
		is(never1, model.OpAborted)
		if left := l.m.View().Queued("t", cluster); len(left) > 0 {
			t.Fatalf("%d wait for a cluster that is no more", len(left))
		}
		l.check(cluster, "after all")
	})
}
