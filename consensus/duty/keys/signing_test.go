package keys

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/duty/heads"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// The mesh has one signing key after the first round, which every voter with its keys opens. The next key is signed by it.
func TestSigningKey(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	for range 2 {
		if err := g.c.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := g.View().SigningKeys()
	if len(first) != 1 {
		t.Fatal("signing keys:", first)
	}
	for _, id := range []string{"a", "b"} {
		box := sealed.NewBox(g.Machine, g.propose, g.rings[id])
		if s, err := box.Signer(g.View().SealedView); err != nil || string(signing.Public(1, s.Seed).Key) != string(first[0].Key) {
			t.Errorf("voter %s does not open the key: %v", id, err)
		}
	}
	put := func(change func(*pb.PutSigningKey)) error {
		next, err := g.c.cfg.Box.NextSigningKey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		change(next)
		answers, err := g.propose(t.Context(), &pb.Command{Change: &pb.Command_PutSigningKey{PutSigningKey: next}})
		if err != nil {
			t.Fatal(err)
		}
		return answers[0].Err
	}
	if err := put(func(k *pb.PutSigningKey) { k.Signature = nil }); !errors.Is(err, problem.Invalid) {
		t.Error("a key without the signature of the one before:", err)
	}
	if err := put(func(k *pb.PutSigningKey) { k.Number++ }); !errors.Is(err, problem.Stale) {
		t.Error("a key too far:", err)
	}
	if err := put(func(*pb.PutSigningKey) {}); err != nil {
		t.Error("the next key:", err)
	}
	if chain := g.View().SigningKeys(); len(chain) != 2 || chain.Check() != nil || !chain.Has(first[0]) {
		t.Error("the chain:", chain)
	}
}

// A mesh with voters of an older build has no signing key.
func TestNoSigningKeyBefore(t *testing.T) {
	g := newGroup(t, logformat.SealedLevel)
	g.level["b"] = logformat.SealedLevel
	_ = g.c.round(t.Context()) // the level cannot be raised
	if keys := g.View().SigningKeys(); len(keys) > 0 {
		t.Error("signing keys:", keys)
	}
}

// Each minute with changes ends with a signed head, and a minute without has none.
func TestSignedHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, state.FeatureLevel)
		if err := g.c.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := heads.New(heads.Config{Machine: g.Machine, Propose: g.propose, Box: g.c.cfg.Box, Logger: slog.New(slog.DiscardHandler)})
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- c.Run(ctx) }()
		verify := func(heads, after uint64) {
			t.Helper()
			rep := g.View().Audit().Verify(g.View().SigningKeys())
			if !rep.OK || rep.Heads != heads || rep.Head.Seq-rep.Signed != after {
				t.Errorf("%+v", rep)
			}
		}
		synctest.Wait()
		verify(1, 1)
		minutes(3)
		verify(1, 1)
		tenant(t, g, "u")
		minutes(2)
		verify(2, 1)
		tenant(t, g, "v")
		synctest.Wait()
		tenant(t, g, "w")
		synctest.Wait()
		verify(3, 2)
		minutes(2)
		verify(4, 1)
		stop()
		<-ended
	})
}

// minutes lets simulated time pass.
func minutes(n int) {
	time.Sleep(time.Duration(n) * time.Minute)
	synctest.Wait()
}

func tenant(t *testing.T, g *group, name string) {
	t.Helper()
	if _, err := g.propose(t.Context(), &pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{
		Tenant: &record.Tenant{Name: name}}}}); err != nil {
		t.Fatal(err)
	}
}
