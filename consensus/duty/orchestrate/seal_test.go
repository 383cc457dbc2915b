package orchestrate

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
)

// TestSeal has passwords that can or cannot be encrypted. Without encryption no user starts anything, but what the mesh does for a
// cluster goes on.
func TestSeal(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, ctx := newLab(t), context.Background()
		l.define(1, "hello")
		errShut := errors.New("no keys")
		var fails error
		l.o.cfg.Seal = func(_ context.Context, tenant string, p *model.Provider, _ ...string) error {
			if tenant != "t" {
				t.Errorf("a value of tenant %q", tenant)
			}
			if fails == nil {
				p.Provisioner = map[string]any{"password": model.SealedRef{ID: "a", Version: 1}.String()}
			}
			return fails
		}
		create := func() (*operation.Prepared, error) {
			p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: 3}, false)
			return p, err
		}
		fails = errShut
		if _, err := create(); !errors.Is(err, errShut) || len(l.m.View().Clusters("t")) > 0 {
			t.Fatal("a cluster was created:", err)
		}
		fails = nil
		p, err := create()
		if err != nil {
			t.Fatal(err)
		}
		if cl, _ := l.m.View().Cluster("t", p.Cluster.ID); !model.HasSealedRef(cl.Provider.Provisioner) {
			t.Errorf("the provider has %v", cl.Provider.Provisioner)
		}
		never := func() bool { return false }
		l.run(p.Operation.ID, never, never)
		fails = errShut
		if _, _, err := l.o.Operate(ctx, who, p.Cluster.ID, operation.Request{Type: model.OpRestart}); !errors.Is(err, errShut) {
			t.Error("a user's operation:", err)
		}
		self := model.Caller{Tenant: "t", Actor: model.Self, Role: model.RoleAdmin, Follows: true}
		if _, _, err := l.o.Operate(ctx, self, p.Cluster.ID, operation.Request{Type: model.OpRestart}); err != nil {
			t.Error("an operation of the mesh:", err)
		}
	})
}
