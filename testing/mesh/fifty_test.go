package mesh_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestFiftyAgents: of fifty agents, five become voters by themselves. Any agent answers and takes
// work; a dead voter is replaced automatically.
func TestFiftyAgents(t *testing.T) {
	agents := 50
	if testing.Short() {
		agents = 9
	}
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: agents, Seed: 1, Slots: 2, Verbose: *oneSeed != 0 && testing.Verbose()})
		m.Define()
		m.Until("five voters", func() bool { return len(m.Voters()) == 5 })
		m.Until("every agent in every view", func() bool {
			for _, a := range m.Agents() {
				if a.Sees() != agents {
					return false
				}
			}
			return true
		})

		// A write and a read on every agent.
		for i, a := range m.Agents() {
			name := fmt.Sprintf("service-%02d", i)
			code, body := a.Call("POST", "/v1/services", fmt.Appendf(nil, `{"name": %q}`, name), "")
			if code != 201 {
				t.Fatalf("a write on %s: %d %s", a.Name, code, body)
			}
			other := m.Agents()[(i+7)%agents]
			code, body = other.Call("GET", "/v1/services/"+name, nil, "")
			var s model.Service
			if err := json.Unmarshal(body, &s); code != 200 || err != nil || s.Name != name {
				t.Fatalf("a read on %s of what %s wrote: %d %s", other.Name, a.Name, code, body)
			}
		}

		// Work spreads over the agents.
		cluster, op := m.Create("wide", 20, "")
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		m.CheckAll()
		if n := m.World.Workers(); n < min(agents, 20)/2 {
			t.Errorf("%d agents of %d had work", n, agents)
		}

		// One voter after the other dies for good, a follower and a leader.
		for round := range 2 {
			victim := m.Leader()
			if round%2 == 0 {
				for _, v := range m.Voters() {
					if v != victim {
						victim = v
						break
					}
				}
			}
			victim.Crash()
			m.Until("five voters again, and not the dead one", func() bool {
				vs := m.Voters()
				for _, v := range vs {
					if v == victim {
						return false
					}
				}
				return len(vs) == 5
			})
		}
		op = m.Delete(cluster)
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the delete ended %s", st)
		}
		m.CheckAll()
		nothingLeft(t, m, cluster)
		time.Sleep(time.Second)
	})
}
