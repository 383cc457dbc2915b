package voters_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/raftgroup/voters"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// mesh is a cluster whose leader runs the Controller.
type mesh struct {
	*grouptest.Cluster
	t       *testing.T
	mu      sync.Mutex
	zone    map[string]string
	leaving map[string]bool
	ends    map[string]func()
}

func startMesh(t *testing.T, n int) *mesh {
	m := &mesh{Cluster: grouptest.New(t, grouptest.Options{}), t: t,
		zone: map[string]string{}, leaving: map[string]bool{}, ends: map[string]func(){}}
	m.join("a", "za")
	if err := m.Member("a").Group().Bootstrap(context.Background(),
		[]raftgroup.Server{{ID: "a", Addr: m.Member("a").Addr, Voter: true}}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < n; i++ {
		id := string(rune('a' + i))
		m.join(id, "z"+id)
	}
	return m
}

func (m *mesh) join(id, zone string) {
	m.mu.Lock()
	m.zone[id] = zone
	m.mu.Unlock()
	m.lead(m.Add(id))
}

// lead runs the member's terms.
func (m *mesh) lead(x *grouptest.Member) {
	g := x.Group()
	k, err := voters.NewController(voters.Config{Group: g, Candidates: m.candidates})
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := leader.New(leader.Config{Group: g, Duties: func(uint64) []leader.Duty { return []leader.Duty{k} }})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			m.t.Error(err)
		}
	}()
	m.mu.Lock()
	m.ends[x.ID] = func() { cancel(); <-done }
	m.mu.Unlock()
}

func (m *mesh) candidates() []voters.Candidate {
	var out []voters.Candidate
	for i, x := range m.Members() {
		m.mu.Lock()
		if zone, ok := m.zone[x.ID]; ok {
			out = append(out, voters.Candidate{ID: x.ID, Addr: x.Addr, Zone: zone, Eligible: true, Alive: x.Up(),
				Leaving: m.leaving[x.ID], JoinedAt: time.Unix(int64(i), 0)})
		}
		m.mu.Unlock()
	}
	return out
}

func (m *mesh) crash(id string) {
	m.Member(id).Crash()
	m.mu.Lock()
	end := m.ends[id]
	m.mu.Unlock()
	end()
}

func (m *mesh) restart(id string) {
	m.Member(id).Start()
	m.lead(m.Member(id))
}

// leave makes an agent leave in good order.
func (m *mesh) leave(id string) {
	m.t.Helper()
	m.mu.Lock()
	m.leaving[id] = true
	m.mu.Unlock()
	if err := m.Member(id).Group().WaitNoVote(context.Background()); err != nil {
		m.t.Fatal(err)
	}
	m.crash(id)
	m.mu.Lock()
	delete(m.zone, id) // the mesh learns that the agent has left
	m.mu.Unlock()
}

func (m *mesh) stop() {
	m.Stop()
	for _, end := range m.ends {
		end()
	}
}

// expect waits until the group consists of these members; "(x)" is a member without a vote.
func (m *mesh) expect(want ...string) {
	m.t.Helper()
	m.Apply(strings.Join(want, " "))
	var got []string
	defer func() {
		if m.t.Failed() {
			m.t.Logf("the group is %v, want %v", got, want)
		}
	}()
	m.Until(fmt.Sprintf("the group %v", want), func() bool {
		lead := m.Leader().Group()
		servers, _ := lead.ServersAt()
		got = nil
		for _, s := range servers {
			id := s.ID
			if !s.Voter {
				id = "(" + id + ")"
			}
			got = append(got, id)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
	m.Apply("and it works")
}

func inMesh(t *testing.T, n int, f func(m *mesh)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := startMesh(t, n)
		defer m.stop()
		f(m)
	})
}

func TestGrowAndShrink(t *testing.T) {
	inMesh(t, 1, func(m *mesh) {
		m.expect("a")
		m.join("b", "zb")
		m.expect("(b)", "a")
		m.join("c", "zc")
		m.expect("a", "b", "c")
		m.join("d", "zd")
		m.join("e", "ze")
		m.expect("a", "b", "c", "d", "e")
		m.join("f", "zf")
		m.expect("a", "b", "c", "d", "e")
		for len(m.zone) > 1 {
			m.leave(m.Leader().ID) // the leader is the hardest member to replace
		}
		m.expect(m.Leader().ID)
	})
}

func TestKilledVoterIsReplacedBySpare(t *testing.T) {
	inMesh(t, 4, func(m *mesh) {
		m.expect("a", "b", "c")
		m.crash("b")
		m.expect("a", "c", "d")
		m.restart("b") // with its old log and its old configuration of the group
		m.expect("a", "c", "d")
		m.crash("a")
		m.expect("b", "c", "d")
	})
}

func TestSickVoterIsReplacedThoughItGossips(t *testing.T) {
	inMesh(t, 4, func(m *mesh) {
		m.expect("a", "b", "c")
		// Its Raft stops by itself, but the mesh still considers it alive. So it does not
		// get its vote back before the Controller has seen its silence.
		m.Member("c").Disk.Hang()
		m.Apply("x")
		m.expect("a", "b", "d")
	})
}

func TestDeadVoterWithoutSpareStaysAndReturns(t *testing.T) {
	inMesh(t, 3, func(m *mesh) {
		m.expect("a", "b", "c")
		m.crash("c")
		<-time.After(15 * time.Minute) // of simulated time
		m.expect("a", "b", "c")
		m.restart("c")
		m.crash("b")
		m.expect("a", "b", "c")
	})
}

func TestMovedAgentIsFollowed(t *testing.T) {
	inMesh(t, 3, func(m *mesh) {
		m.expect("a", "b", "c")
		lead := m.Leader().ID
		moved := "a"
		if lead == "a" {
			moved = "b"
		}
		m.crash(moved)
		<-time.After(5 * time.Second)
		m.Member(moved).Addr = "elsewhere"
		m.restart(moved)
		m.Until("the new address to be known", func() bool {
			for _, s := range m.Leader().Group().Servers() {
				if s.ID == moved {
					return s.Addr == "elsewhere"
				}
			}
			return false
		})
		m.expect("a", "b", "c")
		m.Agree()
	})
}

func TestZonesBySwap(t *testing.T) {
	inMesh(t, 1, func(m *mesh) {
		m.expect("a")
		m.join("b", "za")
		m.join("c", "zc")
		m.expect("a", "b", "c")
		m.join("d", "zd")
		m.expect("a", "c", "d")
	})
}

// unrest hands the leadership on every few seconds until end is called.
func (m *mesh) unrest(every time.Duration) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
			for _, x := range m.Members() {
				if g := x.Group(); g != nil && g.IsLeader() {
					_ = g.Transfer(context.Background(), "") // fails while nobody else can lead
				}
			}
		}
	}()
	return func() { close(stop); <-done }
}

// TestDeadVoterIsReplacedThoughNoTermLasts: what a leader knows of a member's silence and health
// outlives its term, so that endless elections do not keep a dead voter in the group.
func TestDeadVoterIsReplacedThoughNoTermLasts(t *testing.T) {
	inMesh(t, 4, func(m *mesh) {
		m.expect("a", "b", "c")
		m.crash("b")
		defer m.unrest(4 * time.Second)()
		m.expect("a", "c", "d")
	})
}
