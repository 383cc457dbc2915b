package mesh_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/testing/mesh"
)

// TestDeathIsToldByTheLeader: the leader announces the death of a process long before its session
// ends and before gossip can notice it; a suspicion alone takes 750 ms.
func TestDeathIsToldByTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 5, Expect: 3, Seed: 1, TTL: time.Minute, Verbose: testing.Verbose()})
		leader := m.AwaitLeader()
		see := func(n int) func() bool {
			return func() bool {
				for _, a := range m.Up() {
					if a.Sees() != n {
						return false
					}
				}
				return true
			}
		}
		m.Until("everybody on record and in every view", func() bool { return len(leader.Records()) == 5 && see(5)() })
		time.Sleep(time.Minute)
		victim := m.Agents()[4]
		if victim == leader {
			victim = m.Agents()[3]
		}
		victim.Crash()
		crash := time.Now()
		m.Until("the death in every view", see(4))
		if d := time.Since(crash); d > 700*time.Millisecond {
			t.Errorf("told after %v", d)
		}
		victim.Start()
		m.Until("its return in every view", see(5))
	})
}
