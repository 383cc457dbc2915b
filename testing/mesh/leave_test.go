package mesh_test

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/mesh"
)

// forget asks an agent to remove another one, until that is accepted.
func forget(t *testing.T, m *mesh.Mesh, at, gone *mesh.Agent) {
	t.Helper()
	m.Until(gone.Name+" to be forgotten", func() bool {
		code, body := at.Call("POST", "/v1/leave", []byte(`{"agent": "`+gone.Name+`"}`), "")
		switch code {
		case 200:
			return true
		case 409: // it is taken for alive still
			return false
		}
		t.Fatalf("leave: %d %s", code, body)
		return false
	})
}

// TestForgottenStandbyIsNoMember: removing a dead standby also removes it from the Raft group,
// where it would delay others for a while.
func TestForgottenStandbyIsNoMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 2, Expect: 1, Seed: 1, Verbose: testing.Verbose()})
		m.AwaitLeader()
		m.Until("a standby", func() bool { return len(m.Servers()) == 2 && len(m.Leader().Records()) == 2 })
		leader, standby := m.Agents()[0], m.Agents()[1]
		if m.Leader() != leader {
			leader, standby = standby, leader
		}
		standby.Crash()
		forget(t, m, leader, standby)
		if servers := m.Servers(); len(servers) != 1 || servers[0].ID != leader.ID {
			t.Errorf("the Raft group is %+v", servers)
		}
		if n := leader.Sees(); n != 1 {
			t.Errorf("%d agents are alive", n)
		}
	})
}

// TestForgetAtAFollower: any agent accepts the removal of another one.
func TestForgetAtAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 1, Verbose: testing.Verbose()})
		leader := m.AwaitLeader()
		m.Until("everybody on record", func() bool { return len(leader.Records()) == 3 })
		var rest []*mesh.Agent
		for _, a := range m.Agents() {
			if a != leader {
				rest = append(rest, a)
			}
		}
		rest[0].Crash()
		forget(t, m, rest[1], rest[0])
		r := leader.Records()
		if len(r) != 2 || r[rest[0].ID] {
			t.Errorf("the agents on record: %v", r)
		}
		time.Sleep(time.Minute)
		if r := leader.Records(); len(r) != 2 {
			t.Errorf("a minute later: %v", r)
		}
	})
}

// TestForgetWaitsForTheSession removes an agent that is cut off from the others while it works. Others take its tasks
// over only when it has stopped, although the others take it for dead before.
func TestForgetWaitsForTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Seed: 1, Verbose: testing.Verbose()})
		m.Define()
		leader := m.AwaitLeader()
		m.Until("everybody on record", func() bool { return len(leader.Records()) == 4 })
		m.World.SetTrouble(func(*pb.Task, int) mesh.Trouble { return mesh.Slow })
		_, op := m.Create("one", 12, "")
		var gone *mesh.Agent
		m.Until("an agent to be busy", func() bool {
			for _, a := range m.Agents() {
				if a != m.Leader() && a.Busy() > 0 {
					gone = a
				}
			}
			return gone != nil
		})
		m.Cut("off", []*mesh.Agent{gone})
		cut := time.Now()
		forget(t, m, m.AwaitLeader(), gone)
		t.Logf("%s is forgotten %s after it was cut off, and busy with %d tasks", gone.Name, time.Since(cut), gone.Busy())
		m.World.SetTrouble(nil)
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Errorf("the operation ended %s", st)
		}
		for _, s := range m.World.Violations() {
			t.Error(s)
		}
		if r := m.AwaitLeader().Records(); r[gone.ID] {
			t.Errorf("the agents on record: %v", r)
		}
	})
}

// TestForgetHasTheCallersRights checks that an agent without a copy of the state, which knows no policies, lends nobody the
// rights of the mesh when it passes the removal of an agent on.
func TestForgetHasTheCallersRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 8, Seed: 1, Verbose: testing.Verbose()})
		leader := m.AwaitLeader()
		m.Until("everybody on record", func() bool { return len(leader.Records()) == 8 && len(m.Voters()) == 5 })
		var without, gone *mesh.Agent
		for _, a := range m.Agents() {
			if !slices.ContainsFunc(m.Servers(), func(s raftgroup.Server) bool { return s.ID == a.ID }) {
				without = a
			} else if a != leader {
				gone = a
			}
		}
		var sam api.IssuedToken
		must := func(code int, body []byte) []byte {
			if code >= 300 {
				t.Fatalf("%d %s", code, body)
			}
			return body
		}
		body := must(leader.Call("POST", "/v1/tokens", []byte(`{"actor":"sam","role":"superadmin"}`), ""))
		if err := json.Unmarshal(body, &sam); err != nil {
			t.Fatal(err)
		}
		must(leader.Call("PUT", "/v1/mesh/policies/members", []byte(`{"name":"members",
			"text":"forbid (principal, action == Action::\"admin\", resource is Mesh);"}`), ""))
		gone.Crash()
		for _, at := range []*mesh.Agent{without, leader} {
			var code int
			var body []byte
			m.Until("an answer", func() bool {
				code, body = at.CallAs(sam.Secret, "POST", "/v1/leave", []byte(`{"agent":"`+gone.Name+`"}`), "")
				return code != 409 // the dead agent is not taken for alive any more
			})
			if code != 403 {
				t.Errorf("at %s: %d %s", at.Name, code, body)
			}
		}
		forget(t, m, without, gone) // root may
	})
}

// TestRecoveredQuorumDoesNotCountOnTheDead: a recovered mesh whose records still have the dead
// agents makes none of them a voter, because only an agent that is alive becomes one.
func TestRecoveredQuorumDoesNotCountOnTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 1, Verbose: testing.Verbose()})
		leader := m.AwaitLeader()
		m.Until("everybody on record", func() bool { return len(leader.Records()) == 3 })
		for _, a := range m.Agents() {
			a.Crash()
		}
		time.Sleep(time.Second) // the last messages of the dead agents have arrived
		leader.Recover()
		leader.Start()
		start := time.Now()
		m.AwaitLeader()
		for time.Since(start) < 2*time.Minute {
			if servers := m.Servers(); len(servers) > 1 {
				t.Fatalf("after %s the dead are back in the Raft group: %+v", time.Since(start), servers)
			}
			time.Sleep(20 * time.Millisecond)
		}
		// New agents in place of the dead ones become voters at once.
		for _, a := range m.Agents() {
			a.Start()
		}
		m.Until("three voters", func() bool { return len(m.Voters()) == 3 })
	})
}
