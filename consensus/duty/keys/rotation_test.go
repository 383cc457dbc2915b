package keys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// begin begins a rotation of the mesh key.
func (g *group) begin(number uint32, full bool) error {
	answers, err := g.propose(g.t.Context(), &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
		Kind: record.RotationKind_ROTATION_KIND_KEYRING, Number: number, Next: record.RotationPhase_ROTATION_PHASE_BEGUN, Full: full,
	}}})
	if err != nil {
		return err
	}
	return answers[0].Err
}

// put writes values of a tenant.
func (g *group) put(tenant string, ids ...string) {
	g.t.Helper()
	for _, id := range ids {
		v, err := g.c.Sealer.Seal(g.t.Context(), tenant, id, 1, []byte("canary "+id))
		if err != nil {
			g.t.Fatal(err)
		}
		answers, err := g.propose(g.t.Context(), &pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{
			Tenant: tenant, Values: []*pb.SealedValue{v}}}})
		if err != nil || answers[0].Err != nil {
			g.t.Fatal(err, answers)
		}
	}
}

// opens counts the values that a keyring opens, of a tenant and of the mesh.
func (g *group) opens(r *keyring.Ring) (n int) {
	v := g.View()
	box := sealed.NewBox(g.Machine, g.propose, r)
	for _, tenant := range []string{"", "t"} {
		for i := range 9 {
			id := fmt.Sprint("v", i)
			row, ok := v.Sealed(tenant, id, 1)
			if !ok {
				continue
			}
			if got, err := box.Open(v.SealedView, row); err == nil && string(got) == "canary "+id {
				n++
			}
		}
	}
	return n
}

// found writes an identity of the mesh, whose keys are encrypted with the mesh key.
func (g *group) found() {
	g.t.Helper()
	ring := g.rings["a"]
	ca, err := ring.Seal(keyring.PurposeCA("m"), []byte("canary ca"))
	if err != nil {
		g.t.Fatal(err)
	}
	gossip, err := ring.Seal(keyring.PurposeGossip("m"), []byte("canary gossip"))
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.propose(g.t.Context(), &pb.Command{Change: &pb.Command_FoundMesh{FoundMesh: &pb.FoundMesh{
		Mesh: "m", SealedCa: ca, SealedGossip: gossip, First: &record.AgentIdentity{Agent: "a"}}}}); err != nil {
		g.t.Fatal(err)
	}
}

// dump returns a snapshot of the state.
func (g *group) dump() []byte {
	var out bytes.Buffer
	if err := g.View().Write(&out); err != nil {
		g.t.Fatal(err)
	}
	return out.Bytes()
}

var errCrash = errors.New("the leader has stopped")

// TestRotate rotates the mesh key while each leader stops after it has committed one entry, or after it has written into one keyring.
// In the end all voters have the new key only, and the old keyring opens nothing.
func TestRotate(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, stop := range []string{"never", "after entries", "before entries", "after keyrings"} {
			t.Run(fmt.Sprint("full ", full, ", leaders stop ", stop), func(t *testing.T) {
				g := newGroup(t, state.FeatureLevel)
				if err := g.c.round(t.Context()); err != nil {
					t.Fatal(err)
				}
				g.found()
				g.put("t", "v1", "v2", "v3")
				g.put("", "v1")
				stolen, err := keyring.Open(copied(g.rings["a"]))
				if err != nil {
					t.Fatal(err)
				}
				before := g.dump()
				if n := g.opens(stolen); n != 4 {
					t.Fatalf("the keyring opens %d values of 4", n)
				}
				if err := g.begin(1, full); err != nil {
					t.Fatal(err)
				}
				if err := g.begin(2, full); !errors.Is(err, problem.Conflict) {
					t.Error("two rotations at once:", err)
				}
				terms := 0
				for {
					if _, ok := g.c.rotation(); !ok {
						break
					}
					if terms++; terms > 60 {
						t.Fatal("the rotation does not end:", g.View().Rotations())
					}
					g.term([]string{"a", "b", "c"}[terms%3])
					left := 1
					fails := func() error {
						if left--; left < 0 {
							return errCrash
						}
						return nil
					}
					cfg := &g.c.cfg
					propose, put, retire := cfg.Propose, cfg.Put, cfg.Retire
					switch stop {
					case "after entries", "before entries":
						cfg.Propose = func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error) {
							if stop == "before entries" {
								if err := fails(); err != nil {
									return nil, err
								}
								return propose(ctx, commands...)
							}
							out, err := propose(ctx, commands...)
							return out, errors.Join(err, errCrash)
						}
						cfg.Box = sealed.NewBox(g.Machine, cfg.Propose, cfg.Ring)
					case "after keyrings":
						cfg.Put = func(ctx context.Context, id string, s keyring.Set) error {
							return errors.Join(fails(), put(ctx, id, s))
						}
						cfg.Retire = func(ctx context.Context, id string, active uint32, keys []uint32, index uint64) (bool, error) {
							if err := fails(); err != nil {
								return false, err
							}
							return retire(ctx, id, active, keys, index)
						}
					}
					err := g.c.round(t.Context())
					if err != nil && !errors.Is(err, errCrash) {
						t.Fatal(err)
					}
					if n := g.opens(g.rings[cfg.ID]); n != 4+len(g.written) {
						t.Fatalf("the leader opens %d values of %d in %v", n, 4+len(g.written), g.View().Rotations())
					}
					if len(g.written) < 5 {
						g.term(cfg.ID) // the next value is written by a leader that does not stop
						id := fmt.Sprint("v", 4+len(g.written))
						g.written = append(g.written, id)
						g.put("t", id)
					}
				}
				t.Logf("%d terms", terms)
				r, _ := g.View().Rotation(roster.KindKeyring)
				if r.Number != 1 || r.MeshKey != 2 || r.Full != full || r.Actor != "ann" || len(r.Behind) > 0 {
					t.Errorf("%+v", r)
				}
				signers := 1
				if full {
					signers = 2
				}
				if chain := g.View().SigningKeys(); len(chain) != signers || chain.Check() != nil {
					t.Errorf("signing keys: %+v, not %d: %v", chain, signers, chain.Check())
				}
				for id, ring := range g.rings {
					if s := ring.Set(); len(s.Keys) != 1 || s.Active != 2 || g.opens(ring) != 4+len(g.written) {
						t.Errorf("%s has %v and opens %d values", id, s, g.opens(ring))
					}
					m := g.View().MeshIdentity()
					ca, err1 := ring.Open(keyring.PurposeCA("m"), m.SealedCA)
					gossip, err2 := ring.Open(keyring.PurposeGossip("m"), m.SealedGossip)
					if string(ca) != "canary ca" || string(gossip) != "canary gossip" {
						t.Error(id, "does not open the keys of the mesh:", err1, err2)
					}
				}
				if n := g.opens(stolen); n > 0 {
					t.Errorf("the old keyring opens %d values", n)
				}
				if _, err := stolen.Open(keyring.PurposeCA("m"), g.View().MeshIdentity().SealedCA); !errors.Is(err, keyring.ErrNoKey) {
					t.Error("the old keyring opens the key of the CA:", err)
				}
				for _, k := range g.View().DataKeys() {
					if full && k.Number != 2 {
						t.Errorf("tenant %q has data key %d", k.Tenant, k.Number)
					}
				}
				// With the data keys of the old snapshot, the old keyring opens what a plain rotation left as it was, and nothing else.
				m, err := state.New(state.Config{})
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Restore(nopCloser{bytes.NewReader(before)}); err != nil {
					t.Fatal(err)
				}
				box := sealed.NewBox(m, g.propose, stolen)
				row, _ := g.View().Sealed("t", "v1", 1)
				if _, err := box.Open(m.View().SealedView, row); (err != nil) != full {
					t.Errorf("a copy of the old keyring and of an old snapshot opens a value: %v", err)
				}
				g.term("b")
				if err := g.begin(2, false); err != nil {
					t.Error("the next rotation:", err)
				}
				for range 3 {
					if err := g.c.round(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if s := g.rings["c"].Set(); len(s.Keys) != 1 || s.Active != 3 {
					t.Error("after another rotation", s)
				}
			})
		}
	}
}

type nopCloser struct{ *bytes.Reader }

func (nopCloser) Close() error { return nil }

// TestRotateUnreadable has damaged values, which cannot be decrypted. A full rotation names them, encrypts all others again, and ends.
func TestRotateUnreadable(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	if err := g.c.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.put("t", "v1", "v3")
	g.put("", "v1")
	damaged := []string{"v0-damaged", "v2-damaged"}
	for _, id := range damaged {
		answers, err := g.propose(t.Context(), &pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{Tenant: "t",
			Values: []*pb.SealedValue{{Id: id, Version: 1, Sealed: []byte("\x00\x00\x00\x01canary")}}}}})
		if err != nil || answers[0].Err != nil {
			t.Fatal(err, answers)
		}
	}
	if err := g.begin(1, true); err != nil {
		t.Fatal(err)
	}
	err := g.c.round(t.Context())
	for _, id := range damaged {
		if err == nil || strings.Count(err.Error(), id) != 1 {
			t.Errorf("value %s is not named once: %v", id, err)
		}
	}
	if strings.Contains(fmt.Sprint(err), "canary") {
		t.Error("the error has a value:", err)
	}
	for range 2 {
		if err := g.c.round(t.Context()); err != nil {
			t.Error("after the values were named:", err)
		}
	}
	if r, _ := g.View().Rotation(roster.KindKeyring); r.Phase != roster.RotationDone {
		t.Errorf("the rotation is in phase %q", r.Phase)
	}
	for id, ring := range g.rings {
		if s := ring.Set(); len(s.Keys) != 1 || s.Active != 2 || g.opens(ring) != 3 {
			t.Errorf("%s has %v and opens %d values", id, s, g.opens(ring))
		}
	}
	for _, id := range []string{"v1", "v3"} {
		if r, _ := g.View().Sealed("t", id, 1); r.DataKeyNumber() != 2 {
			t.Errorf("value %s has data key %d", id, r.DataKeyNumber())
		}
	}
}

// TestRotateClear has a secret in the clear, from before secrets were encrypted, when a full rotation begins. In the end it is encrypted with
// the new keys.
func TestRotateClear(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	if err := g.c.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers, err := g.propose(t.Context(), &pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Put{Put: &pb.PutSetting{Kind: pb.SettingKind_SETTING_KIND_SECRET, Name: "s",
			Order: pb.SettingOrder_SETTING_ORDER_PUT, Value: &pb.PutSetting_Secret{Secret: []byte("canary-clear")}}}}}})
	if err != nil || answers[0].Err != nil {
		t.Fatal(err, answers)
	}
	if !bytes.Contains(g.dump(), []byte("canary-clear")) {
		t.Fatal("the secret is not in the clear")
	}
	if err := g.begin(1, true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := g.c.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r, _ := g.View().Rotation(roster.KindKeyring); r.Phase != roster.RotationDone {
		t.Errorf("the rotation is in phase %q", r.Phase)
	}
	if bytes.Contains(g.dump(), []byte("canary-clear")) {
		t.Error("the secret is in the clear after the rotation")
	}
	s, _ := g.View().Secret("t", "s")
	row, ok := g.View().Sealed("t", s.ID, s.Version)
	latest, _ := g.View().DataKey("t")
	if !ok || row.DataKeyNumber() != latest.Number || latest.MeshKey != 2 {
		t.Errorf("the secret has data key %d of %d, which mesh key %d encrypts", row.DataKeyNumber(), latest.Number, latest.MeshKey)
	}
	if got, err := g.c.cfg.Box.Open(g.View().SealedView, row); err != nil || string(got) != "canary-clear" {
		t.Error("the secret cannot be read:", err)
	}
}

// TestRotateWaits rotates while a voter does not answer: the key that it has stays in use until it has the new one.
func TestRotateWaits(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	round := func(phase string, behind ...string) {
		t.Helper()
		if err := g.c.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r, _ := g.View().Rotation(roster.KindKeyring); r.Phase != phase || strings.Join(r.Behind, " ") != strings.Join(behind, " ") {
			t.Fatalf("phase %q, behind are %v", r.Phase, r.Behind)
		}
	}
	round("")
	g.put("t", "v1")
	if err := g.begin(1, false); err != nil {
		t.Fatal(err)
	}
	away := g.rings["c"]
	delete(g.rings, "c")
	round(roster.RotationSpread, "c")
	index := g.View().Index()
	round(roster.RotationSpread, "c")
	if g.View().Index() != index {
		t.Error("a round in which nothing happened has written something")
	}
	if n, _ := g.View().ActiveMeshKey(); n != 1 {
		t.Error("the active key is", n)
	}
	g.rings["c"] = away
	g.keeps["c"] = true
	round(roster.RotationRetire, "c")
	if len(g.rings["b"].Set().Keys) != 1 || len(away.Set().Keys) != 2 {
		t.Error(g.rings["b"].Set(), away.Set())
	}
	delete(g.keeps, "c")
	round(roster.RotationDone)
	if s := away.Set(); len(s.Keys) != 1 || s.Active != 2 {
		t.Error(s)
	}
}
