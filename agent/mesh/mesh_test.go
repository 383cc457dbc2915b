package mesh

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/testing/doubles/fabric"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testKey = []byte("0123456789abcdef0123456789abcdef")

func idOf(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
func ipOf(i int) string { return fmt.Sprintf("10.0.%d.%d", i/200, i%200+1) }

func seedAddr(i int) string { return ipOf(i) + ":55056" }

// node is the mesh of one agent on a simulated host.
type node struct {
	*Mesh
	host   *fabric.Host
	cancel context.CancelFunc
	done   chan error
}

// lab is a mesh of agents on a simulated network.
type lab struct {
	t     *testing.T
	f     *fabric.Fabric
	nodes []*node
}

// inLab runs a test in simulated time on a fabric and stops its agents at the end.
func inLab(t *testing.T, seed uint64, test func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{t: t, f: fabric.New(seed)}
		defer time.Sleep(Linger)
		defer func() {
			for _, n := range l.nodes {
				n.stop(t)
			}
		}()
		test(l)
	})
}

// start runs agent i at an address. It joins through agents 0 and 1 unless change sets other addresses.
func (l *lab) start(i int, ip string, change func(*Config)) *node {
	l.t.Helper()
	h := l.f.Host(ip)
	g, err := h.Gossip(DefaultPort)
	if err != nil {
		l.t.Fatal(err)
	}
	cfg := Config{
		ID: idOf(i), Transport: g, GossipKeys: [][]byte{testKey}, Self: Self{Name: fmt.Sprint("agent-", i), RPCAddr: ip + ":55055"},
		Join: []string{seedAddr(0), seedAddr(1)},
	}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{Mesh: m, host: h, cancel: cancel, done: make(chan error, 1)}
	go func() { n.done <- m.Run(ctx) }()
	l.nodes = append(l.nodes, n)
	return n
}

// stop ends the agent's mesh without announcing that it leaves.
func (n *node) stop(t testing.TB) {
	n.cancel()
	select {
	case <-n.stopped:
	default:
		if err := <-n.done; err != nil {
			t.Errorf("%s: %v", n.cfg.ID, err)
		}
	}
}

func (l *lab) startMany(count int) []*node {
	var out []*node
	for i := range count {
		out = append(out, l.start(i, ipOf(i), nil))
	}
	return out
}

// within waits for a condition in simulated time and returns the duration of the wait.
func (l *lab) within(limit time.Duration, what string, ok func() bool) time.Duration {
	l.t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > limit {
			l.t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(begin)
}

// all returns a condition: every node sees exactly want agents with a status.
func all(nodes []*node, status Status, want int) func() bool {
	return func() bool {
		for _, n := range nodes {
			if countStatus(n.Mesh, status) != want {
				return false
			}
		}
		return true
	}
}

// sees returns a condition: all nodes see the agent with a status.
func sees(nodes []*node, id string, want Status) func() bool {
	return func() bool {
		for _, n := range nodes {
			if m, _ := n.Member(id); m.Status != want {
				return false
			}
		}
		return true
	}
}

func ips(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, ipOf(i))
	}
	return out
}

func TestAgentsFindEachOtherAndNoticeADeath(t *testing.T) {
	for _, count := range []int{2, 3, 5, 50} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				l.f.SetQuality(fabric.Quality{Delay: 500 * time.Microsecond, Jitter: time.Millisecond, Loss: 0.01})
				nodes := l.startMany(count)
				t.Log("complete after", l.within(2*time.Minute, "all in every view", all(nodes, StatusAlive, count)))
				victim := nodes[count-1]
				victim.host.PowerOff()
				t.Log("death known to all after", l.within(10*time.Second, "the death in every view",
					sees(nodes[:count-1], victim.cfg.ID, StatusFailed)))
			})
		})
	}
}

func TestEverythingAboutAnAgentTravels(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		self := Self{Name: "host-7", RPCAddr: "10.0.0.7:55055", APIAddr: "10.0.0.7:55054", Build: "1.2.3", FeatureLevel: 4, Zone: "rack-2",
			Class: "big", Eligible: true, PluginsHash: "cafe", BootstrapExpect: 3}
		one := l.start(0, ipOf(0), nil)
		two := l.start(1, ipOf(1), func(c *Config) { c.Self = self })
		l.within(time.Minute, "agent 1 known", sees([]*node{one}, two.cfg.ID, StatusAlive))
		got, _ := one.Member(two.cfg.ID)
		if got.Self != self || got.Addr != seedAddr(1) || got.Epoch != two.Epoch() || got.Gossip != StatusAlive || got.Record != StatusNone {
			t.Errorf("%+v", got)
		}
		changed, stop := one.Subscribe()
		defer stop()
		self.Zone, self.FeatureLevel = "rack-3", 5
		if err := two.SetSelf(self); err != nil {
			t.Fatal(err)
		}
		l.within(time.Minute, "the change known", func() bool {
			select {
			case <-changed:
			default:
			}
			got, _ := one.Member(two.cfg.ID)
			return got.Self == self
		})
	})
}

func TestPartitionHeals(t *testing.T) {
	for _, how := range []fabric.Cut{fabric.Blackhole, fabric.Reset} {
		inLab(t, 2, func(l *lab) {
			nodes := l.startMany(5)
			l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 5))
			l.f.Partition(how, ips(0, 2), ips(2, 5))
			l.within(time.Minute, "the smaller side is alone", all(nodes[:2], StatusAlive, 2))
			l.within(time.Minute, "the larger side is alone", all(nodes[2:], StatusAlive, 3))
			time.Sleep(2 * time.Minute)
			l.f.Heal()
			t.Log("whole again after", l.within(2*time.Minute, "whole again", all(nodes, StatusAlive, 5)))
		})
	}
}

// An isolated host returns to the mesh without help.
func TestIsolatedAgentComesBack(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		nodes := l.startMany(5)
		l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 5))
		l.f.Partition(fabric.Blackhole, []string{ipOf(4)})
		l.within(time.Minute, "alone", all(nodes[4:], StatusAlive, 1))
		l.f.Heal()
		t.Log("back after", l.within(2*time.Minute, "whole again", all(nodes, StatusAlive, 5)))
	})
}

// Two meshes merge if only one agent has a join address of the other mesh.
func TestHalvesThatNeverMetFindTogether(t *testing.T) {
	inLab(t, 4, func(l *lab) {
		l.f.Host(ipOf(2))
		l.f.Partition(fabric.Blackhole, ips(0, 2), ips(2, 4))
		var nodes []*node
		for i := range 4 {
			nodes = append(nodes, l.start(i, ipOf(i), func(c *Config) { c.Join = []string{seedAddr(i &^ 1)} }))
		}
		nodes[1].SetJoin([]string{seedAddr(0), seedAddr(2)})
		l.within(time.Minute, "two halves", all(nodes, StatusAlive, 2))
		l.f.Heal()
		l.within(10*time.Minute, "one mesh", all(nodes, StatusAlive, 4))
	})
}

func TestCrashAndReturnAtAnotherAddress(t *testing.T) {
	for name, wait := range map[string]time.Duration{"at once": 0, "soon": time.Second, "later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 5, func(l *lab) {
				peers := t.TempDir() + "/peers.json"
				nodes := l.startMany(4)
				moving := l.start(4, ipOf(4), func(c *Config) { c.PeersFile = peers })
				l.within(time.Minute, "all in every view", all(append(nodes, moving), StatusAlive, 5))
				time.Sleep(10 * time.Second)
				old := moving.Epoch()
				moving.host.Crash()
				moving.stop(t)
				time.Sleep(wait)
				// Without join addresses the agent has only its peers file.
				moved := l.start(4, "10.9.9.9", func(c *Config) { c.PeersFile = peers; c.Join = nil })
				took := l.within(2*time.Minute, "the new address in every view", func() bool {
					for _, n := range append(nodes, moved) {
						if m, _ := n.Member(idOf(4)); m.Status != StatusAlive || m.Addr != "10.9.9.9:55056" || m.Epoch <= old {
							return false
						}
					}
					return all(append(nodes, moved), StatusAlive, 5)()
				})
				t.Log("back after", took)
			})
		})
	}
}

// TestLeaveIsKnownAtOnceAndRejoinWorks has many lives: gossip alone misses an agent in one of thirty.
func TestLeaveIsKnownAtOnceAndRejoinWorks(t *testing.T) {
	for i := range 30 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			leaveAndRejoin(t)
		})
	}
}

func leaveAndRejoin(t *testing.T) {
	inLab(t, 6, func(l *lab) {
		nodes := l.startMany(5)
		l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 5))
		if err := nodes[4].Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // each agent answers before it reads what it was told
		if !sees(nodes[:4], idOf(4), StatusLeft)() {
			t.Error("a goodbye is not known when Leave returns")
		}
		nodes[4].stop(t)
		if err := nodes[4].Leave(context.Background()); err == nil {
			t.Error("leaving after the end")
		}
		time.Sleep(time.Minute)
		l.nodes = l.nodes[:4]
		back := l.start(4, ipOf(4), nil)
		l.within(time.Minute, "back", all(append(nodes[:4:4], back), StatusAlive, 5))
	})
}

func TestLeaveWhenCutOffGivesUp(t *testing.T) {
	inLab(t, 7, func(l *lab) {
		nodes := l.startMany(3)
		l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 3))
		l.f.Partition(fabric.Blackhole, []string{ipOf(2)})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if err := nodes[2].Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		nodes[2].stop(t) // while it is leaving
	})
}

func TestRemove(t *testing.T) {
	inLab(t, 8, func(l *lab) {
		nodes := l.startMany(4)
		l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 4))
		ctx := context.Background()
		for id, want := range map[string]error{idOf(1): ErrAlive, idOf(99): ErrUnknown} {
			if err := nodes[0].Remove(ctx, id); !errors.Is(err, want) {
				t.Error(err)
			}
		}
		nodes[3].host.PowerOff()
		nodes[3].stop(t)
		l.within(time.Minute, "death known", sees(nodes[:3], idOf(3), StatusFailed))
		if err := nodes[0].Remove(ctx, idOf(3)); err != nil {
			t.Fatal(err)
		}
		l.within(time.Minute, "gone from every view", sees(nodes[:3], idOf(3), StatusNone))
		time.Sleep(5 * time.Minute)
		if !sees(nodes[:3], idOf(3), StatusNone)() {
			t.Error("it came back from the dead")
		}
	})
}

func TestAgentsWithAnotherKeyStayOut(t *testing.T) {
	inLab(t, 9, func(l *lab) {
		nodes := l.startMany(2)
		stranger := l.start(2, ipOf(2), func(c *Config) { c.GossipKeys = [][]byte{[]byte("another key of thirty-two bytes.")} })
		plain := l.start(3, ipOf(3), func(c *Config) { c.GossipKeys = nil })
		l.within(time.Minute, "the two", all(nodes, StatusAlive, 2))
		time.Sleep(2 * time.Minute)
		if !all(nodes, StatusAlive, 2)() || stranger.view.size() != 1 || plain.view.size() != 1 {
			t.Error("a stranger is in")
		}
		if _, err := stranger.Join(context.Background(), []string{seedAddr(0)}); err == nil {
			t.Error("a stranger was taken in")
		}
	})
}

// The keys change while gossip goes on. Who has not followed is not heard any more, and nobody changes the keys by gossip.
func TestKeyRotation(t *testing.T) {
	inLab(t, 10, func(l *lab) {
		var nodes []*node
		for i := range 4 {
			nodes = append(nodes, l.start(i, ipOf(i), nil))
		}
		l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 4))
		set := func(nodes []*node, keys ...[]byte) {
			t.Helper()
			for _, n := range nodes {
				if err := n.SetKeys(keys); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second) // the others have other keys meanwhile
			}
		}
		next := []byte("fedcba9876543210fedcba9876543210")
		for _, bad := range [][][]byte{nil, {[]byte("short")}} {
			if err := nodes[0].SetKeys(bad); err == nil {
				t.Error(bad, "are keys")
			}
		}
		set(nodes, testKey, next)
		set(nodes, next, testKey)
		for _, key := range [][]byte{testKey, []byte("a key of somebody who listens in")} {
			if _, err := nodes[3].now().serf.KeyManager().InstallKey(base64.StdEncoding.EncodeToString(key)); err == nil {
				t.Error("an agent has changed the keys of all")
			}
		}
		if !all(nodes, StatusAlive, 4)() {
			t.Error("an agent was lost")
		}
		set(nodes[3:], testKey)
		three := nodes[:3]
		set(three, next)
		l.within(time.Minute, "the fourth one is not heard", sees(three, idOf(3), StatusFailed))
		if _, err := nodes[3].Join(context.Background(), []string{seedAddr(0)}); err == nil {
			t.Error("an agent with the old key was taken in")
		}
		if err := nodes[3].SetKeys([][]byte{next}); err != nil {
			t.Fatal(err)
		}
		l.within(time.Minute, "all four", all(nodes, StatusAlive, 4))
	})
}

// Keys are removed in any order, and a ring in use is never without a key that is wanted.
func TestSetKeys(t *testing.T) {
	key := func(c byte) []byte { return bytes.Repeat([]byte{c}, 32) }
	list := func(text string) (out [][]byte) {
		for i := range len(text) {
			out = append(out, key(text[i]))
		}
		return out
	}
	for _, c := range []struct{ have, want string }{{"a", "a"}, {"a", "ab"}, {"ab", "ba"}, {"ba", "b"}, {"a", "cb"}, {"abc", "c"}, {"abcd", "db"}} {
		ring, err := newKeyring(list(c.have))
		if err != nil {
			t.Fatal(err)
		}
		before := ring.GetKeys()
		copied := slices.Clone(before)
		changed, err := setKeys(ring, list(c.want))
		got := ring.GetKeys()
		if err != nil || changed != (c.have != c.want) || len(got) != len(c.want) || !bytes.Equal(got[0], key(c.want[0])) {
			t.Errorf("%s to %s: %v %v %q", c.have, c.want, err, changed, got)
		}
		if !slices.EqualFunc(before, copied, bytes.Equal) {
			t.Errorf("%s to %s: the list that a reader has was changed", c.have, c.want)
		}
	}
}

// A growing mesh changes to the profile calm, and a shrinking one back to quick. The views stay
// complete during the change.
func TestPaceFollowsSize(t *testing.T) {
	if testing.Short() {
		t.Skip("seventy agents: left out with -short")
	}
	inLab(t, 11, func(l *lab) {
		pace := func(nodes []*node, want Profile) func() bool {
			return func() bool {
				for _, n := range nodes {
					if n.Health().Profile != want {
						return false
					}
				}
				return true
			}
		}
		few := l.startMany(10)
		l.within(time.Minute, "ten", all(few, StatusAlive, 10))
		if !pace(few, quick)() {
			t.Error("ten agents are not quick")
		}
		var more []*node
		for i := 10; i < 70; i++ {
			more = append(more, l.start(i, ipOf(i), nil))
		}
		nodes := append(few[:10:10], more...)
		l.within(5*time.Minute, "calm", pace(nodes, calm))
		l.within(5*time.Minute, "seventy", all(nodes, StatusAlive, 70))
		// Deaths are still detected after the change, including those of agents that have just
		// joined the new generation.
		for _, n := range more[:35] {
			n.stop(t)
		}
		left := append(few[:10:10], more[35:]...)
		t.Log("35 deaths known after", l.within(10*time.Minute, "deaths known", all(left, StatusAlive, 35)))
		l.within(10*time.Minute, "quick again", pace(left, quick))
		time.Sleep(time.Minute)
		if !all(left, StatusAlive, 35)() {
			t.Error("views changed with the pace")
		}
	})
}
