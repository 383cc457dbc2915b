package tasks

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
)

// private opens every value as the private half of a key.
type private struct {
	opener
	der []byte
}

func (p *private) Open(view.SealedView, table.SealedRow) ([]byte, error) { return p.der, nil }

// TestTokenOfATask verifies the token of a task with the key that the state publishes. The task waits without a key, and fails without an
// issuer.
func TestTokenOfATask(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, signing.TaskKeyBits)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	const issuer = "https://mesh.example.com"
	b := NewBuilder(m, &private{der: der}, issuer)
	w := &operation.Work{Identity: &model.Identity{Audience: "vault", TTL: "10m"}, Subject: "service:web", Timeout: time.Hour}
	task := func() *pb.Task {
		return &pb.Task{Id: "00000001-001/0", Tenant: "t", Cluster: "00000001", Operation: "00000001-001", Node: "00000001-1000",
			Input: []byte(`{"taskId":"x"}`)}
	}
	if err := b.identify(m.View(), task(), w, 7); !errors.Is(err, keyring.ErrNoKey) {
		t.Error("without a key:", err)
	}
	entry, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, Commands: []*pb.Command{
		{Change: &pb.Command_PutTaskKey{PutTaskKey: &pb.PutTaskKey{Number: 1, Public: public, SignsMs: 1,
			Private: &pb.SealedValue{Id: table.TaskPrivateID(1), Version: 1, Sealed: []byte{0, 0, 0, 1}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: 1, Data: entry})
	if err := NewBuilder(m, &private{der: der}, "").identify(m.View(), task(), w, 7); err == nil || errors.Is(err, keyring.ErrNoKey) {
		t.Error("without an issuer:", err)
	}
	out := task()
	if err := b.identify(m.View(), out, w, 7); err != nil {
		t.Fatal(err)
	}
	var in model.TaskInput
	if err := json.Unmarshal(out.Input, &in); err != nil || in.TaskID != "x" || !slices.Equal(out.Secrets, []string{in.Identity}) {
		t.Fatalf("%s %v", out.Input, err)
	}
	published, err := m.View().TaskKeys().Latest().RSA()
	if err != nil {
		t.Fatal(err)
	}
	got, err := oidc.NewVerifier(issuer, &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{published}}, &oidc.Config{ClientID: "vault"}).
		Verify(t.Context(), in.Identity)
	if err != nil {
		t.Fatal(err)
	}
	var c signing.Claims
	if err := got.Claims(&c); err != nil || c.Subject != "coopr:t:service:web" || c.ID != "00000001-001/0/7" || c.Expires-c.Issued != 600 ||
		c.Cluster != "00000001" || c.Node != "00000001-1000" {
		t.Errorf("%+v %v", c, err)
	}
}
