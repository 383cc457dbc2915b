package orchestrate

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func hostnames(p *operation.Prepared) []string {
	var out []string
	for _, n := range p.Nodes {
		out = append(out, n.Hostname)
	}
	return out
}

// A preview has the host names of the order, and is refused for the same reasons. It changes nothing.
func TestPreviewIsTheOrder(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.define(1, "hello")
		ctx := context.Background()
		create := func(name string, nodes model.Int, dry bool) (*operation.Prepared, error) {
			before := snapshot(t, l.m)
			p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: name, ClusterTemplate: "shop", NumMachines: nodes}, dry)
			if dry && !bytes.Equal(snapshot(t, l.m), before) {
				t.Fatal("a preview changes the state")
			}
			return p, err
		}
		// both carries out a preview and then the order, which must agree. It returns the order's error.
		both := func(order func(dry bool) (*operation.Prepared, error)) (*operation.Prepared, error) {
			t.Helper()
			shown, dryErr := order(true)
			done, err := order(false)
			if problem.CodeOf(dryErr) != problem.CodeOf(err) || err != nil && dryErr.Error() != err.Error() {
				t.Fatalf("the preview has the error %v, the order %v", dryErr, err)
			}
			if err == nil && !slices.Equal(hostnames(shown), hostnames(done)) {
				t.Fatalf("the preview has %v, the order %v", hostnames(shown), hostnames(done))
			}
			return done, err
		}
		p, err := both(func(dry bool) (*operation.Prepared, error) { return create("c", 3, dry) })
		if err != nil {
			t.Fatal(err)
		}
		if p.Operation.CreatedAt == 0 || p.Cluster.CreatedAt == 0 {
			t.Fatal("the answer is not what was written")
		}
		l.run(p.Operation.ID, never, never)
		if _, err = both(func(dry bool) (*operation.Prepared, error) { return create("c", 3, dry) }); !errors.Is(err, problem.Conflict) {
			t.Fatal("a name that is taken:", err)
		}
		limit := func(nodes, clusters int) {
			l.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{
				Tenant: logtest.Tenant(model.Tenant{Name: "t", MaxNodes: nodes, MaxClusters: clusters})}}})
		}
		limit(0, 1)
		if _, err = both(func(dry bool) (*operation.Prepared, error) { return create("d", 3, dry) }); !errors.Is(err, problem.Quota) {
			t.Fatal("one cluster too many:", err)
		}
		limit(3, 0)
		if _, err = both(func(dry bool) (*operation.Prepared, error) { return create("d", 3, dry) }); !errors.Is(err, problem.Quota) {
			t.Fatal("nodes too many:", err)
		}
		grow := func(req operation.Request) func(bool) (*operation.Prepared, error) {
			return func(dry bool) (*operation.Prepared, error) {
				if dry {
					return l.o.Preview(ctx, who, p.Cluster.ID, req)
				}
				q, _, err := l.o.Operate(ctx, who, p.Cluster.ID, req)
				return q, err
			}
		}
		more := operation.Request{Type: model.OpGrow, Nodes: 1}
		if _, err = both(grow(more)); !errors.Is(err, problem.Quota) {
			t.Fatal("a node too many:", err)
		}
		limit(0, 0)
		if _, err = both(grow(more)); err != nil {
			t.Fatal(err)
		}
		if _, err = both(grow(more)); !errors.Is(err, problem.Conflict) {
			t.Fatal("an operation is under way:", err)
		}
		more.Queue = true
		if _, err = both(grow(more)); err != nil {
			t.Fatal("it may wait:", err)
		}
	})
}

// A cluster is not created from a definition that was deleted while the cluster was planned.
func TestDefinitionDeletedWhilePlanned(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.define(1, "hello")
		drop := rapid.SampledFrom([]*pb.DefinitionVersion{
			{Kind: string(model.KindClusterTemplate), Name: "shop"}, {Kind: string(model.KindService), Name: "web"},
			{Kind: string(model.KindProvider), Name: "p"}, {Kind: string(model.KindHardwareType), Name: "small"},
			{Kind: string(model.KindImageType), Name: "empty"},
		}).Draw(t, "definition")
		proposed := 0
		l.o.cfg.Propose = func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			if proposed++; proposed == 1 {
				l.must(&pb.Command{Tenant: "t", Actor: "eve", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
					Delete: []*pb.DefinitionVersion{drop}}}})
			}
			return l.propose(ctx, cs...)
		}
		p, _, err := l.o.Create(context.Background(), who, model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: 3}, false)
		if err == nil {
			t.Fatalf("cluster %s was made from %s/%s, which was deleted before", p.Cluster.ID, drop.Kind, drop.Name)
		}
		if n := len(l.m.View().Clusters("t")); n != 0 {
			t.Fatalf("%d clusters", n)
		}
	})
}

// A repeated request has the operation as it began, even if it is gone since.
func TestRepeatedStart(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.define(1, "hello")
		ctx, who := context.Background(), who
		who.Request = "once"
		create := func() (*operation.Prepared, state.Answer) {
			p, ans, err := l.o.Create(ctx, who, model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: 3}, false)
			if err != nil {
				t.Fatal(err)
			}
			return p, ans
		}
		first, ans := create()
		l.run(first.Operation.ID, never, never)
		check := func() {
			again, ans2 := create()
			if string(js(again.Operation)) != string(js(first.Operation)) || again.Cluster.ID != first.Cluster.ID {
				t.Fatalf("%s\nthe first time %s", js(again.Operation), js(first.Operation))
			}
			if !ans2.Repeated || ans2.Index != ans.Index {
				t.Fatalf("%+v", ans2)
			}
		}
		check()
		l.must(&pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{Operations: []string{first.Operation.ID}}}})
		if _, ok := l.m.View().Operation("t", first.Operation.ID); ok {
			t.Fatal("the operation is kept")
		}
		check()
	})
}
