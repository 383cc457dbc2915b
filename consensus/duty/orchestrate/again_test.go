package orchestrate

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// hardware lets the template's nodes be of these types, the first preferred.
func (l *lab) hardware(names ...string) {
	l.define(1, "hello")
	put := &pb.PutDefinitions{}
	for _, name := range names {
		h := &model.HardwareType{Base: model.Base{Name: name}, ProviderMap: map[string]map[string]any{"p": {"flavor": name}}}
		put.Definitions = append(put.Definitions, &pb.Definition{Kind: string(model.KindHardwareType), Name: name, Body: js(h)})
	}
	d, _ := Lookup(l.m.View(), "t").Definition(model.KindClusterTemplate, "shop")
	tpl := d.Value.(*model.ClusterTemplate)
	tpl.Defaults.HardwareType = ""
	tpl.Compatibility.HardwareTypes = names
	put.Definitions = append(put.Definitions, &pb.Definition{Kind: string(model.KindClusterTemplate), Name: "shop", Body: js(tpl)})
	l.must(&pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: put}})
}

// ends carries out an operation and all that follows it, and gives them in order.
func (l *lab) ends(id string) []*model.Operation {
	never := func() bool { return false }
	var out []*model.Operation
	for {
		op := l.run(id, never, never)
		out = append(out, op)
		if err := l.o.follow(context.Background(), id); err != nil {
			l.t.Fatal(err)
		}
		cl, _ := l.m.View().Cluster("t", op.Cluster)
		if cl.Operation == id {
			return out
		}
		id = cl.Operation
	}
}

func on(service, hardware string) func(*model.Node) bool {
	return func(n *model.Node) bool {
		return n.HardwareType == hardware && slices.Contains(n.Services, service)
	}
}

// TestAnotherLayout checks that after a layout has failed, other layouts are tried, each once, up
// to the number in the request (docs/spec/planner.md, "Transactions" 10).
func TestAnotherLayout(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.hardware("big", "small")
		ctx := context.Background()
		create := model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: 4, ResolveOnFailure: 10, Priority: 7}
		good := func(op *model.Operation) {
			t.Helper()
			if op.Status != model.OpSucceeded || op.Retry == nil {
				t.Fatalf("the last try is %+v", op)
			}
			seen := map[string]bool{}
			for _, layout := range op.Retry.Tried {
				if key := string(js(layout)); seen[key] {
					t.Fatalf("a layout was tried twice: %s", key)
				} else {
					seen[key] = true
				}
			}
			if len(seen) < 2 {
				t.Fatalf("no other layout was tried: %+v", op.Retry)
			}
			for _, n := range l.m.View().Nodes("t", op.Cluster) {
				if l.broken(n) {
					t.Fatalf("node %s is one that cannot work: %+v", n.ID, n)
				}
			}
			l.check(op.Cluster, "another layout")
		}
		l.broken = on("web", "big")
		p, _, err := l.o.Create(ctx, who, create, false)
		if err != nil {
			t.Fatal(err)
		}
		ops := l.ends(p.Operation.ID)
		last := ops[len(ops)-1]
		good(last)
		if last.Priority != 7 || last.Type != model.OpCreate || len(ops) != len(last.Retry.Tried) || last.Cluster != p.Cluster.ID {
			t.Fatalf("%d operations, the last %+v", len(ops), last)
		}

		// The same for a cluster that grows, with each try rolled back.
		grow := operation.Request{Type: model.OpGrow, Nodes: 2, Retries: 10}
		if p, _, err = l.o.Operate(ctx, who, last.Cluster, grow); err != nil {
			t.Fatal(err)
		}
		ops = l.ends(p.Operation.ID)
		good(ops[len(ops)-1])
		for i, op := range ops[:len(ops)-1] {
			if want := []model.OperationType{model.OpGrow, model.OpRollback}[i%2]; op.Type != want {
				t.Fatalf("operation %d is a %s", i, op.Type)
			}
		}

		// The attempts end when the requested number is reached, or when there is no other layout.
		l.broken = func(n *model.Node) bool { return !n.Created }
		if p, _, err = l.o.Operate(ctx, who, last.Cluster, operation.Request{Type: model.OpGrow, Nodes: 1, Retries: 1}); err != nil {
			t.Fatal(err)
		}
		if ops = l.ends(p.Operation.ID); len(ops) != 4 || ops[2].Type != model.OpGrow || ops[3].Type != model.OpRollback {
			t.Fatalf("one other layout comes to %d operations", len(ops))
		}
		create.Name, create.HardwareType = "d", "big"
		create.NumMachines = 3
		if p, _, err = l.o.Create(ctx, who, create, false); err != nil {
			t.Fatal(err)
		}
		if ops = l.ends(p.Operation.ID); len(ops) != 2 || ops[1].Type != model.OpDelete {
			t.Fatalf("without another layout: %d operations", len(ops))
		}
	})
}
