package session

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// TestReported has a worker report what it likes.
func TestReported(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, Commands: []*pb.Command{{
		Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "t"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: 1, Data: b})
	long := strings.Repeat("ä", 10_000)
	for _, x := range []struct {
		kind, tenant string
		want         bool
	}{
		{model.IncidentRefused, "t", true}, {model.IncidentTokenRefused, "", true}, {"resource.read", "t", true},
		{"agent.inspected", "t", true},
		{model.IncidentRefused, "other", false}, {model.IncidentLogin, "t", false}, {"tenant.deleted", "t", false},
		{"snapshot.restored", "", false}, {"a.refused", "t", false}, {"", "", false},
	} {
		i, ok := reported(m.View(), "w1", &pb.Incident{Type: x.kind, Tenant: x.tenant, Agent: "leader", Actor: long, Action: long, Object: long,
			Source: long, Request: long, Count: -1})
		if ok != x.want {
			t.Errorf("%+v: %v", x, ok)
		}
		if n := len(i.Actor + i.Action + i.Object + i.Source + i.Request); ok && (i.Agent != "w1" || i.Count != 1 || n > 4*200+500) {
			t.Errorf("%+v: by %s, %d, %d bytes", x, i.Agent, i.Count, n)
		}
	}
}
