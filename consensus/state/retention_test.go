package state_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// history applies entries to a machine, one second apart.
type history struct {
	t     testing.TB
	m     *state.Machine
	index uint64
}

func newHistory(t testing.TB) *history {
	h := &history{t: t, m: fresh(t)}
	h.do(tenant("one", 0, 0), tenant("two", 0, 0), session("s1", "a1"))
	return h
}

// do applies commands in one entry. None may be refused.
func (h *history) do(cs ...*pb.Command) {
	h.t.Helper()
	h.index++
	for i, a := range do(h.t, h.m, entry(h.index, int64(h.index)*1000, cs...)) {
		if a.Err != nil {
			h.t.Fatalf("entry %d, command %d: %v", h.index, i, a.Err)
		}
	}
}

// create creates a cluster of two nodes, up to a failure that leaves everything behind: values, health, history.
func (h *history) create(tenant, id string) {
	h.t.Helper()
	op := id + "-001"
	h.do(start(tenant, id, "name-"+id, 2, "leave", "make "+id))
	h.do(lease(op, "s1", 1))
	fence := h.index
	h.do(&pb.Command{Change: &pb.Command_SaveValue{SaveValue: &pb.SaveValue{Operation: op, Task: 1, Fence: fence, Key: "k",
		Value: []byte("v")}}}, report(op, 1, fence, pb.Outcome_OUTCOME_SUCCEEDED, ""))
	n := h.m.View().Nodes(tenant, id)[0]
	h.do(&pb.Command{Change: &pb.Command_ReportHealth{ReportHealth: &pb.ReportHealth{Changes: []*pb.HealthChange{{
		Tenant: tenant, Node: n.ID, Version: n.Version, Service: "db", Healthy: true}}}}})
	abort := order(op, "abort")
	abort.Tenant = tenant
	h.do(abort)
}

// terminate deletes a cluster.
func (h *history) terminate(tenant, id string) {
	h.t.Helper()
	have, ok := h.m.View().Cluster(tenant, id)
	if !ok {
		h.t.Fatalf("there is no cluster %s", id)
	}
	b := plan.NewBuilder(nil, nil)
	g, err := b.Build()
	if err != nil {
		h.t.Fatal(err)
	}
	cl := *have
	cl.Operation, cl.Operations = id+"-002", 2
	h.do(&pb.Command{Tenant: tenant, Actor: "ann", RequestId: "end " + id, Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
		Operation: logtest.Operation(model.Operation{ID: cl.Operation, Tenant: tenant, Cluster: id, Type: model.OpDelete}),
		Cluster:   logtest.Cluster(cl), ClusterVersion: have.Version, Graph: g.Encode()}}})
	if now, _ := h.m.View().Cluster(tenant, id); now == nil || now.Status != model.ClusterTerminated {
		h.t.Fatalf("%+v", now)
	}
}

// pruneCluster returns the removal of a cluster as it is now.
func (h *history) pruneCluster(tenant, id string) *pb.PruneCluster {
	h.t.Helper()
	cl, ok := h.m.View().Cluster(tenant, id)
	if !ok {
		h.t.Fatalf("there is no cluster %s", id)
	}
	return &pb.PruneCluster{Tenant: tenant, Id: id, Version: cl.Version}
}

func prune(clusters ...*pb.PruneCluster) *pb.Command {
	return &pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{Clusters: clusters}}}
}

// left returns the rows of the state that name a cluster, without request ids and the audit log.
func (h *history) left(id string) []string {
	h.t.Helper()
	var out []string
	for line := range strings.Lines(string(rows(h.t, dump(h.t, h.m), nil))) {
		if strings.Contains(line, id) && !strings.HasPrefix(line, `{"request"`) && !strings.HasPrefix(line, `{"audit"`) {
			out = append(out, line)
		}
	}
	return out
}

// TestPrunedClusters checks that a terminated cluster is removed with all records that refer to it,
// and that no other cluster is removed, even if the leader orders it.
func TestPrunedClusters(t *testing.T) {
	h := newHistory(t)
	h.create("one", "00000001")
	h.create("one", "00000002")
	h.create("two", "00000003")
	if got := len(h.left("00000001")); got < 6 {
		t.Fatalf("cluster 1 has only %d rows", got)
	}
	early := h.pruneCluster("one", "00000001")
	h.do(prune(early, h.pruneCluster("one", "00000002"))) // neither is terminated
	h.terminate("one", "00000001")
	h.terminate("two", "00000003")
	late := h.pruneCluster("one", "00000001")
	h.do(prune(early, &pb.PruneCluster{Tenant: "two", Id: late.Id, Version: late.Version}, &pb.PruneCluster{Tenant: "one", Id: "00000009"}))
	if _, ok := h.m.View().Cluster("one", "00000001"); !ok {
		t.Error("another version of cluster 1 was removed")
	}
	others := len(h.left("00000002")) + len(h.left("00000003"))
	seq := h.m.View().Audit().Stats().Head.Seq
	h.do(prune(late, h.pruneCluster("two", "00000003")))
	for _, id := range []string{"00000001", "00000003"} {
		if rows := h.left(id); len(rows) > 0 {
			t.Errorf("left of cluster %s:\n%s", id, strings.Join(rows, ""))
		}
		if v := h.m.NodesVersion(id); v != 0 {
			t.Errorf("the machine remembers the nodes of cluster %s", id)
		}
	}
	if now := len(h.left("00000002")); now == 0 || now >= others || h.m.NodesVersion("00000002") == 0 {
		t.Errorf("cluster 2 has %d rows", now)
	}
	got := records(t, h.m, seq)
	want := `cluster.pruned name-00000001 by coopr tenant=one cluster=00000001 says=its retention is over: {"operations":2,"status":"terminated"} → `
	if len(got) != 2 || got[0] != want {
		t.Errorf("audit: %q", got)
	}
	stories := 0
	_ = h.m.View().Audit().Each(&audit.Filter{Cluster: "00000001"}, false, audit.Cursor{}, func(audit.Record) bool { stories++; return true })
	if stories < 10 {
		t.Errorf("the audit log has only %d records of cluster 1", stories)
	}
	if rep := h.m.View().Audit().Verify(nil); !rep.OK {
		t.Errorf("%+v", rep.Bad)
	}
}

// TestStateStaysFlat: clusters that come, go and are pruned leave the state as large as it was.
func TestStateStaysFlat(t *testing.T) {
	h := newHistory(t)
	size := func() int {
		n := 0
		for line := range strings.Lines(string(rows(t, dump(t, h.m), nil))) {
			if !strings.HasPrefix(line, `{"audit"`) {
				n++
			}
		}
		return n
	}
	first := 0
	for i := range 50 {
		id := string(model.NewClusterID(i + 1))
		h.create("one", id)
		h.terminate("one", id)
		h.do(&pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{Clusters: []*pb.PruneCluster{h.pruneCluster("one", id)},
			RequestsBeforeMs: int64(h.index-1) * 1000, AuditKeep: 10}}})
		if i == 0 {
			first = size()
		}
	}
	if last := size(); last != first {
		t.Errorf("%d rows after the first cluster, %d after the last", first, last)
	}
	if n := h.m.View().LastCluster(); n != 50 {
		t.Errorf("the last number is %d", n)
	}
}

// TestClusterNumbers: the highest number outlives its cluster, the cluster's tenant and a restart.
func TestClusterNumbers(t *testing.T) {
	h := newHistory(t)
	last := func(want int) {
		t.Helper()
		if n := h.m.View().LastCluster(); n != want {
			t.Errorf("the last number is %d, not %d", n, want)
		}
	}
	last(0)
	for i := 1; i <= 4; i++ {
		id := string(model.NewClusterID(i))
		h.create("two", id)
		h.terminate("two", id)
	}
	last(4)
	h.do(prune(h.pruneCluster("two", "00000004"), h.pruneCluster("two", "00000003")))
	last(4)
	h.create("one", "00000006")
	last(6)
	h.do(&pb.Command{Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: "two"}}})
	h.terminate("one", "00000006")
	h.do(prune(h.pruneCluster("one", "00000006")))
	last(6)
	if rows := append(h.left("00000001"), h.left("00000006")...); len(rows) > 0 {
		t.Errorf("rows are left:\n%s", strings.Join(rows, ""))
	}
	again := fresh(t)
	if err := again.Restore(io.NopCloser(bytes.NewReader(dump(t, h.m)))); err != nil {
		t.Fatal(err)
	}
	h.m = again
	last(6)
	h.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 1, Mesh: "m"}}})
	last(6)
}

// TestPrunedRequests: one command removes at most a thousand request ids, the oldest first, and no young
// one.
func TestPrunedRequests(t *testing.T) {
	h := newHistory(t)
	for i := range 13 {
		var cs []*pb.Command
		for j := range 100 {
			c := tenant(fmt.Sprint("t", j), 0, 0)
			c.RequestId = fmt.Sprint(i, "/", j)
			cs = append(cs, c)
		}
		h.do(cs...)
	}
	before := int64(h.index) * 1000 // the time of the last hundred
	for _, want := range []int{1200, 200, 0, 0} {
		if have := h.m.View().RequestsBefore(before); have != want {
			t.Errorf("%d old request ids, not %d", have, want)
		}
		for id, known := range map[string]bool{"9/99": want == 1200, "10/0": want >= 200, "12/0": true} {
			if _, ok := h.m.View().Request(model.Caller{Actor: "root", Request: id}); ok != known {
				t.Errorf("with %d old ids, id %s: %v", want, id, ok)
			}
		}
		h.do(&pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{RequestsBeforeMs: before}}})
	}
}

// TestOrphansKeepTheTimeOfTheirFirstSight: an orphan has the time of the first of all searches in a
// row that found it. A state that is restored from an archive knows none.
func TestOrphansKeepTheTimeOfTheirFirstSight(t *testing.T) {
	c := newClinic(t)
	times := map[string]int64{}
	note := func(ids ...string) {
		t.Helper()
		n := &pb.NoteOrphans{}
		for _, id := range ids {
			n.Found = append(n.Found, &pb.FoundOrphan{Tenant: "t", ProviderType: "cloud", Id: id})
		}
		if a := c.do(&pb.Command{Change: &pb.Command_NoteOrphans{NoteOrphans: n}}); a.Err != nil {
			t.Fatal(a.Err)
		}
		clear(times)
		for _, f := range c.m.View().Orphans().Found {
			times[f.ID] = f.Since
		}
		if at := c.m.View().Orphans().At; at != c.now || len(times) != len(ids) {
			t.Errorf("the search of %d is recorded for %d, with %v", c.now, at, times)
		}
	}
	note("a")
	first := c.now
	note("b", "a")
	if times["a"] != first || times["b"] != c.now {
		t.Errorf("since %v", times)
	}
	note("b")
	note("a", "b")
	if times["a"] != c.now || times["b"] != first+1 {
		t.Errorf("since %v", times)
	}
	v, err := state.Restored(bytes.NewReader(dump(t, c.m)), func(string) bool { return true }, time.UnixMilli(c.now), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o := v.Orphans(); o.At != 0 || len(o.Found) > 0 {
		t.Errorf("restored: %+v", o)
	}
}
