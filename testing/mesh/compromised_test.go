package mesh_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/mesh"
)

// TestCompromised removes a voter that somebody else has, while it runs and while the leader dies: amid the removal, which is then repeated,
// or in a phase of the rotations. In the end the CA, all mesh keys, the signing key and the key of gossip are others, join tokens are gone,
// and secrets are used as before.
func TestCompromised(t *testing.T) {
	for i, at := range []struct{ kind, phase string }{
		{"", removed}, {"", revoked},
		{roster.KindCA, roster.RotationBegun}, {roster.KindCA, roster.RotationActive}, {roster.KindKeyring, roster.RotationSpread},
		{roster.KindKeyring, roster.RotationActive}, {roster.KindKeyring, roster.RotationRetire},
	} {
		if testing.Short() && at.phase != revoked && at.phase != roster.RotationSpread {
			continue
		}
		t.Run(strings.TrimSuffix("the leader dies in "+at.phase+" of "+at.kind, " of "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compromised(t, uint64(91+i), at.kind, at.phase) })
		})
	}
}

// The phases of a removal.
const (
	removed = "removed" // its certificates have ended
	revoked = "revoked" // there are no join tokens any more
)

func compromised(t *testing.T, seed uint64, kind, phase string) {
	m := mesh.New(t, mesh.Options{Agents: 5, Identity: true, Seed: seed, Verbose: testing.Verbose()})
	m.Until("voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) >= 3 && keyed(m, m.Voters()...) })
	secretive(m)
	writeSecret(m, canary)
	leader := m.AwaitLeader()
	others := slices.DeleteFunc(m.Voters(), func(a *mesh.Agent) bool { return a == leader })
	lost := others[0]
	stolen, keys, signed := lost.Membership(), lost.Keys(), len(leader.View().SigningKeys())
	m.Must("POST", "/v1/join-tokens", map[string]any{"kind": "worker"}, nil)
	leave := func(a *mesh.Agent) (api.Left, int) {
		code, body := a.Call("POST", "/v1/leave", compromisedBody(t, lost.ID), "")
		var out api.Left
		if code < http.StatusMultipleChoices && json.Unmarshal(body, &out) != nil {
			t.Errorf("the answer is %s", body)
		}
		return out, code
	}
	if kind == "" {
		first := make(chan int, 1)
		go func() {
			_, code := leave(others[1])
			first <- code
		}()
		m.Within(time.Minute, time.Millisecond, "the voter to be "+phase, func() bool {
			i, _ := leader.View().Identity(lost.ID)
			return i.Removed != 0 && (phase == removed || len(leader.View().JoinTokens()) == 0)
		})
		leader.Crash()
		if code := <-first; code < http.StatusMultipleChoices {
			t.Error("the command succeeded without the leader")
		}
		leader.Start()
	}
	var left api.Left
	m.Until("the voter to be removed", func() bool { // another agent than the leader is asked
		var code int
		left, code = leave(others[1])
		return code < http.StatusMultipleChoices
	})
	want := api.Exposed{Tenant: model.FirstTenant, Kind: "secrets", Name: "key"}
	if !slices.Equal(left.Exposed, []api.Exposed{want}) || left.Agent != lost.ID {
		t.Errorf("the answer is %+v", left)
	}
	order := []string{roster.RotationBegun, roster.RotationSpread, roster.RotationActive, roster.RotationRetire, roster.RotationDone}
	now := func(kind string) roster.Rotation {
		if m.Leader() == nil {
			return roster.Rotation{}
		}
		r, _ := m.Leader().View().Rotation(kind)
		return r
	}
	if kind != "" {
		m.Until("phase "+phase, func() bool { return slices.Index(order, now(kind).Phase) >= slices.Index(order, phase) })
		dead := m.AwaitLeader()
		dead.Crash()
		dead.Start()
	}
	for _, kind := range []string{roster.KindCA, roster.KindKeyring} {
		m.Until("the end of the rotation of "+kind, func() bool { return now(kind).Phase == roster.RotationDone })
	}
	m.Until("another key of gossip, after the CA", func() bool {
		r := now(roster.KindGossip)
		return r.Phase == roster.RotationDone && r.Begun > now(roster.KindCA).Since
	})
	v := m.AwaitLeader().View()
	if ca, ring := now(roster.KindCA), now(roster.KindKeyring); ca.Number != 1 || !ca.NoBridge || ring.Number != 1 || !ring.Full {
		t.Errorf("the rotations are %+v and %+v", ca, ring)
	}
	if len(v.JoinTokens()) != 0 || len(v.SigningKeys()) <= signed {
		t.Errorf("%d join tokens are left, and there are %d signing keys after %d", len(v.JoinTokens()), len(v.SigningKeys()), signed)
	}
	for _, a := range m.Voters() {
		if got := a.Membership(); a == lost || len(got.CAs) != 1 || slices.Equal(got.CAs[0], stolen.CAs[0]) || len(got.Bridges) > 0 ||
			slices.Equal(got.Gossip, stolen.Gossip) {
			t.Errorf("%s trusts what the lost voter had", a.Name)
		}
		if s := a.Keys(); len(s.Keys) != 1 || s.Keys[0].Same(keys.Keys[0]) {
			t.Errorf("%s has %v", a.Name, s)
		}
	}
	if !runWith(m, canary) {
		t.Error("the program did not get the secret")
	}
	if again, code := leave(m.AwaitLeader()); code >= http.StatusMultipleChoices || !slices.Equal(again.Exposed, left.Exposed) ||
		now(roster.KindCA).Number != 1 || now(roster.KindKeyring).Number != 1 {
		t.Errorf("the answer to a repetition is %d %+v", code, again)
	}
}

// TestCompromisedIsRefused has agents that no keys are replaced for, and a rotation that was under way before: the command is repeated when that
// is done, and replaces the key once more.
func TestCompromisedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 5, Workers: 1, Identity: true, Seed: 99, Verbose: testing.Verbose()})
		m.Until("voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) >= 3 && keyed(m, m.Voters()...) })
		leader := m.AwaitLeader()
		leave := func(id string) (int, string) {
			code, body := leader.Call("POST", "/v1/leave", compromisedBody(t, id), "")
			return code, string(body)
		}
		for id, want := range map[string]string{m.Agents()[4].ID: "is a worker", "nobody": "no record of agent", leader.ID: "removes others only"} {
			if code, body := leave(id); code < http.StatusBadRequest || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", id, code, body)
			}
		}
		lost := m.Voters()[slices.IndexFunc(m.Voters(), func(a *mesh.Agent) bool { return a != leader })]
		m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindCA}, nil)
		if code, body := leave(lost.Name); code != http.StatusConflict || !strings.Contains(body, "repeat the command") {
			t.Errorf("%d %s", code, body)
		}
		if i, ok := leader.View().Identity(lost.ID); !ok || i.Removed == 0 {
			t.Error("the voter is not removed")
		}
		m.Until("the removal", func() bool { code, _ := leave(lost.Name); return code < http.StatusMultipleChoices })
		m.Until("another rotation of the CA", func() bool {
			r, _ := m.AwaitLeader().View().Rotation(roster.KindCA)
			return r.Number == 2 && r.NoBridge && r.Phase == roster.RotationDone
		})
	})
}

// TestCompromisedIsAnsweredFirst removes a voter that is alive, so that its session lasts for seconds. The rotation of the CA, which closes
// connections at its end, was done before the answer came. The answer comes once the rotation is on record, and before any certificate changes.
func TestCompromisedIsAnsweredFirst(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(map[bool]string{false: "all live", true: "the agent that was asked dies meanwhile"}[crash], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { answeredFirst(t, crash) })
		})
	}
}

func answeredFirst(t *testing.T, crash bool) {
	m := mesh.New(t, mesh.Options{Agents: 5, Identity: true, Seed: 98, TTL: 10 * time.Second, Verbose: testing.Verbose()})
	m.Until("voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) >= 3 && keyed(m, m.Voters()...) })
	leader := m.AwaitLeader()
	others := slices.DeleteFunc(m.Voters(), func(a *mesh.Agent) bool { return a == leader })
	lost, asked := others[0], others[1]
	answer := make(chan int, 1)
	go func() {
		code, _ := asked.Call("POST", "/v1/leave", compromisedBody(t, lost.ID), "")
		answer <- code
	}()
	rotation := func(kind string) roster.Rotation {
		r, _ := leader.View().Rotation(kind)
		return r
	}
	removed := func() bool {
		i, _ := leader.View().Identity(lost.ID)
		return i.Removed != 0
	}
	if crash {
		m.Within(time.Minute, time.Millisecond, "the voter to be removed", removed)
		asked.Crash()
		asked.Start()
		if code := <-answer; code < http.StatusMultipleChoices {
			t.Errorf("the answer of an agent that is dead is %d", code)
		}
	} else if code := <-answer; code >= http.StatusMultipleChoices || leader.Records()[lost.ID] ||
		!slices.Contains([]string{roster.RotationBegun, roster.RotationSpread}, rotation(roster.KindCA).Phase) ||
		rotation(roster.KindKeyring).Phase != roster.RotationBegun {
		t.Errorf("the answer is %d, while the rotations are %+v", code, leader.View().Rotations())
	}
	for _, kind := range []string{roster.KindCA, roster.KindKeyring} {
		m.Until("the end of the rotation of "+kind, func() bool { return rotation(kind).Phase == roster.RotationDone })
	}
}

// compromisedBody returns the body of a request to remove a voter that somebody else has.
func compromisedBody(t *testing.T, agent string) []byte {
	t.Helper()
	body, err := json.Marshal(api.LeaveBody{Agent: agent, Compromised: true})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
