package session

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/keyring"
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
		{"agent.inspected", "t", true}, {model.IncidentUnlocked, "", true}, {model.IncidentUnlockRefused, "", true},
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

// TestUnlocks checks what an agent reports of the passphrases that it was given: nothing of these themselves.
func TestUnlocks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keyring")
	of := func() *keyring.Passphrase {
		return keyring.Of(keyring.KindPassphrase, dir, keyring.Outside{}).(*keyring.Passphrase)
	}
	made := of()
	if err := errors.Join(made.Change([]byte("right horse battery")), made.Save(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}})); err != nil {
		t.Fatal(err)
	}
	p := of()
	if got := Unlocks(p, "a"); len(got) > 0 {
		t.Errorf("before anything: %v", got)
	}
	for range 2 {
		if err := p.Unlock([]byte("wrong horse battery")); !errors.Is(err, keyring.ErrPassphrase) {
			t.Fatal(err)
		}
	}
	if err := p.Unlock([]byte("right horse battery")); err != nil {
		t.Fatal(err)
	}
	got := Unlocks(p, "a")
	if len(got) != 2 || got[0].Type != model.IncidentUnlockRefused || got[0].Count != 2 || got[1].Type != model.IncidentUnlocked || got[1].Object != "a" {
		t.Errorf("it reports %v", got)
	}
	if strings.Contains(fmt.Sprint(got), "horse") {
		t.Error("it reports the passphrase")
	}
	if got := Unlocks(keyring.Of(keyring.KindFile, dir, keyring.Outside{}), "a"); len(got) > 0 {
		t.Errorf("a keyring without a passphrase: %v", got)
	}
}
