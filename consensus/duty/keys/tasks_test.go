package keys

import (
	"crypto/rsa"
	"crypto/x509"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// A mesh that issues tokens of tasks has a key for them, which every voter opens, and the next one a day before that signs.
func TestTaskKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, state.FeatureLevel)
		round := func(want int) signing.TaskKeys {
			t.Helper()
			if err := g.c.round(t.Context()); err != nil {
				t.Fatal(err)
			}
			keys := g.View().TaskKeys()
			if len(keys) != want {
				t.Fatalf("%d keys, not %d", len(keys), want)
			}
			return keys
		}
		round(0) // it issues none
		g.c.cfg.Issues = true
		began := time.Now()
		first := round(1)[0]
		if first.Signs != began.UnixMilli() {
			t.Error("the first key signs from", time.UnixMilli(first.Signs))
		}
		for _, id := range []string{"a", "b", "c"} {
			g.opensTaskKey(id, first)
		}
		time.Sleep(taskKeyTime - signing.TaskKeyNotice - time.Millisecond)
		round(1)
		time.Sleep(time.Millisecond)
		second := round(2)[1]
		if at := time.UnixMilli(second.Signs); !at.Equal(began.Add(taskKeyTime)) {
			t.Error("the second key signs from", at)
		}
		g.opensTaskKey("a", second)
		round(2)

		// A full rotation replaces all keys, as a thief of the former keyring could sign with them.
		if err := g.c.commit(t.Context(), &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
			Kind: record.RotationKind_ROTATION_KIND_KEYRING, Number: 1, Full: true, Next: record.RotationPhase_ROTATION_PHASE_BEGUN,
		}}}); err != nil {
			t.Fatal(err)
		}
		round(1)
		third := round(1)[0]
		if third.Number != 3 || third.Signs != time.Now().UnixMilli() {
			t.Errorf("after a full rotation: %+v", third)
		}
		g.opensTaskKey("b", third)
	})
}

// opensTaskKey checks that a voter opens the private half of a key.
func (g *group) opensTaskKey(voter string, k signing.TaskKey) {
	g.t.Helper()
	row, ok := g.View().Sealed("", table.TaskPrivateID(k.Number), 1)
	if !ok {
		g.t.Fatalf("key %d has no private half", k.Number)
	}
	der, err := sealed.NewBox(g.Machine, g.propose, g.rings[voter]).Open(g.View().SealedView, row)
	if err != nil {
		g.t.Fatalf("voter %s: %v", voter, err)
	}
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		g.t.Fatal(err)
	}
	if public, err := k.RSA(); err != nil || !private.(*rsa.PrivateKey).PublicKey.Equal(public) {
		g.t.Errorf("voter %s opens another key than %d: %v", voter, k.Number, err)
	}
}

// A mesh with voters of an older build has no key for tokens of tasks.
func TestNoTaskKeyBefore(t *testing.T) {
	g := newGroup(t, logformat.SealedLevel)
	g.level["b"], g.c.cfg.Issues = logformat.SealedLevel, true
	_ = g.c.round(t.Context()) // the level cannot be raised
	if keys := g.View().TaskKeys(); len(keys) > 0 {
		t.Error("keys for tokens of tasks:", keys)
	}
}
