package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// house has a machine with clusters, and a janitor over it.
type house struct {
	t      *testing.T
	m      *state.Machine
	index  uint64
	now    time.Time
	pruned []*pb.Prune
	fault  error
	last   int // number of the latest cluster
}

func newHouse(t *testing.T) *house {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, m: m, now: time.UnixMilli(1_750_000_000_000)}
	h.apply(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "t"}}}})
	return h
}

func (h *house) janitor(keep janitor.Retention) *janitor.Janitor {
	return janitor.New(janitor.Config{Machine: h.m, Logger: slog.New(slog.DiscardHandler), Retention: keep, Propose: h.propose,
		Delete: func(context.Context, *model.Cluster) error { return nil }})
}

func (h *house) propose(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
	if h.fault != nil {
		return nil, h.fault
	}
	for _, c := range cs {
		h.pruned = append(h.pruned, c.GetPrune())
	}
	h.apply(cs...)
	return make([]state.Answer, len(cs)), nil
}

func (h *house) apply(cs ...*pb.Command) {
	h.t.Helper()
	h.index++
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: h.now.UnixMilli(),
		Commands: cs})
	if err != nil {
		h.t.Fatal(err)
	}
	groups, ok := h.m.Apply(&raft.Log{Type: raft.LogCommand, Index: h.index, Data: b}).([][]state.Answer)
	if !ok {
		h.t.Fatal("the entry was not applied")
	}
	for _, g := range groups {
		for _, a := range g {
			if a.Err != nil {
				h.t.Fatal(a.Err)
			}
		}
	}
}

// cluster makes a cluster with a number of operations. The last one deletes it if terminated.
func (h *house) cluster(operations int, terminated bool) string {
	h.t.Helper()
	g, err := plan.NewBuilder(nil, nil).Build()
	if err != nil {
		h.t.Fatal(err)
	}
	h.last++
	id := model.NewClusterID(h.last)
	for i := 1; i <= operations; i++ {
		op := model.Operation{ID: string(id.Operation(i)), Tenant: "t", Cluster: string(id), Type: model.OpConfigure}
		cl := model.Cluster{ID: string(id), Tenant: "t", Name: string(id), Operation: op.ID, Operations: i}
		s := &pb.StartOperation{Graph: g.Encode()}
		switch have, ok := h.m.View().Cluster("t", string(id)); {
		case !ok:
			op.Type = model.OpCreate
		case i == operations && terminated:
			op.Type = model.OpDelete
			fallthrough
		default:
			s.ClusterVersion = have.Version
		}
		s.Operation, s.Cluster = logtest.Operation(op), logtest.Cluster(cl)
		h.apply(&pb.Command{Tenant: "t", Actor: "ann", RequestId: op.ID, Change: &pb.Command_StartOperation{StartOperation: s}})
	}
	return string(id)
}

func (h *house) sweep(j *janitor.Janitor) model.Sweep {
	h.t.Helper()
	if err := j.Sweep(h.t.Context(), h.now); err != nil && !errors.Is(err, h.fault) {
		h.t.Fatal(err)
	}
	return j.Last()
}

// want expects these rows in the state.
func (h *house) want(clusters, operations, requests int) {
	h.t.Helper()
	v := h.m.View()
	got := []int{len(v.Clusters("")), len(v.Operations("", "")), v.RequestsBefore(1 << 62)}
	if want := []int{clusters, operations, requests}; fmt.Sprint(got) != fmt.Sprint(want) {
		h.t.Errorf("%v clusters, operations and request ids, not %v", got, want)
	}
}

// TestRetentionByAge: each kind of row has its own time.
func TestRetentionByAge(t *testing.T) {
	h := newHouse(t)
	j := h.janitor(janitor.Retention{Clusters: 2 * time.Hour, Operations: 4 * time.Hour, Requests: 6 * time.Hour})
	h.cluster(3, true)
	living := h.cluster(2, false)
	h.now = h.now.Add(time.Hour)
	h.cluster(2, true)
	h.sweep(j)
	h.want(3, 7, 7)
	if len(h.pruned) > 0 {
		t.Errorf("nothing is due, and there are %d entries", len(h.pruned))
	}
	h.now = h.now.Add(90 * time.Minute)
	if got, want := h.sweep(j), (model.Sweep{At: h.now.UnixMilli(), Clusters: 1}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
	h.want(2, 4, 7)
	h.now = h.now.Add(90 * time.Minute) // the cluster from an hour later is due too
	h.sweep(j)
	h.want(1, 2, 7)
	h.now = h.now.Add(2 * time.Hour)
	if got := h.sweep(j); got.Operations != 2 || got.Requests != 0 {
		t.Errorf("%+v", got)
	}
	h.want(1, 0, 7)
	h.now = h.now.Add(2 * time.Hour)
	if got := h.sweep(j); got.Requests != 7 {
		t.Errorf("%+v", got)
	}
	h.want(1, 0, 0)
	if cl, ok := h.m.View().Cluster("t", living); !ok || cl.Status != model.ClusterActive {
		t.Errorf("the living cluster: %+v", cl)
	}
}

// TestRetentionByCount checks that the oldest clusters are removed, by entries of at most a thousand
// rows. After an entry has failed, the next sweep removes the rest.
func TestRetentionByCount(t *testing.T) {
	h := newHouse(t)
	j := h.janitor(janitor.Retention{ClusterCount: 10, Requests: time.Hour})
	for range 400 {
		h.cluster(2, true)
		h.now = h.now.Add(time.Second)
	}
	large := h.cluster(1100, true)
	h.cluster(1, false)
	for range 10 {
		h.now = h.now.Add(time.Second)
		h.cluster(2, true)
	}
	h.fault = errors.New("no leader")
	if got := h.sweep(j); got.Fault != "no leader" || got.Clusters != 0 {
		t.Errorf("%+v", got)
	}
	h.fault = nil
	h.now = h.now.Add(2 * time.Hour)
	h.sweep(j)
	h.want(11, 21, 0)
	for i, p := range h.pruned {
		n := len(p.Operations)
		for _, c := range p.Clusters {
			if n += 1 + 2; c.Id == large {
				n += 999 - 2 // the others of its operations went before it
			}
		}
		if n > 1000 || n == 0 && p.RequestsBeforeMs == 0 {
			t.Errorf("entry %d has %d rows", i, n)
		}
	}
	if last := h.m.View().LastCluster(); last != h.last {
		t.Errorf("the last number is %d, not %d", last, h.last)
	}
	before := len(h.pruned)
	if got := h.sweep(j); got.Clusters+got.Operations+got.Requests > 0 || len(h.pruned) > before {
		t.Errorf("a second sweep removed %+v", got)
	}
}

// TestAbandonedParts checks that the leader drops the parts of a large command if no further parts arrive.
func TestAbandonedParts(t *testing.T) {
	h := newHouse(t)
	j := h.janitor(janitor.Retention{})
	part := func(id string, n uint32) {
		h.apply(&pb.Command{Tenant: "t", Change: &pb.Command_Part{Part: &pb.Part{Id: id, Number: n, Total: 9, Data: []byte("x")}}})
	}
	part("still", 0)
	for i := range uint32(8) {
		part("slow", i)
		h.sweep(j)
		want := 1
		if i < 2 {
			want = 2
		}
		if got := h.m.View().Parts(); len(got) != want || got["slow"] != int(i)+1 {
			t.Errorf("after %d pauses: %v", i, got)
		}
		h.now = h.now.Add(6 * time.Minute)
	}
}

// TestShortTerms checks that a term that ends before its first tick has swept too.
func TestShortTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.now = time.Now()
		h.cluster(2, true)
		time.Sleep(2 * time.Hour)
		h.now = time.Now()
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		j := h.janitor(janitor.Retention{Clusters: time.Hour})
		go func() { ended <- j.Run(ctx) }()
		synctest.Wait()
		end()
		<-ended
		h.want(0, 0, 2)
	})
}
