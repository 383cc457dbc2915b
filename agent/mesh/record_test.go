package mesh

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/testing/doubles/fabric"
)

// recorded returns a node's record in the agent registry.
func recorded(n *node, status Status) Member {
	return Member{ID: n.cfg.ID, Self: n.Self(), Addr: n.Addr(), Epoch: n.Epoch(), Status: status}
}

func TestRecordCompletesTheView(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		one := l.start(0, ipOf(0), nil)
		absent := Member{ID: idOf(7), Self: Self{Name: "seven", RPCAddr: "10.0.0.7:55055"}, Addr: "10.0.0.7:55056", Epoch: 5, Status: StatusAlive}
		changed, stop := one.Subscribe()
		defer stop()
		one.Repair([]Member{recorded(one, StatusAlive), absent}, nil)
		got, ok := one.Member(idOf(7))
		if !ok || got.Status != StatusAlive || got.Record != StatusAlive || got.Gossip != StatusNone || got.RPCAddr != "10.0.0.7:55055" {
			t.Errorf("%+v", got)
		}
		select {
		case <-changed:
		default:
			t.Error("nobody was told")
		}
		one.Repair([]Member{recorded(one, StatusAlive), absent}, nil)
		select {
		case <-changed:
			t.Error("told of no change")
		default:
		}
		one.Repair(nil, nil)
		if _, ok := one.Member(idOf(7)); ok {
			t.Error("an agent that neither source knows is in the view")
		}
	})
}

// An agent joins agents that gossip does not know if they are in the agent registry.
func TestRecordLeadsGossip(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		one := l.start(0, ipOf(0), func(c *Config) { c.Join = nil })
		two := l.start(5, ipOf(5), func(c *Config) { c.Join = nil })
		time.Sleep(time.Minute)
		one.Repair([]Member{recorded(one, StatusAlive), recorded(two, StatusAlive)}, nil)
		l.within(time.Minute, "gossip too", func() bool { m, _ := two.Member(idOf(0)); return m.Gossip == StatusAlive })
	})
}

func TestRecordedDeathIsKnownAtOnce(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		nodes := l.startMany(3)
		l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 3))
		victim := nodes[2]
		victim.host.PowerOff()
		begin := time.Now()
		for _, n := range nodes[:2] {
			n.Repair([]Member{recorded(nodes[0], StatusAlive), recorded(nodes[1], StatusAlive), recorded(victim, StatusFailed)}, nil)
		}
		if !sees(nodes[:2], victim.cfg.ID, StatusFailed)() || time.Since(begin) != 0 {
			t.Error("a recorded death waits for gossip")
		}
		if m, _ := nodes[0].Member(victim.cfg.ID); m.Gossip != StatusAlive {
			t.Error("gossip cannot know yet")
		}
	})
}

// A living agent that is recorded as dead refutes the record with a higher epoch, and all agents
// accept that. A record that remains wrong has no effect.
func TestWrongRecordIsContradicted(t *testing.T) {
	for _, status := range []Status{StatusFailed, StatusLeft} {
		inLab(t, 4, func(l *lab) {
			nodes := l.startMany(3)
			l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 3))
			before := nodes[2].Epoch()
			wrong := []Member{recorded(nodes[0], StatusAlive), recorded(nodes[1], StatusAlive), recorded(nodes[2], status)}
			for _, n := range nodes[:2] {
				n.Repair(wrong, nil)
			}
			if !sees(nodes[:2], idOf(2), status)() {
				t.Fatal("the record is not believed")
			}
			nodes[2].Repair(wrong, nil)
			if me, _ := nodes[2].Member(idOf(2)); me.Status != StatusAlive {
				t.Error("an agent believes in its own death")
			}
			l.within(time.Minute, "alive again", all(nodes, StatusAlive, 3))
			if nodes[2].Epoch() <= before {
				t.Error("without a higher epoch")
			}
			epoch := nodes[2].Epoch()
			nodes[2].Repair(wrong, nil) // the wrong record arrives late
			time.Sleep(time.Second)
			if nodes[2].Epoch() != epoch {
				t.Error("contradicts what is contradicted already")
			}
		})
	}
}

// An agent whose clock was set back can still refute records about itself.
func TestRecordFromTheFuture(t *testing.T) {
	inLab(t, 5, func(l *lab) {
		nodes := l.startMany(2)
		l.within(time.Minute, "both", all(nodes, StatusAlive, 2))
		old := recorded(nodes[1], StatusAlive)
		old.Epoch += 1 << 40
		old.Zone = "where it was in its last life"
		for _, n := range nodes {
			n.Repair([]Member{recorded(nodes[0], StatusAlive), old}, nil)
		}
		l.within(time.Minute, "its own word", func() bool {
			m, _ := nodes[0].Member(idOf(1))
			return m.Epoch > old.Epoch && m.Zone == "" && m.Status == StatusAlive
		})
	})
}

// Views are complete as soon as the agents have the registry, on a network that loses almost a third
// of all gossip.
func TestViewsDoNotWaitForGossip(t *testing.T) {
	inLab(t, 6, func(l *lab) {
		l.f.SetQuality(fabric.Quality{Delay: time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.3})
		nodes := l.startMany(30)
		time.Sleep(time.Second)
		var list []Member
		for _, n := range nodes {
			list = append(list, recorded(n, StatusAlive))
		}
		for _, n := range nodes {
			n.Repair(list, nil)
		}
		for _, n := range nodes {
			if n.view.size() != 30 {
				t.Errorf("%s has %d", n.cfg.ID, n.view.size())
			}
		}
	})
}

func TestAnAgentIsAskedItself(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		nodes := l.startMany(3)
		l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 3))
		time.Sleep(time.Minute)
		if !nodes[0].Answers(l.t.Context(), nodes[2].cfg.ID) {
			t.Error("a living agent does not answer")
		}
		nodes[2].host.PowerOff()
		if nodes[0].Answers(l.t.Context(), nodes[2].cfg.ID) || nodes[0].Answers(l.t.Context(), "nobody") {
			t.Error("an answer from nobody")
		}
	})
}

// An agent that was removed from the registry disappears from every view, whether or not another agent
// has also removed it from gossip, and although one agent was cut off at that time. It is back when it
// runs again.
func TestRemovedFromTheRegistry(t *testing.T) {
	for name, remove := range map[string]bool{"gossip keeps it": false, "gossip removes it": true} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 6, func(l *lab) {
				dir := t.TempDir()
				file := func(i int) string { return fmt.Sprintf("%s/peers-%d.json", dir, i) }
				var nodes []*node
				for i := range 4 {
					nodes = append(nodes, l.start(i, ipOf(i), func(c *Config) { c.PeersFile = file(i) }))
				}
				l.within(time.Minute, "all in every view", all(nodes, StatusAlive, 4))
				records := []Member{recorded(nodes[0], StatusAlive), recorded(nodes[1], StatusAlive), recorded(nodes[2], StatusAlive)}
				last := append(slices.Clone(records), recorded(nodes[3], StatusAlive))
				for _, n := range nodes[:3] {
					n.Repair(last, nil)
				}
				victim := nodes[3]
				victim.host.PowerOff()
				victim.stop(t)
				l.within(time.Minute, "the death is known", sees(nodes[:3], victim.cfg.ID, StatusFailed))
				l.f.Partition(fabric.Blackhole, []string{ipOf(2)})
				for _, n := range nodes[:2] {
					n.Repair(records, nil)
				}
				if !sees(nodes[:2], victim.cfg.ID, StatusNone)() {
					t.Error("it is still in a view")
				}
				if remove {
					if err := nodes[0].Remove(context.Background(), victim.cfg.ID); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(time.Minute)
				l.f.Heal()
				nodes[2].Repair(records, nil)
				l.within(time.Minute, "the three", all(nodes[:3], StatusAlive, 3))
				for range 300 {
					time.Sleep(time.Second)
					if !sees(nodes[:3], victim.cfg.ID, StatusNone)() {
						t.Fatal("it came back from the dead")
					}
				}
				for i := range 3 {
					raw, err := os.ReadFile(file(i))
					if err != nil || strings.Contains(string(raw), victim.cfg.ID) {
						t.Errorf("the peers of agent %d: %s, %v", i, raw, err)
					}
					for _, sm := range nodes[i].now().serf.Members() {
						if sm.Name == victim.cfg.ID {
							t.Errorf("agent %d: gossip has it as %s", i, sm.Status)
						}
					}
				}
				victim.host.Start()
				back := l.start(3, ipOf(3), nil)
				l.within(2*time.Minute, "it is back", all(append(slices.Clone(nodes[:3]), back), StatusAlive, 4))
			})
		})
	}
}
