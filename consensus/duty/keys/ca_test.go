package keys

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// fakeCA makes CAs whose certificates are made of their keys.
type fakeCA struct{}

const caPrefix = "CA "

func (fakeCA) New() (cert, key []byte, err error) {
	key = make([]byte, 32)
	rand.Read(key)
	return fakeCert(key), key, nil
}

func fakeCert(key []byte) []byte { return append([]byte(caPrefix), key...) }

func (fakeCA) Bridge(oldCert, oldKey, cert, key []byte, _ time.Time) ([]byte, error) {
	if !bytes.Equal(oldCert, fakeCert(oldKey)) || !bytes.Equal(cert, fakeCert(key)) {
		return nil, errors.New("the keys are not those of the certificates")
	}
	return slices.Concat([]byte("bridge "), oldCert, cert), nil
}

// trust is what an agent has of the CAs.
type trust struct {
	cas    [][]byte
	issuer []byte // of its certificate
}

// TestRotateCA rotates the CA while leaders stop and agents follow one after the other. At all times all agents trust each other. Then the
// old CA is known by its bridge only, and its key is gone.
func TestRotateCA(t *testing.T) {
	for _, stop := range []string{"never", "after entries", "before entries"} {
		for _, noBridge := range []bool{false, true} {
			t.Run(fmt.Sprintf("leaders stop %s, no bridge %t", stop, noBridge), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { rotateCA(t, stop, noBridge) })
			})
		}
	}
}

func rotateCA(t *testing.T, stop string, noBridge bool) {
	g := newGroup(t, state.FeatureLevel)
	newAgents(g, "a", "b", "w")
	oldKey := bytes.Repeat([]byte{9}, 32)
	old := fakeCert(oldKey)
	if cas := g.View().MeshIdentity().CAs; len(cas) != 1 || !bytes.Equal(cas[0], old) {
		t.Fatalf("the CAs are %q", cas)
	}
	all := map[string]trust{}
	for _, id := range []string{"a", "b", "w"} {
		all[id] = trust{[][]byte{old}, old}
	}
	// follow has an agent take the CAs, and then a certificate of the one that signs.
	follow := func(id string) {
		t.Helper()
		m := g.View().MeshIdentity()
		r, _ := g.View().Rotation(roster.KindCA)
		all[id] = trust{m.CAs, m.CAs[0]}
		g.c.Followers.Hear("s"+id, id, 0, r.Index)
		for x, from := range all {
			for y, to := range all {
				if !slices.ContainsFunc(to.cas, func(ca []byte) bool { return bytes.Equal(ca, from.issuer) }) {
					t.Fatalf("%s does not trust %s, in %v", y, x, g.View().Rotations())
				}
			}
		}
	}
	begin := &pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{Kind: record.RotationKind_ROTATION_KIND_CA, Number: 1,
		Next: record.RotationPhase_ROTATION_PHASE_BEGUN, NoBridge: noBridge}}}
	if answers, err := g.propose(t.Context(), begin); err != nil || answers[0].Err != nil {
		t.Fatal(err, answers)
	}
	if err := g.begin(1, false); err != nil { // the mesh key rotates too
		t.Fatal(err)
	}
	for turns := 0; ; turns++ {
		r, _ := g.View().Rotation(roster.KindCA)
		ring, _ := g.View().Rotation(roster.KindKeyring)
		if r.Phase == roster.RotationDone && ring.Phase == roster.RotationDone {
			break
		}
		if noBridge && r.Phase != roster.RotationDone && (ring.Phase != roster.RotationBegun || !same(g.rings)) {
			t.Fatal("whoever has the key of the CA can get a new mesh key:", g.View().Rotations())
		}
		if turns > 200 {
			t.Fatal("the rotation does not end:", g.View().Rotations())
		}
		if stop != "never" {
			g.term([]string{"a", "b", "c"}[turns%3])
			propose := g.c.cfg.Propose
			g.c.cfg.Propose = func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error) {
				if stop == "before entries" && turns%2 == 0 {
					return nil, errCrash
				}
				out, err := propose(ctx, commands...)
				return out, errors.Join(err, errCrash)
			}
		}
		for i, id := range []string{"a", "b", "w"} {
			if turns%3 == i || stop != "never" {
				follow(id)
			}
		}
		time.Sleep(rotateEvery)
		if err := g.c.round(t.Context()); err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
	}
	m := g.View().MeshIdentity()
	key, err := g.rings["b"].Open(keyring.PurposeCA("m"), m.SealedCA)
	if err != nil || len(m.CAs) != 1 || !bytes.Equal(m.CAs[0], fakeCert(key)) || bytes.Equal(m.CAs[0], old) {
		t.Errorf("the CAs are %q, the key has %d bytes: %v", m.CAs, len(key), err)
	}
	switch {
	case noBridge && len(m.Bridges) > 0:
		t.Error("there is a bridge")
	case noBridge:
	case len(m.Bridges) != 1 || !bytes.Equal(m.Bridges[0].Old, old) ||
		!bytes.Equal(m.Bridges[0].Certificate, slices.Concat([]byte("bridge "), old, m.CAs[0])):
		t.Errorf("the bridges are %+v", m.Bridges)
	}
	if r, _ := g.View().Rotation(roster.KindCA); r.NoBridge != noBridge || r.Actor != "ann" {
		t.Errorf("%+v", r)
	}
	if stop != "never" { // the last leader may have had no turn
		g.term("a")
	}
	if err := g.c.round(t.Context()); err != nil {
		t.Error(err)
	}
	if _, ok := g.View().Rotation(roster.KindGossip); ok != noBridge {
		t.Errorf("a rotation of the key of gossip: %t", ok)
	}
}

// same reports whether keyrings have one key each.
func same(rings map[string]*keyring.Ring) bool {
	for _, r := range rings {
		if len(r.Set().Keys) > 1 {
			return false
		}
	}
	return true
}
