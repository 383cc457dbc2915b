package replica_test

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/engine/audit"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// TestOldVoters checks that the audit log says where requests come from once all voters understand it. Others would write another log.
func TestOldVoters(t *testing.T) {
	log := raft.NewInmemStore()
	stores, err := logstore.FromParts(log, log, logstore.NewMemorySnapshots(2), logstore.Options{Deadline: -1})
	if err != nil {
		t.Fatal(err)
	}
	addr, transport := raft.NewInmemTransport("")
	r, err := replica.New(replica.Config{
		ID: "me", Transport: transport, Stores: stores, Timing: raftgroup.Timing{HeartbeatTimeout: 10 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Group.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := r.Group.Bootstrap(t.Context(), []raftgroup.Server{{ID: "me", Addr: string(addr), Voter: true}}); err != nil {
		t.Fatal(err)
	}
	for {
		changed := r.Group.LeaderChanged()
		if id, _ := r.Group.Leader(); id == "me" {
			break
		}
		<-changed
	}
	propose := func(c *pb.Command) {
		t.Helper()
		if done, err := r.Propose(t.Context(), c); err != nil || done[0].Err != nil {
			t.Fatal(done, err)
		}
	}
	for level, want := range []string{"192.0.2.1 a", " ", "192.0.2.1 a"} {
		if level > 0 {
			propose(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: uint32(level), Mesh: "m"}}})
		}
		propose(&pb.Command{Actor: "ann", Source: "192.0.2.1", Agent: "a", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{
			Tenant: &record.Tenant{Name: "t", Description: want, MaxNodes: int64(level) + 1}}}})
		got := ""
		err := r.Machine.View().Audit().Each(&audit.Filter{}, true, audit.Cursor{}, func(r audit.Record) bool {
			got = r.Source + " " + r.Agent
			return false
		})
		if err != nil || got != want {
			t.Errorf("level %d: from %q, %v", level, got, err)
		}
	}
}
