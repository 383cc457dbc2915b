package mesh_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/mesh"
)

// tokensMesh is a mesh with a leader, a voter that does not lead, and an agent without a copy of the state.
type tokensMesh struct {
	*mesh.Mesh
	leader, voter, worker *mesh.Agent
}

func newTokensMesh(t *testing.T) *tokensMesh {
	m := &tokensMesh{Mesh: mesh.New(t, mesh.Options{Agents: 4, Seed: 1, Issuer: "https://mesh.example.com", Verbose: testing.Verbose(),
		// A voter that starts without a leader has only its snapshot.
		Timing: raftgroup.Timing{SnapshotThreshold: 1, SnapshotInterval: 10 * time.Second}})}
	m.leader = m.AwaitLeader()
	m.Until("everybody on record", func() bool { return len(m.leader.Records()) == 4 && len(m.Voters()) == 3 })
	for _, a := range m.Agents() {
		switch {
		case a == m.leader:
		case slices.ContainsFunc(m.Servers(), func(s raftgroup.Server) bool { return s.ID == a.ID }):
			m.voter = a
		default:
			m.worker = a
		}
	}
	return m
}

func (m *tokensMesh) agents() []*mesh.Agent { return []*mesh.Agent{m.leader, m.voter, m.worker} }

// token creates a token with the root token.
func (m *tokensMesh) token(body string) (t api.IssuedToken) {
	m.T.Helper()
	code, answer := m.leader.Call("POST", "/v1/tokens", []byte(body), "")
	if err := json.Unmarshal(answer, &t); err != nil || code != http.StatusCreated {
		m.T.Fatalf("%d %s", code, answer)
	}
	return t
}

// TestTokenOfANetwork uses a token with source ranges at all kinds of agents. A forwarded request has the address of its client.
func TestTokenOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTokensMesh(t)
		bound := m.token(`{"actor":"sam","role":"superadmin","sources":["192.0.2.0/25","2001:db8::/32"]}`)
		for _, a := range m.agents() {
			for address, want := range map[string]int{"192.0.2.9": 200, "2001:db8::9": 200, "192.0.2.200": 401, "127.0.0.1": 401, "::1": 401} {
				for _, path := range []string{"/v1/self", "/v1/tokens", "/v1/status", "/v1/tokens?consistency=stale"} {
					if code, body := a.CallFrom(address, bound.Secret, "GET", path, nil, ""); code != want {
						t.Errorf("%s from %s at %s: %d, not %d: %s", path, address, a.Name, code, want, body)
					}
				}
			}
			// The removal of an agent is forwarded in another way.
			if code, body := a.CallFrom("192.0.2.9", bound.Secret, "POST", "/v1/leave", []byte(`{"agent":"nobody"}`), ""); code == 401 {
				t.Errorf("leave at %s: %s", a.Name, body)
			}
		}
	})
}

// TestTokenLastUse has each kind of agent admit a token of its own. Their uses are recorded by the leader, those of an agent
// that answers alone, too.
func TestTokenLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTokensMesh(t)
		idle := m.token(`{"actor":"sam","role":"admin"}`)
		at := map[string]*mesh.Agent{}
		for _, a := range m.agents() {
			k := m.token(`{"actor":"sam","role":"admin"}`)
			at[k.ID] = a
			const path = "/v1/tokens?consistency=stale"
			m.Until("agent "+a.Name+" to have the token", func() bool {
				_, body := a.Call("GET", path, nil, "")
				return bytes.Contains(body, []byte(`"`+k.ID+`"`))
			})
			if code, body := a.CallAs(k.Secret, "GET", path, nil, ""); code != http.StatusOK {
				t.Fatalf("%d %s", code, body)
			}
		}
		m.Until("the uses on record", func() bool {
			var all []model.Token
			code, body := m.leader.Call("GET", "/v1/tokens", nil, "")
			if err := json.Unmarshal(body, &all); err != nil || code != http.StatusOK {
				t.Fatalf("%d %s", code, body)
			}
			used := 0
			for _, k := range all {
				switch {
				case k.Used != 0 && k.ID == idle.ID:
					t.Fatalf("a token that nobody has used: %+v", k)
				case k.Used != 0 && k.Used != model.Hour(k.Used):
					t.Fatalf("a use that is not rounded: %+v", k)
				case k.Used != 0 && at[k.ID] != nil:
					used++
				}
			}
			return used == len(at)
		})
	})
}

// TestTokenWithoutALeader parts all agents from each other. A copy of the state admits users for 15 minutes after the last contact with
// a leader or after the agent's start, whichever is later, and operators always. An agent without a copy admits nobody but root.
func TestTokenWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTokensMesh(t)
		operator, issued := m.token(`{"actor":"olga","role":"superadmin"}`).Secret, m.token(`{"actor":"sam","role":"user"}`)
		user := issued.Secret
		admits := func(a *mesh.Agent, token string) bool {
			code, body := a.CallAs(token, "GET", "/v1/members", nil, "")
			if code != http.StatusOK && code != http.StatusServiceUnavailable { // it does not know whether the token is good
				t.Fatalf("%s: %d %s", a.Name, code, body)
			}
			return code == http.StatusOK
		}
		check := func(when string, a *mesh.Agent, users, operators bool) {
			t.Helper()
			if admits(a, user) != users || admits(a, operator) != operators || !admits(a, mesh.Token) {
				t.Errorf("%s %s: the user %v, the operator %v, root %v", a.Name, when, admits(a, user), admits(a, operator),
					admits(a, mesh.Token))
			}
		}
		for _, a := range []*mesh.Agent{m.leader, m.voter} {
			m.Until("agent "+a.Name+" to have the tokens", func() bool { _, ok := a.View().Token(issued.ID); return ok })
		}

		const all = "everybody alone"
		var alone [][]*mesh.Agent
		for _, a := range m.Agents() {
			alone = append(alone, []*mesh.Agent{a})
		}
		m.Cut(all, alone...)
		parted := time.Now()
		at := func(d time.Duration) { time.Sleep(d - time.Since(parted)) }
		at(time.Minute)
		check("after a minute", m.worker, false, false)
		at(14*time.Minute + 50*time.Second)
		check("before its time", m.leader, true, true)
		check("before its time", m.voter, true, true)
		at(15*time.Minute + 10*time.Second)
		check("after its time", m.leader, false, true)
		check("after its time", m.voter, false, true)

		m.voter.Crash()
		m.voter.Start()
		parted = time.Now()
		m.Until("the voter to have its state", func() bool { return admits(m.voter, operator) })
		check("just started", m.voter, true, true)
		at(14*time.Minute + 50*time.Second)
		check("before the time of its start", m.voter, true, true)
		check("without a start", m.leader, false, true)
		at(15*time.Minute + 10*time.Second)
		check("after the time of its start", m.voter, false, true)

		m.Heal(all)
		for _, a := range m.agents() {
			m.Until("agent "+a.Name+" to admit the user again", func() bool { return admits(a, user) })
		}
	})
}

// TestTaskKey has the mesh publish a key for tokens of tasks. It is still the key after the loss of the leader that has made it.
func TestTaskKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTokensMesh(t)
		published := func(a *mesh.Agent) (ids []string) {
			var set api.WebKeySet
			code, body := a.CallAs("", "GET", "/v1/jwks", nil, "")
			if code != http.StatusOK {
				return nil
			}
			if err := json.Unmarshal(body, &set); err != nil {
				t.Fatal(err)
			}
			for _, k := range set.Keys {
				ids = append(ids, k.ID)
			}
			return ids
		}
		m.Until("a key", func() bool { return len(published(m.worker)) > 0 })
		made := published(m.worker)
		if len(made) != 1 || !slices.Equal(published(m.leader), made) || !slices.Equal(published(m.voter), made) {
			t.Errorf("%v, %v and %v are published", made, published(m.leader), published(m.voter))
		}
		m.leader.Crash()
		m.Until("a leader to publish the key", func() bool { return m.Leader() != nil && slices.Equal(published(m.worker), made) })
		time.Sleep(2 * time.Minute) // the new leader has checked the keys
		if now := published(m.worker); !slices.Equal(now, made) {
			t.Errorf("%v are published, and before %v", now, made)
		}
	})
}
