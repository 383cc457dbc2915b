package mesh

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/rpc/wire/fabric"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testKey = []byte("0123456789abcdef0123456789abcdef")

// node is an agent's mesh in a test, on a host of its own.
type node struct {
	*Mesh
	host *fabric.Host
	stop func()
}

func idOf(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
func ipOf(i int) string { return fmt.Sprintf("10.0.%d.%d", i/200, i%200+1) }

func seedAddr(i int) string { return ipOf(i) + ":55056" }

// start runs agent i on a host, joining by the given seeds.
func start(t testing.TB, f *fabric.Fabric, i int, ip string, change func(*Config)) *node {
	t.Helper()
	h := f.Host(ip)
	g, err := h.Gossip(DefaultPort)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{ID: idOf(i), Transport: g, GossipKey: testKey, Self: Self{Name: fmt.Sprint("agent-", i), RPCAddr: ip + ":55055"}}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent %d: %v", i, err)
		}
	}
	return &node{Mesh: m, host: h, stop: stop}
}

// alive counts the agents a node has alive.
func (n *node) alive() int {
	count := 0
	for _, m := range n.Members() {
		if m.Status == StatusAlive {
			count++
		}
	}
	return count
}

// eventually waits for a condition in simulated time, and gives the time it took.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begin)
}

func TestFiveAgentsFindEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		var nodes []*node
		for i := range 5 {
			nodes = append(nodes, start(t, f, i, ipOf(i), func(c *Config) { c.Join = []string{seedAddr(0), seedAddr(1)} }))
		}
		took := eventually(t, time.Minute, "five in every view", func() bool {
			for _, n := range nodes {
				if n.alive() != 5 {
					return false
				}
			}
			return true
		})
		t.Log("complete after", took)
		nodes[3].host.PowerOff()
		took = eventually(t, time.Minute, "the death in every view", func() bool {
			for i, n := range nodes {
				if i != 3 && n.alive() != 4 {
					return false
				}
			}
			return true
		})
		t.Log("death known after", took)
		for _, n := range nodes {
			n.stop()
		}
		time.Sleep(Linger)
	})
}
