package mesh_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/mesh"
)

// partition is a fault of the leader: cut returns the agents that are on its side, and begins it.
type partition struct {
	name  string
	begin func(m *mesh.Mesh, leader *mesh.Agent)
	// side is how many agents are on the side of the leader, which reaches no majority.
	side int
}

var partitions = []partition{
	{"killed", func(_ *mesh.Mesh, l *mesh.Agent) { l.Crash() }, 0},
	{"frozen", func(_ *mesh.Mesh, l *mesh.Agent) { l.Freeze() }, 0},
	{"cannot hear", func(m *mesh.Mesh, l *mesh.Agent) { oneWay(m, l, false) }, 1},
	{"cannot send", func(m *mesh.Mesh, l *mesh.Agent) { oneWay(m, l, true) }, 1},
	{"isolated", func(m *mesh.Mesh, l *mesh.Agent) { m.Cut("off", []*mesh.Agent{l}) }, 1},
	{"in the minority", func(m *mesh.Mesh, l *mesh.Agent) {
		side := minority(m, l)
		m.Cut("off", side, rest(m, side))
	}, 2},
}

// oneWay cuts what the leader sends to all others, or what they send to it.
func oneWay(m *mesh.Mesh, l *mesh.Agent, sends bool) {
	for i, other := range m.Agents() {
		switch {
		case other == l:
		case sends:
			m.CutOneWay(fmt.Sprint("one way ", i), l, other)
		default:
			m.CutOneWay(fmt.Sprint("one way ", i), other, l)
		}
	}
}

// minority returns the largest set of agents with the leader that is no majority.
func minority(m *mesh.Mesh, l *mesh.Agent) []*mesh.Agent {
	side := []*mesh.Agent{l}
	for _, a := range m.Agents() {
		if a != l && len(side) < (len(m.Agents())-1)/2 {
			side = append(side, a)
		}
	}
	return side
}

func rest(m *mesh.Mesh, side []*mesh.Agent) (out []*mesh.Agent) {
	for _, a := range m.Agents() {
		if !contains(side, a) {
			out = append(out, a)
		}
	}
	return out
}

func contains(list []*mesh.Agent, a *mesh.Agent) bool {
	for _, b := range list {
		if a == b {
			return true
		}
	}
	return false
}

// TestGaps causes each fault of a leader, and has clients write: no client waits longer than two seconds,
// whichever agent it asks first, and an agent that reaches no majority answers with that error within 600 ms.
// The time-outs are those of real agents.
func TestGaps(t *testing.T) {
	sizes, partitions := []int{3, 5}, partitions
	if testing.Short() {
		sizes, partitions = sizes[:1], partitions[:1]
	}
	for _, n := range sizes {
		for _, p := range partitions {
			t.Run(fmt.Sprintf("%d agents/%s", n, p.name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { gaps(t, n, p) })
			})
		}
	}
}

// lostSize is a hardware type that is written to agents which reach no majority.
const lostSize = `{"name":"lost","providermap":{"sim":{"flavor":"small"}}}`

func gaps(t *testing.T, n int, p partition) {
	m := mesh.New(t, mesh.Options{Agents: n, Seed: uint64(n), Timing: raftgroup.Timing{HeartbeatTimeout: 150 * time.Millisecond}})
	m.Until("all to vote", func() bool { return len(m.Voters()) == n })
	leader := m.AwaitLeader()
	lost := minority(m, leader)[:min(p.side, (n-1)/2)]
	ctx, cancel := context.WithCancel(context.Background())
	longest := make(chan string, n)
	for i := range n {
		go func() {
			gap, err := writes(ctx, m, i)
			if err != nil {
				t.Errorf("the client of agent %d: %v", i, err)
			}
			if gap > 2*time.Second {
				t.Errorf("the client of agent %d waited %v for an answer", i, gap)
			}
			longest <- fmt.Sprint(gap)
		}()
	}
	time.Sleep(time.Second)
	p.begin(m, leader)
	for i := range 40 {
		for _, a := range lost {
			begun := time.Now()
			code, body := a.Call("PUT", "/v1/hardwaretypes/lost", []byte(lostSize), fmt.Sprint("lost-", a.Name, i))
			if took := time.Since(begun); took > 600*time.Millisecond {
				t.Errorf("%s, which reaches no majority, answered %d after %v: %s", a.Name, code, took, body)
			}
			if i > 10 && code != http.StatusServiceUnavailable {
				t.Errorf("%s, which reaches no majority, answered %d: %s", a.Name, code, body)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	cancel()
	for range n {
		t.Log(<-longest)
	}
}

// writes writes until ctx ends, each time beginning with agent first, and returns the longest time that a write took.
func writes(ctx context.Context, m *mesh.Mesh, first int) (gap time.Duration, err error) {
	var addresses []string
	for i := range m.Agents() {
		addresses = append(addresses, fmt.Sprint("agent-", (first+i)%len(m.Agents())))
	}
	for n := 0; ; n++ {
		c, err := client.New(client.Config{Addresses: addresses, Token: mesh.Token, Transport: mesh.Transport{Mesh: m}})
		if err != nil {
			return gap, err
		}
		begun := time.Now()
		body, _ := json.Marshal(map[string]any{"name": fmt.Sprint("small-", first), "description": fmt.Sprint(n),
			"providermap": map[string]any{"sim": map[string]string{"flavor": "small"}}})
		_, _, err = c.PutDefinition(ctx, model.KindHardwareType, fmt.Sprint("small-", first), body)
		if ctx.Err() != nil {
			return gap, nil
		}
		if err != nil {
			return gap, err
		}
		gap = max(gap, time.Since(begun))
		select {
		case <-ctx.Done():
			return gap, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}
