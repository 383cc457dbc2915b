package mesh_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/mesh"
)

// Every agent's status names the agent whose clock is wrong, also if that one leads, and until it is right again.
func TestClocksThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Seed: 3, Verbose: testing.Verbose()})
		named := func(want *mesh.Agent) func() bool {
			return func() bool {
				for _, a := range m.Up() {
					var s api.AgentStatus
					if code, body := a.Call(http.MethodGet, "/v1/status", nil, ""); code != http.StatusOK || json.Unmarshal(body, &s) != nil {
						return false
					}
					if want == nil && len(s.Clocks) > 0 {
						return false
					}
					if want != nil && (len(s.Clocks) != 1 || s.Clocks[0].Name != want.Name || s.Clocks[0].ID != want.ID ||
						(time.Duration(s.Clocks[0].Ahead)*time.Millisecond).Round(time.Minute) != -time.Hour) {
						return false
					}
				}
				return true
			}
		}
		leader := m.AwaitLeader()
		other := m.Agents()[0]
		if other == leader {
			other = m.Agents()[1]
		}
		other.SetClock(-time.Hour)
		m.Until("all to name an agent", named(other))
		leader.Crash()
		m.Until("the others to name it in another term", func() bool { return m.Leader() != nil && m.Leader() != leader && named(other)() })
		leader.Start()
		other.SetClock(0)
		m.Until("nobody to be named", named(nil))
		m.AwaitLeader().SetClock(-time.Hour)
		m.Until("all to name the leader", func() bool { return m.Leader() != nil && named(m.Leader())() })
	})
}

// TestClockThatIsPutRight has voters whose clocks are an hour ahead, and are put right. By the clock, certificates that they sign then are
// older than those from before. Their keys were not recorded, and agents were refused as copies of themselves at the next renewal.
func TestClockThatIsPutRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Seed: 4, Verbose: testing.Verbose()})
		m.Until("three voters", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		all := m.Agents()
		rotate := func(number uint32) {
			m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindCA}, nil)
			m.Until("another CA", func() bool {
				r, _ := m.AwaitLeader().View().Rotation(roster.KindCA)
				return r.Number == number && r.Phase == roster.RotationDone
			})
		}
		for _, a := range all[:3] {
			a.SetClock(time.Hour)
		}
		rotate(1)
		for _, a := range all[:3] {
			a.SetClock(0)
		}
		rotate(2)
		before := all[3].Membership().Certificate
		time.Sleep(mesh.Lifetime)
		if slices.Equal(all[3].Membership().Certificate, before) {
			t.Error("the worker's certificate was not renewed")
		}
		for _, a := range all {
			m.Until("the key of "+a.Name+" to be on record", func() bool {
				key, err := a.Membership().KeyID()
				who, ok := m.AwaitLeader().View().Identity(a.ID)
				return err == nil && ok && who.Newest() == key && m.Leader().Records()[a.ID]
			})
		}
	})
}
