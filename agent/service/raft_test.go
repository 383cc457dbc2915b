package service

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// TestArchiveAsStream: an archive that is written and read as a stream restores the state. One that
// is damaged anywhere is refused, and no goroutine stays.
func TestArchiveAsStream(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, Commands: []*pb.Command{
		{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(model.Tenant{Name: "one"})}}},
		{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s", Agent: "a", Record: logtest.Agent(model.Agent{ID: "a", Name: "a"})}}},
		{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "r", Agent: "b", Record: logtest.Agent(model.Agent{ID: "b", Name: "b"})}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: 7, Data: b})
	var out bytes.Buffer
	if err := withState(m.View(), func(size int64, in io.Reader) error {
		return archive.Write(&out, archive.Meta{Index: 7, Size: size, TakenAt: time.Now()}, in)
	}); err != nil {
		t.Fatal(err)
	}
	b, err = proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, Commands: []*pb.Command{
		{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "b"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: 8, Data: b})
	present := m.View()
	v, _, sig, err := stateOf(bytes.NewReader(out.Bytes()), present, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := trusted(nil, present, sig, "", false); err == nil || trusted(nil, present, sig, "", true) != nil {
		t.Error("an archive without a signature:", err)
	}
	agents := v.Agents()
	if _, ok := v.Tenant("one"); !ok || v.Index() != 7 || len(v.Sessions()) > 0 || len(agents) != 1 || agents[0].ID != "a" || agents[0].Alive {
		t.Errorf("index %d, sessions %v, agents %+v", v.Index(), v.Sessions(), agents)
	}
	for n := 0; n < out.Len(); n += 13 {
		if _, _, _, err := stateOf(bytes.NewReader(out.Bytes()[:n]), present, nil); err == nil {
			t.Fatalf("an archive that was cut after %d of %d bytes was taken", n, out.Len())
		}
	}
	if _, _, _, err := stateOf(io.MultiReader(bytes.NewReader(out.Bytes()), bytes.NewReader([]byte{1})), present, nil); err == nil {
		t.Error("an archive with something behind it was taken")
	}
	broken := errors.New("the log is full")
	if err := withState(m.View(), func(int64, io.Reader) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}
