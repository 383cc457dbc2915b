package member

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/consensus/sealed"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/rpc/wire"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// voterOf returns the server of a member that leads a group of its own, and the box of its keyring.
func voterOf(t *testing.T, eligible bool) (Server, *sealed.Box) {
	t.Helper()
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
	ring, err := keyring.Open(&memkeys.Store{})
	if err != nil {
		t.Fatal(err)
	}
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
	s := New(Config{ID: "me", Eligible: eligible, Keyring: ring, Logger: slog.New(slog.DiscardHandler)})
	terms, err := leader.New(leader.Config{Group: r.Group, Duties: func(uint64) []leader.Duty { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	s.member.Store(&Member{Replica: r, cfg: &s.cfg, terms: terms, stores: stores, resealed: make(chan struct{}, 1)})
	return Server{Supervisor: s}, sealed.NewBox(r.Machine, r.Propose, ring)
}

// from returns the context of a call by an agent; "" is a connection without an identity.
func from(t *testing.T, agent string) context.Context {
	return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: wire.PeerInfo{ID: agent}})
}

func TestKeyringPut(t *testing.T) {
	s, box := voterOf(t, true)
	key := keyring.NewKey(1)
	request := func(k keyring.Key) *pb.KeyringPutRequest {
		return &pb.KeyringPutRequest{Active: k.Number, Keys: []*pb.MeshKey{{Number: k.Number, Secret: k.Secret[:]}}}
	}
	put := func(what, agent string, r *pb.KeyringPutRequest, want codes.Code) {
		t.Helper()
		if _, err := s.KeyringPut(from(t, agent), r); status.Code(err) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	put("another agent", "other", request(key), codes.PermissionDenied)
	put("half a key", "me", &pb.KeyringPutRequest{Active: 1, Keys: []*pb.MeshKey{{Number: 1, Secret: key.Secret[:16]}}}, codes.InvalidArgument)
	put("an active key that is not there", "me", &pb.KeyringPutRequest{Active: 2, Keys: request(key).Keys}, codes.Internal)
	if n := len(s.Supervisor.cfg.Keyring.Set().Keys); n > 0 {
		t.Fatalf("%d keys were written", n)
	}
	put("the leader", "me", request(key), codes.OK)
	put("the leader, without an identity", "", request(keyring.NewKey(1)), codes.OK)
	put("the leader, with the first key again", "me", request(key), codes.OK)
	sealedCA, err := s.Supervisor.cfg.Keyring.Seal(keyring.PurposeCA("m"), []byte("ca"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Supervisor.Member().Propose(t.Context(), &pb.Command{Change: &pb.Command_FoundMesh{FoundMesh: &pb.FoundMesh{
		Mesh: "m", SealedCa: sealedCA, First: &record.AgentIdentity{Agent: "me"}}}}); err != nil {
		t.Fatal(err)
	}
	put("another key in the place of the CA's", "me", request(keyring.NewKey(1)), codes.FailedPrecondition)
	put("the CA's key again", "me", request(key), codes.OK)
	if err := box.MakeMeshKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	put("another key in the place of the one in use", "me", request(keyring.NewKey(1)), codes.FailedPrecondition)
	put("a further key", "me", request(keyring.NewKey(2)), codes.OK)
	if got, err := s.Supervisor.cfg.Keyring.Key(1); err != nil || !got.Same(key) {
		t.Error("the key in use is another one", err)
	}
	st, err := s.Status(from(t, "other"), &pb.StatusRequest{})
	if err != nil || len(st.Keys) != 2 || string(st.Keys[0].Print) != string(key.Print()) {
		t.Error(st.GetKeys(), err)
	}

	outside, _ := voterOf(t, false)
	if _, err := outside.KeyringPut(from(t, "me"), request(key)); status.Code(err) != codes.FailedPrecondition {
		t.Error("an agent that is not eligible:", err)
	}
}

// TestEraseKeys has a member erase an old key. It keeps the key as long as a content of a plugin resource needs it, but encrypts with the new one.
func TestEraseKeys(t *testing.T) {
	s, _ := voterOf(t, true)
	ring := s.Supervisor.cfg.Keyring
	if err := ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1), keyring.NewKey(2)}}); err != nil {
		t.Fatal(err)
	}
	left := 2
	unreadable := errors.New("the content cannot be read")
	s.Supervisor.cfg.ResourcesFollowed = func() (bool, error) {
		if ring.Set().Active != 2 {
			t.Error("contents may still be encrypted with the old key")
		}
		left--
		switch left {
		case 1:
			return false, unreadable
		case 0:
			return false, nil
		}
		return true, nil
	}
	for _, want := range []struct {
		code    codes.Code
		pending bool
		keys    int
	}{{codes.FailedPrecondition, false, 2}, {codes.OK, true, 2}, {codes.OK, false, 1}} {
		r, err := s.KeyringPut(from(t, "me"), &pb.KeyringPutRequest{Active: 2, Retired: []uint32{1}})
		if got := ring.Set(); status.Code(err) != want.code || r.GetPending() != want.pending || len(got.Keys) != want.keys || got.Active != 2 {
			t.Errorf("want %v: %v, %v, %d keys", want, r, err, len(got.Keys))
		}
	}
}

// TestKeyringPutOfPassphrase writes keys into the keyring of a newcomer that needs a passphrase. It takes over that of the leader's keyring.
func TestKeyringPutOfPassphrase(t *testing.T) {
	leaders := keyring.WithPassphrase(filepath.Join(t.TempDir(), "keyring"))
	if err := leaders.Change([]byte("correct horse battery")); err != nil {
		t.Fatal(err)
	}
	s, _ := voterOf(t, true)
	dir := filepath.Join(t.TempDir(), "keyring")
	ring, err := keyring.Open(keyring.WithPassphrase(dir))
	if err != nil {
		t.Fatal(err)
	}
	s.Supervisor.cfg.Keyring = ring
	key := keyring.NewKey(1)
	r := &pb.KeyringPutRequest{Active: 1, Keys: []*pb.MeshKey{{Number: 1, Secret: key.Secret[:]}}}
	for _, r.PublicHalf = range []string{"", "half"} {
		if _, err := s.KeyringPut(from(t, "me"), r); err == nil || len(ring.Set().Keys) > 0 {
			t.Errorf("with %q: %v", r.PublicHalf, err)
		}
	}
	r.PublicHalf = leaders.PublicHalf()
	if _, err := s.KeyringPut(from(t, "me"), r); err != nil {
		t.Fatal(err)
	}
	again := keyring.WithPassphrase(dir)
	if _, err := again.Load(); !errors.Is(err, keyring.ErrSealed) {
		t.Error("it is not locked:", err)
	}
	if err := again.Unlock([]byte("correct horse battery")); err != nil {
		t.Error(err)
	}
}
