package janitor_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// TestLeases has the janitor warn once of the end of each lease, and delete a cluster when its lease is over, unless somebody prolongs the
// lease at that moment.
func TestLeases(t *testing.T) {
	h := newHouse(t)
	g, err := plan.NewBuilder(nil, nil).Build()
	if err != nil {
		t.Fatal(err)
	}
	op := model.Operation{ID: "00000001-001", Tenant: "t", Cluster: "00000001", Type: model.OpCreate}
	h.apply(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Graph: g.Encode(),
		Operation: logtest.Operation(op), LifetimeMs: (8 * time.Hour).Milliseconds(),
		Cluster: logtest.Cluster(model.Cluster{ID: "00000001", Tenant: "t", Name: "web", Operation: op.ID, Operations: 1})}}})
	cluster := func() *model.Cluster {
		cl, _ := h.m.View().Cluster("t", "00000001")
		return cl
	}
	prolong := func(more time.Duration) {
		c := logformat.Lease("00000001", cluster().ExpiresAt, cluster().ExpiresAt+more.Milliseconds())
		c.Tenant, c.Actor = "t", "ann"
		h.apply(c)
	}
	refused, deleted, meanwhile := errors.New("refused"), 0, func() {}
	j := janitor.New(janitor.Config{Machine: h.m, Logger: slog.New(slog.DiscardHandler),
		Propose: func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			h.apply(cs...)
			return make([]state.Answer, len(cs)), nil
		},
		Delete: func(_ context.Context, cl *model.Cluster) error {
			meanwhile()
			if cluster().ExpiresAt != cl.ExpiresAt {
				return refused
			}
			deleted++
			return nil
		}})
	sweep := func(ahead time.Duration, warnings, deletions int) {
		t.Helper()
		h.now = h.now.Add(ahead)
		if err := j.Sweep(t.Context(), h.now); err != nil {
			t.Fatal(err)
		}
		n := 0
		err := h.m.View().Audit().Each(&audit.Filter{Types: []string{audit.TypeExpiring}}, false, audit.Cursor{}, func(audit.Record) bool {
			n++
			return true
		})
		if err != nil || n != warnings || deleted != deletions {
			t.Fatalf("%d warnings, %d deletions, %v", n, deleted, err)
		}
	}
	sweep(6*time.Hour-time.Millisecond, 0, 0)
	sweep(time.Millisecond, 1, 0)
	sweep(time.Minute, 1, 0)
	prolong(8 * time.Hour)
	sweep(5*time.Hour, 1, 0)
	sweep(2*time.Hour, 2, 0)
	meanwhile = func() { prolong(time.Hour) }
	sweep(3*time.Hour, 2, 0) // it is over, and somebody prolongs it
	meanwhile = func() {}
	sweep(30*time.Minute, 3, 0)
	sweep(30*time.Minute, 3, 1)
}
