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
	pb "github.com/coopr/coopr/rpc/proto"
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
		m.RestoreState(saved, "?resume=true")
		m.Until("only the new key", func() bool {
			return phase(m) == roster.RotationDone && !slices.ContainsFunc(m.Voters(), func(a *mesh.Agent) bool { return len(a.Keys().Keys) != 1 })
		})
		if !runWith(m, canary) {
			t.Error("the program did not get the secret")
		}
	})
}

// leaving is a way in which an agent is away for a while.
type leaving struct {
	how        string
	away, back func(*mesh.Mesh, *mesh.Agent)
}

// leaves are the ways in which an agent is away: it is off, or its network is down.
var leaves = []leaving{
	{"off", func(_ *mesh.Mesh, a *mesh.Agent) { a.Stop() }, func(_ *mesh.Mesh, a *mesh.Agent) { a.Start() }},
	{"cut off", func(m *mesh.Mesh, a *mesh.Agent) { m.Cut("away", []*mesh.Agent{a}) }, func(m *mesh.Mesh, _ *mesh.Agent) { m.Heal("away") }},
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
	for _, leave := range leaves {
		t.Run(leave.how, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { rotateGossip(t, leave) }) })
	}
}

func rotateGossip(t *testing.T, leave leaving) {
	m := mesh.New(t, mesh.Options{Agents: 5, Workers: 2, Identity: true, Seed: 51, Verbose: testing.Verbose()})
	m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
	m.Define()
	all := m.Agents()
	away := all[4]
	sees := func(agents []*mesh.Agent) func() bool {
		return func() bool {
			return !slices.ContainsFunc(agents, func(a *mesh.Agent) bool { return a.Sees() != len(agents) })
		}
	}
	m.Until("all agents in all views", sees(all))
	first := away.Membership().Gossip
	if !gossips(t, m, "10.9.0.1", first) {
		t.Fatal("the key of gossip does not let anybody in")
	}
	leave.away(m, away)
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
	m.Until("all other agents in all views", sees(all[:4]))
	for _, a := range all[:4] {
		if ring := a.Membership().GossipRing(); len(ring.Keys) != 1 || slices.Equal(ring.Keys[0], first) {
			t.Errorf("%s has %d keys, or the old one", a.Name, len(ring.Keys))
		}
	}
	if gossips(t, m, "10.9.0.2", first) {
		t.Error("somebody has joined with the old key")
	}
	leave.back(m, away)
	m.Until("all agents in all views again", sees(all))
	second := away.Membership().Gossip
	if slices.Equal(second, first) || !gossips(t, m, "10.9.0.3", second) {
		t.Error("the agent that was away has another key than the others")
	}
	m.Must("POST", "/v1/leave", map[string]any{"agent": away.ID, "force": true}, nil)
	m.Until("another rotation", func() bool { n, p := gossipPhase(m); return n == 2 && p == roster.RotationDone })
	if gossips(t, m, "10.9.0.4", second) {
		t.Error("somebody has joined with the key of the agent that was removed")
	}
	m.Until("the others in all views", sees(all[:4]))
}

// TestRotateCA replaces the CA while agents work and the leader dies, and a worker is away. Afterwards certificates of the old CA are refused,
// and all agents still renew theirs. The worker comes back over the bridge; without a bridge it does not.
func TestRotateCA(t *testing.T) {
	for i, leave := range leaves {
		for _, noBridge := range []bool{false, true} {
			if testing.Short() && noBridge != (i > 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s, no bridge %t", leave.how, noBridge), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { rotateCA(t, leave, noBridge) })
			})
		}
	}
}

func rotateCA(t *testing.T, leave leaving, noBridge bool) {
	m := mesh.New(t, mesh.Options{Agents: 5, Workers: 2, Identity: true, Seed: 61, Verbose: testing.Verbose()})
	m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
	m.Define()
	all := m.Agents()
	worker, away := all[3], all[4]
	phase := func() string {
		if m.Leader() == nil {
			return ""
		}
		r, _ := m.Leader().View().Rotation(roster.KindCA)
		return r.Phase
	}
	alive := func(a *mesh.Agent) bool {
		if m.Leader() == nil {
			return false
		}
		x, ok := m.Leader().View().Agent(a.ID)
		return ok && x.Alive
	}
	m.Until("all agents", func() bool { return !slices.ContainsFunc(all, func(a *mesh.Agent) bool { return !alive(a) }) })
	stolen, old := worker.Membership(), away.Membership()
	thief := worker.Steal("10.9.9.9", stolen)
	admits := func(a *mesh.Agent) bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := dial(t, thief, a.PeerAddr()).Status(ctx, &pb.StatusRequest{})
		return err == nil
	}
	open := dial(t, thief, all[1].PeerAddr()) // a connection from before
	if _, err := open.Status(t.Context(), &pb.StatusRequest{}); err != nil || !admits(all[0]) {
		t.Fatal("the certificate is worth nothing yet:", err)
	}
	leave.away(m, away)
	m.Until("the worker to be gone", func() bool { return m.Leader() != nil && !alive(away) })
	_, op := m.Create("one", 4, "pause")
	m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindCA, NoBridge: noBridge}, nil)
	m.Within(time.Minute, 50*time.Millisecond, "a rotation that is half done", func() bool { return phase() == roster.RotationActive })
	dead := m.AwaitLeader()
	dead.Crash()
	m.AwaitLeader()
	dead.Start()
	m.Until("the end of the rotation", func() bool { return phase() == roster.RotationDone })
	if s := m.AwaitEnd(op); s != model.OpSucceeded {
		t.Errorf("the operation is %s", s)
	}
	for _, a := range all[:4] {
		if got := a.Membership(); len(got.CAs) != 1 || slices.Equal(got.CAs[0], stolen.CAs[0]) || (len(got.Bridges) == 0) != noBridge {
			t.Errorf("%s has %d CAs, or the old one, and %d certificates of bridges", a.Name, len(got.CAs), len(got.Bridges))
		}
		if admits(a) {
			t.Errorf("%s admits a certificate of the old CA", a.Name)
		}
	}
	if _, err := open.Status(t.Context(), &pb.StatusRequest{}); err == nil {
		t.Error("a connection with a certificate of the old CA goes on")
	}
	leave.back(m, away)
	if noBridge {
		time.Sleep(5 * time.Minute)
		if _, err := renewal(t, m, away, old); err == nil || alive(away) {
			t.Error("the agent that was away is back without a bridge")
		}
	} else {
		m.Until("the agent that was away", func() bool { return alive(away) && len(away.Membership().CAs) == 1 })
		if slices.Equal(away.Membership().CAs[0], old.CAs[0]) {
			t.Error("it trusts the old CA")
		}
	}
	time.Sleep(2 * mesh.Lifetime)
	for _, a := range all {
		a.Stop()
	}
	time.Sleep(2 * mesh.Lifetime) // voters sign for themselves when they start
	for _, a := range all {
		a.Start()
	}
	m.Until("all agents again", func() bool {
		return !slices.ContainsFunc(all[:4], func(a *mesh.Agent) bool { return !alive(a) }) && alive(away) != noBridge
	})
	_, op = m.Create("two", 4, "pause")
	if s := m.AwaitEnd(op); s != model.OpSucceeded {
		t.Errorf("the second operation is %s", s)
	}
}

// TestRotateWithoutVoter replaces the CA and the key of gossip while a voter is away. The voter signs certificates itself, by the state that
// it has, and comes back all the same: as a voter that has the state, with a certificate of the new CA and the new key of gossip.
func TestRotateWithoutVoter(t *testing.T) {
	for _, leave := range leaves {
		for _, long := range []bool{false, true} {
			if testing.Short() && long {
				continue
			}
			t.Run(fmt.Sprintf("%s, for long %t", leave.how, long), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { rotateWithoutVoter(t, leave, long) })
			})
		}
	}
}

func rotateWithoutVoter(t *testing.T, leave leaving, long bool) {
	m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Seed: 71, Verbose: testing.Verbose()})
	m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
	m.Define()
	leader := m.AwaitLeader()
	voters := m.Voters()
	away := voters[slices.IndexFunc(voters, func(a *mesh.Agent) bool { return a != leader })]
	old := away.Membership()
	leave.away(m, away)
	m.Until("the voter to be gone", func() bool { a, ok := m.AwaitLeader().View().Agent(away.ID); return ok && !a.Alive })
	for _, kind := range []string{roster.KindGossip, roster.KindCA} {
		m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: kind}, nil)
		m.Until("the end of the rotation of "+kind, func() bool {
			if m.Leader() == nil {
				return false
			}
			r, _ := m.Leader().View().Rotation(kind)
			return r.Phase == roster.RotationDone
		})
	}
	if long {
		time.Sleep(2 * mesh.Lifetime) // it signs for itself when it comes back
	}
	leave.back(m, away)
	m.Until("the voter that was away", func() bool {
		a, ok := m.AwaitLeader().View().Agent(away.ID)
		if !ok || !a.Alive || away.View() == nil {
			return false
		}
		r, _ := away.View().Rotation(roster.KindCA)
		return r.Phase == roster.RotationDone && away.Sees() == 4
	})
	if now := away.Membership(); len(now.CAs) != 1 || slices.Equal(now.CAs[0], old.CAs[0]) || slices.Equal(now.Gossip, old.Gossip) {
		t.Error("it has the old CA, or the old key of gossip")
	}
	// It votes: without the leader, the two others are a majority.
	m.AwaitLeader().Crash()
	m.AwaitLeader()
	_, op := m.Create("one", 4, "pause")
	if s := m.AwaitEnd(op); s != model.OpSucceeded {
		t.Errorf("the operation is %s", s)
	}
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

// TestBackAfterLong cuts an agent off for so long that it has often asked in vain for a new certificate, and its own has ended. It is back soon
// after the others can be reached again.
func TestBackAfterLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Seed: 81, Verbose: testing.Verbose()})
		m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		away := m.Agents()[3]
		alive := func() bool { a, ok := m.AwaitLeader().View().Agent(away.ID); return ok && a.Alive }
		m.Until("the worker", alive)
		m.Cut("away", []*mesh.Agent{away})
		time.Sleep(days() * mesh.Lifetime)
		m.Heal("away")
		m.Until("the worker to be back", alive)
	})
}
