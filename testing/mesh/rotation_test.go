package mesh_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gossip "github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/mesh"
)

// phase returns the phase of the rotation of the mesh key, as the leader knows it.
func phase(m *mesh.Mesh) string {
	l := m.Leader()
	if l == nil {
		return ""
	}
	r, _ := l.View().Rotation(roster.KindKeyring)
	return r.Phase
}

// writeSecret writes the secret that the program uses.
func writeSecret(m *mesh.Mesh, value string) {
	m.T.Helper()
	m.Until("the secret to be written", func() bool {
		return m.Ask("PUT", "/v1/secrets/key", map[string]any{"value": value, "usableBy": []string{"*"}}, nil) < 300
	})
}

// secretive defines a program that uses a secret.
func secretive(m *mesh.Mesh) {
	m.T.Helper()
	m.DefineRuns(profile.Profile{})
	m.Must("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{
		{Name: "map", Command: []string{"true"}, Env: map[string]string{"KEY": "${secure(key)}"}},
	}}, nil)
}

// TestRotateKeyring rotates the mesh key, and kills the leader in each phase. Secrets are written and used meanwhile. In the end every
// voter has the new key only, and its log and snapshots begin after the old one was in use.
func TestRotateKeyring(t *testing.T) {
	for _, full := range []bool{false, true} {
		for i, at := range []string{roster.RotationBegun, roster.RotationSpread, roster.RotationActive, roster.RotationRetire} {
			t.Run(fmt.Sprintf("full %t, the leader dies in %s", full, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := mesh.New(t, mesh.Options{Agents: 3, Seed: uint64(31 + i), Verbose: testing.Verbose()})
					m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
					secretive(m)
					writeSecret(m, canary)
					stolen := m.AwaitLeader().Keys()
					m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindKeyring, Full: full}, nil)
					order := []string{roster.RotationBegun, roster.RotationSpread, roster.RotationActive, roster.RotationRetire, roster.RotationDone}
					m.Within(time.Minute, time.Millisecond, "phase "+at, func() bool { return slices.Index(order, phase(m)) >= slices.Index(order, at) })
					dead := m.AwaitLeader()
					dead.Crash()
					writeSecret(m, canary+"2")
					dead.Start()
					m.Until("the end of the rotation", func() bool { return phase(m) == roster.RotationDone })
					for _, a := range m.Voters() {
						if s := a.Keys(); len(s.Keys) != 1 || s.Active != 2 || s.Keys[0].Same(stolen.Keys[0]) {
							t.Errorf("%s has %v", a.Name, s)
						}
					}
					if !runWith(m, canary+"2") {
						t.Error("the program did not get the secret")
					}
				})
			})
		}
	}
}

// TestRestoreWithRetiredKey restores a snapshot from before a rotation. It is refused until the old key is in the leader's keyring again,
// and the values in it are encrypted with the new key afterwards.
func TestRestoreWithRetiredKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 41, Verbose: testing.Verbose()})
		m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		secretive(m)
		writeSecret(m, canary)
		saved, old := m.SaveState(), m.AwaitLeader().Keys()
		m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindKeyring, Full: true}, nil)
		m.Until("the end of the rotation", func() bool { return phase(m) == roster.RotationDone })
		code, body := m.AwaitLeader().Call("POST", "/v1/operator/snapshot", saved, "")
		if code != http.StatusUnprocessableEntity || !strings.Contains(string(body), "retired") {
			t.Errorf("%d %s", code, body)
		}
		for _, a := range m.Agents() {
			a.Stop()
			set := a.Keys()
			a.PutKeys(keyring.Set{Active: set.Active, Keys: append(slices.Clone(old.Keys), set.Keys...)})
			a.Start()
		}
		m.RestoreState(saved)
		m.Until("only the new key", func() bool {
			return phase(m) == roster.RotationDone && !slices.ContainsFunc(m.Voters(), func(a *mesh.Agent) bool { return len(a.Keys().Keys) != 1 })
		})
		if !runWith(m, canary) {
			t.Error("the program did not get the secret")
		}
	})
}

// gossips reports whether a stranger with a key can join the gossip of a mesh.
func gossips(t *testing.T, m *mesh.Mesh, host string, key []byte) bool {
	t.Helper()
	g, err := m.Fabric.Host(host).Gossip(55056)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := gossip.New(gossip.Config{ID: "00000000-0000-4000-8000-99999999999" + host[len(host)-1:], Transport: g, GossipKeys: [][]byte{key}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- stranger.Run(ctx) }()
	joined, _ := stranger.Join(ctx, []string{"10.0.0.1:55056", "10.0.0.2:55056", "10.0.0.3:55056"})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return joined > 0
}

// gossipPhase returns the number and the phase of the rotation of the key of gossip, as the leader knows it.
func gossipPhase(m *mesh.Mesh) (uint32, string) {
	l := m.Leader()
	if l == nil {
		return 0, ""
	}
	r, _ := l.View().Rotation(roster.KindGossip)
	return r.Number, r.Phase
}

// TestRotateGossip replaces the key of gossip while agents work, the leader dies, and a worker is away. Nobody is lost from the view of others.
// The worker takes part in gossip when it is back, and the old key is worth nothing. When the worker is removed, its key is replaced, too.
func TestRotateGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 5, Workers: 2, Identity: true, Seed: 51, Verbose: testing.Verbose()})
		m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		m.Define()
		all := m.Agents()
		away := all[4]
		sees := func(n int) func() bool {
			return func() bool {
				return !slices.ContainsFunc(m.Up(), func(a *mesh.Agent) bool { return a.Sees() != n })
			}
		}
		m.Until("all agents in all views", sees(5))
		first := away.Membership().Gossip
		if !gossips(t, m, "10.9.0.1", first) {
			t.Fatal("the key of gossip does not let anybody in")
		}
		away.Stop()
		m.Until("the worker to be gone", func() bool { a, ok := m.AwaitLeader().View().Agent(away.ID); return ok && !a.Alive })
		_, op := m.Create("one", 4, "pause")
		m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindGossip}, nil)
		m.Within(time.Minute, 100*time.Millisecond, "a rotation that is half done", func() bool { _, p := gossipPhase(m); return p == roster.RotationActive })
		dead := m.AwaitLeader()
		dead.Crash()
		m.AwaitLeader()
		dead.Start()
		m.Until("the end of the rotation", func() bool { _, p := gossipPhase(m); return p == roster.RotationDone })
		if s := m.AwaitEnd(op); s != model.OpSucceeded {
			t.Errorf("the operation is %s", s)
		}
		m.Until("all other agents in all views", sees(4))
		for _, a := range m.Up() {
			if ring := a.Membership().GossipRing(); len(ring.Keys) != 1 || slices.Equal(ring.Keys[0], first) {
				t.Errorf("%s has %d keys, or the old one", a.Name, len(ring.Keys))
			}
		}
		if gossips(t, m, "10.9.0.2", first) {
			t.Error("somebody has joined with the old key")
		}
		away.Start()
		m.Until("all agents in all views again", sees(5))
		second := away.Membership().Gossip
		if slices.Equal(second, first) || !gossips(t, m, "10.9.0.3", second) {
			t.Error("the agent that was away has another key than the others")
		}
		m.Must("POST", "/v1/leave", map[string]any{"agent": away.ID, "force": true}, nil)
		m.Until("another rotation", func() bool { n, p := gossipPhase(m); return n == 2 && p == roster.RotationDone })
		if gossips(t, m, "10.9.0.4", second) {
			t.Error("somebody has joined with the key of the agent that was removed")
		}
		m.Until("the others in all views", func() bool {
			return !slices.ContainsFunc(all[:4], func(a *mesh.Agent) bool { return a.Sees() != 4 })
		})
	})
}

// TestRotateRoot replaces the root token of a mesh with certificates.
func TestRotateRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := founded(t, 42, keyring.Set{})
		for _, hash := range []string{"", "ab", strings.Repeat("x", 64), strings.Repeat("a", 66)} {
			if code := m.Ask("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindRoot, RootHash: hash}, nil); code != http.StatusUnprocessableEntity {
				t.Errorf("the hash %q: %d", hash, code)
			}
		}
		const token = "coopr-NEWROOTTOKEN"
		hash := sha256.Sum256([]byte(token))
		var out roster.Rotation
		m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindRoot, RootHash: hex.EncodeToString(hash[:])}, &out)
		if out.Phase != roster.RotationDone {
			t.Errorf("%+v", out)
		}
		l := m.AwaitLeader()
		if code, _ := l.Call("GET", "/v1/operator/rotations", nil, ""); code != http.StatusUnauthorized {
			t.Errorf("the old token: %d", code)
		}
		if code, _ := l.CallAs(token, "GET", "/v1/operator/rotations", nil, ""); code != http.StatusOK {
			t.Errorf("the new token: %d", code)
		}
	})
}
