package mesh_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// damagedMesh returns a mesh with a cluster.
func damagedMesh(t *testing.T, agents int) (m *mesh.Mesh, cluster string) {
	m = mesh.New(t, mesh.Options{Agents: agents, Seed: 41, Checkpoint: time.Minute, Verbose: testing.Verbose()})
	m.Define()
	cluster, op := m.Create("one", 3, "")
	if st := m.AwaitEnd(op); st != model.OpSucceeded {
		t.Fatalf("the create ended %s", st)
	}
	m.CheckAll()
	return m, cluster
}

// change writes something, so that the next checkpoint is due.
func change(t *testing.T, m *mesh.Mesh, tenant string) {
	t.Helper()
	if code := m.Ask("POST", "/v1/tenants", map[string]any{"name": tenant}, nil); code >= 300 {
		t.Fatalf("no new tenant: %d", code)
	}
}

// follower returns a voter that does not lead.
func follower(m *mesh.Mesh) *mesh.Agent {
	l := m.AwaitLeader()
	for _, a := range m.Voters() {
		if a != l {
			return a
		}
	}
	return nil
}

// audited counts the audit records of a type on an agent that leads.
func audited(m *mesh.Mesh, kind string) int {
	if l := m.Leader(); l != nil {
		if v := l.View(); v != nil {
			return mesh.Audited(m.T, v, kind)
		}
	}
	return 0
}

// TestDamagedStateIsReplaced changes one byte of one voter's state. The voter is named at one of the next
// two checkpoints and gets the state again; afterwards every agent answers what was written.
func TestDamagedStateIsReplaced(t *testing.T) {
	for _, c := range []struct {
		name   string
		agents int
		victim func(*mesh.Mesh) *mesh.Agent
	}{
		{"a follower", 3, follower},
		{"the leader", 3, (*mesh.Mesh).AwaitLeader},
		{"a follower of five", 5, follower},
		{"the leader of five", 5, (*mesh.Mesh).AwaitLeader},
	} {
		if testing.Short() && c.name != "the leader" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, cluster := damagedMesh(t, c.agents)
				victim := c.victim(m)
				victim.Damage(1)
				change(t, m, "first")
				m.Within(2*time.Minute+10*time.Second, 100*time.Millisecond, "the voter to be named", func() bool {
					return audited(m, "voter.differs") == 1
				})
				change(t, m, "second")
				m.Within(2*time.Minute, 100*time.Millisecond, "the voter to be repaired", func() bool { return victim.Recovered() == 1 })
				v := m.CheckEqual()
				if n := mesh.Audited(t, v, "voter.quarantined"); n != 1 {
					t.Errorf("%d records of the quarantine", n)
				}
				change(t, m, "third")
				time.Sleep(5 * time.Minute)
				v = m.CheckEqual()
				if n := mesh.Audited(t, v, "voter.differs"); n != 1 {
					t.Errorf("%d records of a voter that differs", n)
				}
				for _, a := range m.Agents() {
					code, body := a.Call("GET", "/v1/clusters/"+cluster+"?consistency=consistent", nil, "")
					var got model.Cluster
					if err := json.Unmarshal(body, &got); code != http.StatusOK || err != nil || got.Name != "one" {
						t.Errorf("%s answers %d, name %q, %v", a.Name, code, got.Name, err)
					}
					if a != victim && a.Recovered() != 0 {
						t.Errorf("%s was repaired %d times", a.Name, a.Recovered())
					}
				}
			})
		})
	}
}

// TestVoterThatDiffersDoesNotLead hands the leadership to a voter whose state is known to differ. It gives it away and decides nothing,
// until its state is right again.
func TestVoterThatDiffersDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := damagedMesh(t, 3)
		m.AwaitLeader()
		victim := follower(m)
		victim.Damage(1)
		change(t, m, "first")
		m.Within(2*time.Minute+10*time.Second, 100*time.Millisecond, "the voter to be named", func() bool {
			return audited(m, "voter.differs") == 1
		})
		for range 5 {
			l := m.AwaitLeader()
			term := l.Term()
			if err := l.HandTo(victim); err != nil {
				t.Fatal(err)
			}
			m.Within(10*time.Second, 10*time.Millisecond, "the leader after the voter that differs", func() bool {
				l := m.Leader()
				if l == victim {
					t.Fatal("the voter that differs leads")
				}
				return l != nil && l.Term() > term+1
			})
		}
		change(t, m, "second")
		m.Within(3*time.Minute, 100*time.Millisecond, "the voter to be repaired", func() bool { return victim.Recovered() == 1 })
		change(t, m, "third")
		m.Within(3*time.Minute, 100*time.Millisecond, "the voter to agree", func() bool { return audited(m, "voter.agrees") == 1 })
		m.CheckEqual()
		if err := m.AwaitLeader().HandTo(victim); err != nil {
			t.Fatal(err)
		}
		m.Until("the repaired voter to lead", func() bool { return m.Leader() == victim })
	})
}

// TestCopiesMakeRoom fills the disk of a voter that runs. Its damaged copies go, the oldest first, until it has room. The
// newest goes only while the others have a leader.
func TestCopiesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := damagedMesh(t, 3)
		m.AwaitLeader()
		victim := follower(m)
		for copies := 2; copies > 0; copies-- {
			victim.PutCopies(copies)
			victim.FillDisk()
			m.Within(2*time.Minute, 100*time.Millisecond, "a copy to make room", func() bool {
				change(t, m, fmt.Sprint("full-", copies, "-", time.Now().UnixNano()))
				return victim.Copies() < copies
			})
			m.CheckEqual()
			if n := victim.Copies(); n != copies-1 {
				t.Errorf("%d of %d copies are left", n, copies)
			}
		}
	})
}

// TestNoMajority damages two of three voters in different ways. Nobody knows which state is right, so
// there is an alarm, and every voter keeps its state.
func TestNoMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := damagedMesh(t, 3)
		m.AwaitLeader()
		for i, a := range m.Voters()[:2] {
			a.Damage(1 << i)
		}
		change(t, m, "first")
		m.Within(2*time.Minute+10*time.Second, 100*time.Millisecond, "the alarm", func() bool { return audited(m, "voters.differ") == 1 })
		for _, tenant := range []string{"second", "third", "fourth"} {
			change(t, m, tenant)
			time.Sleep(time.Minute)
		}
		if n := audited(m, "voters.differ"); n != 1 {
			t.Errorf("%d alarms about one thing", n)
		}
		for _, a := range m.Agents() {
			if a.Recovered() != 0 {
				t.Errorf("%s has put its state aside", a.Name)
			}
		}
	})
}
