package mesh

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
	"pgregory.net/rapid"
)

func drawMember(t *rapid.T, label string) Member {
	status := Status(rapid.IntRange(0, 4).Draw(t, label+" status"))
	if status == StatusNone {
		return Member{}
	}
	return Member{
		ID: idOf(1), Addr: label, Epoch: rapid.Uint64Range(1, 3).Draw(t, label+" epoch"), Status: status,
		Self: Self{Name: label, FeatureLevel: uint32(rapid.IntRange(0, 2).Draw(t, label+" level"))},
	}
}

// TestMergeRule checks that Merge never returns a result that its rule forbids.
func TestMergeRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, r := drawMember(t, "gossip"), drawMember(t, "record")
		m := Merge(g, r)
		if m.Gossip != g.Status || m.Record != r.Status {
			t.Fatal("the sources are not told apart")
		}
		switch {
		case g.Status == StatusNone && r.Status == StatusNone:
			if m.Status != StatusNone {
				t.Fatal("an agent out of nothing")
			}
		case m.Epoch < max(g.Epoch, r.Epoch):
			t.Fatal("old news won")
		case g.Epoch == r.Epoch && m.Status < max(g.Status, r.Status):
			t.Fatal("a death was not believed")
		case g.Epoch > r.Epoch && m.Status != g.Status, r.Epoch > g.Epoch && m.Status != r.Status:
			t.Fatal("news of an earlier life counted")
		case g.Status != StatusNone && g.Epoch >= r.Epoch && m.Self != g.Self:
			t.Fatal("the record's word on what an agent says itself")
		}
		if again := Merge(g, r); again != m {
			t.Fatal("not a function")
		}
	})
}

// A view that is updated in steps equals the view that is computed from its sources at the end. What
// gossip has of the death of an agent that the registry has no more does not count.
func TestViewIsTheMergeOfItsSources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := newView(idOf(0), Member{ID: idOf(0), Status: StatusAlive, Epoch: 1})
		gossip, record := map[string]Member{idOf(0): {ID: idOf(0), Status: StatusAlive, Epoch: 1}}, map[string]Member{}
		removed := map[string]uint64{}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			id := idOf(rapid.IntRange(1, 5).Draw(t, "agent"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				if m := drawMember(t, "gossip"); m.Status != StatusNone {
					m.ID = id
					if epoch, ok := removed[id]; !ok || m.Status.Alive() || m.Epoch > epoch {
						gossip[id] = m
						delete(removed, id)
					}
					v.gossiped(m)
				}
			case 2:
				delete(gossip, id)
				v.forget(id)
			case 3:
				old := record
				record = map[string]Member{}
				for i := range 6 {
					if m := drawMember(t, "record"); m.Status != StatusNone {
						m.ID = idOf(i)
						record[m.ID] = m
					}
				}
				v.recorded(slices.Collect(maps.Values(record)))
				for id, m := range old {
					if _, ok := record[id]; !ok && id != idOf(0) && !gossip[id].Status.Alive() {
						removed[id] = max(m.Epoch, gossip[id].Epoch)
						delete(gossip, id)
					}
				}
			}
			want := map[string]Member{}
			for i := range 6 {
				m := Merge(gossip[idOf(i)], record[idOf(i)])
				if i == 0 { // an agent always knows its own status
					m.Status, m.Epoch, m.Self, m.Addr = StatusAlive, 1, Self{}, ""
				}
				if m.Status != StatusNone {
					want[idOf(i)] = m
				}
			}
			got, alive, heard := map[string]Member{}, 0, 0
			for _, m := range v.members() {
				alive += count(m.Alive())
				heard += count(m.Gossip == StatusAlive)
				if m.Since.IsZero() {
					t.Fatalf("%s has no time", m.ID)
				}
				m.Since = want[m.ID].Since
				got[m.ID] = m
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %v\nwant %v", got, want)
			}
			if alive != v.living() || heard != v.hears() || len(got) != v.size() {
				t.Fatalf("counted %d alive and %d heard, there are %d and %d", v.living(), v.hears(), alive, heard)
			}
			if !slices.IsSortedFunc(v.members(), byID) {
				t.Fatal("not sorted")
			}
		}
	})
}

func drawSelf(t *rapid.T) Self {
	text := rapid.StringN(0, 20, 30)
	return Self{
		Name: text.Draw(t, "name"), RPCAddr: text.Draw(t, "rpc"), APIAddr: text.Draw(t, "api"), Build: text.Draw(t, "build"),
		FeatureLevel: rapid.Uint32().Draw(t, "level"), Zone: text.Draw(t, "zone"), Class: text.Draw(t, "class"),
		Eligible:    rapid.Bool().Draw(t, "eligible"),
		PluginsHash: text.Draw(t, "hash"), BootstrapExpect: rapid.IntRange(0, 9).Draw(t, "expect"), Leaving: rapid.Bool().Draw(t, "leaving"),
	}
}

func TestTagsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		self, epoch := drawSelf(t), rapid.Uint64().Draw(t, "epoch")
		if got, gotEpoch := decodeTags(encodeTags(self, epoch)); got != self || gotEpoch != epoch {
			t.Fatalf("got %+v %d", got, gotEpoch)
		}
	})
	if got, epoch := decodeTags(map[string]string{"f": "many", "x": "?", "t": "-", "e": "yes", "unknown": "u"}); got != (Self{}) ||
		epoch != 0 {
		t.Errorf("rubbish reads as %+v", got)
	}
}

// mailbox is a transport that only receives packets.
type mailbox struct {
	memberlist.NodeAwareTransport
	packets chan *memberlist.Packet
}

func (m mailbox) PacketCh() <-chan *memberlist.Packet { return m.packets }

func TestNothingComesInBeforeALeaseIsOpen(t *testing.T) {
	for name, begin := range map[string]func(*lease){"open": func(l *lease) { l.open() }, "over": func(l *lease) { l.end() }} {
		synctest.Test(t, func(t *testing.T) {
			m := mailbox{packets: make(chan *memberlist.Packet, 1)}
			m.packets <- &memberlist.Packet{}
			l := newLease(m)
			got := false
			go func() {
				<-l.PacketCh()
				got = true
			}()
			synctest.Wait()
			if got {
				t.Errorf("%s: a packet came in too early", name)
			}
			begin(l)
			synctest.Wait()
			if !got {
				t.Errorf("%s: nobody listens", name)
			}
			l.end()
		})
	}
}

// Only an agent's own tag shows that it is leaving, because serf's status may be that of the agent's
// previous process.
func TestLeavingIsTheAgentsOwnWord(t *testing.T) {
	for _, test := range []struct {
		serf    serf.MemberStatus
		leaving bool
		want    Status
	}{
		{serf.StatusAlive, false, StatusAlive},
		{serf.StatusLeaving, false, StatusAlive},
		{serf.StatusAlive, true, StatusLeaving},
		{serf.StatusLeaving, true, StatusLeaving},
		{serf.StatusFailed, true, StatusFailed},
		{serf.StatusLeft, true, StatusLeft},
	} {
		m := &Mesh{cfg: Config{ID: idOf(0)}, log: slog.New(slog.DiscardHandler), view: newView(idOf(0), Member{ID: idOf(0), Status: StatusAlive})}
		m.apply(serf.EventMemberUpdate, serf.Member{Name: idOf(1), Status: test.serf, Tags: encodeTags(Self{Leaving: test.leaving}, 1)})
		if got, _ := m.Member(idOf(1)); got.Status != test.want {
			t.Errorf("serf says %s, the agent %t: %s, not %s", test.serf, test.leaving, got.Status, test.want)
		}
	}
}

// Serf accepts all tags that checkTags accepts.
func TestTagsThatPassFit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		self := Self{
			Name: strings.Repeat("n", rapid.IntRange(0, 300).Draw(rt, "name")), Zone: strings.Repeat("z", rapid.IntRange(0, 300).Draw(rt, "zone")),
			Build: strings.Repeat("b", rapid.IntRange(0, 300).Draw(rt, "build")), Eligible: true, FeatureLevel: 12, BootstrapExpect: 3,
		}
		tags := encodeTags(self, 1<<63)
		err := checkTags(tags)
		conf := serf.DefaultConfig()
		conf.NodeName, conf.Tags, conf.ProtocolVersion = "x", tags, serf.ProtocolVersionMax
		conf.MemberlistConfig.Transport = (&memberlist.MockNetwork{}).NewTransport("x")
		conf.Logger = newLogBridge(discard)
		conf.MemberlistConfig.Logger = conf.Logger
		s, serfErr := serf.Create(conf)
		if serfErr == nil {
			s.Shutdown()
		}
		if err == nil && serfErr != nil {
			rt.Fatal("serf refuses what passed:", serfErr)
		}
		var long *TagsTooLongError
		if err != nil && (!errors.As(err, &long) || long.Longest == "" || long.Size <= memberlist.MetaMaxSize) {
			rt.Fatal(err)
		}
	})
}

func candidates(ids ...int) (out []Member) {
	for _, i := range ids {
		out = append(out, Member{ID: idOf(i), Status: StatusAlive, Self: Self{Name: fmt.Sprint("agent-", i), Eligible: true, BootstrapExpect: 3}})
	}
	return out
}

func answers(ids ...int) map[string]RaftState {
	out := map[string]RaftState{}
	for _, i := range ids {
		out[idOf(i)] = RaftState{}
	}
	return out
}

func TestShouldBootstrap(t *testing.T) {
	with := func(members []Member, change func(m []Member)) []Member { change(members); return members }
	for name, c := range map[string]struct {
		self      int
		members   []Member
		expect    int
		answers   map[string]RaftState
		bootstrap bool
		servers   int
		ask       int
		why       string
	}{
		"nobody expects":     {1, candidates(1, 2, 3), 0, nil, false, 0, 0, "bootstrap_expect is 0"},
		"too few":            {1, candidates(1, 2), 3, nil, false, 0, 0, "2 of 3"},
		"ask first":          {1, candidates(1, 2, 3), 3, nil, false, 0, 3, "have not answered yet"},
		"ask the rest":       {1, candidates(1, 2, 3), 3, answers(1, 2), false, 0, 1, "1 of 3 agents have not answered"},
		"first starts":       {1, candidates(3, 1, 2), 3, answers(1, 2, 3), true, 3, 0, "agent-1"},
		"second waits":       {2, candidates(3, 1, 2), 3, answers(1, 2, 3), false, 3, 0, "agent-1"},
		"more than needed":   {5, candidates(9, 5, 7, 8, 6), 3, answers(5, 6, 7, 8, 9), true, 3, 0, "agent-5"},
		"one more to ask":    {5, candidates(9, 5, 7, 8), 3, answers(5, 7, 8), false, 0, 1, ""},
		"somebody has state": {1, candidates(1, 2, 3), 3, map[string]RaftState{idOf(2): {HasState: true}}, false, 0, 0, "agent-2"},
		"somebody has peers": {1, candidates(1, 2, 3), 3, map[string]RaftState{idOf(3): {Peers: []string{idOf(9)}}}, false, 0, 0,
			"knows a Raft group"},
		"another expects otherwise": {1, with(candidates(1, 2, 3), func(m []Member) { m[1].BootstrapExpect = 5 }), 3, answers(1, 2, 3),
			false, 0, 0, "make them equal"},
		"one is dead": {1, with(candidates(1, 2, 3), func(m []Member) { m[1].Status = StatusFailed }), 3, answers(1, 2, 3),
			false, 0, 0, "2 of 3"},
		"one is leaving": {1, with(candidates(1, 2, 3), func(m []Member) { m[1].Status = StatusLeaving }), 3, answers(1, 2, 3),
			false, 0, 0, "2 of 3"},
		"one is leaving and has state": {1, with(candidates(1, 2, 3, 4), func(m []Member) { m[3].Status = StatusLeaving }), 3,
			map[string]RaftState{idOf(1): {}, idOf(2): {}, idOf(3): {}, idOf(4): {HasState: true}}, false, 0, 0, "agent-4"},
		"one is not eligible": {1, with(candidates(1, 2, 3, 4), func(m []Member) { m[0].Eligible = false }), 3, answers(2, 3, 4),
			false, 3, 0, "agent-2"},
		"one without expectation is asked": {1, with(candidates(1, 2, 3, 4), func(m []Member) { m[3].BootstrapExpect = 0 }), 3, answers(1, 2, 3),
			false, 0, 1, ""},
		"and may know a group": {1, with(candidates(1, 2, 3, 4), func(m []Member) { m[3].BootstrapExpect = 0 }), 3,
			map[string]RaftState{idOf(1): {}, idOf(2): {}, idOf(3): {}, idOf(4): {HasState: true}}, false, 0, 0, "agent-4"},
	} {
		d := ShouldBootstrap(idOf(c.self), c.members, c.expect, c.answers)
		if d.Bootstrap != c.bootstrap || len(d.Servers) != c.servers || len(d.Ask) != c.ask || !strings.Contains(d.Why, c.why) || d.Why == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Of agents whose views have the same members, at most one starts a group. No agent starts a group if
// an agent in its view has state.
func TestBootstrapIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "agents")
		var members []Member
		known := map[string]RaftState{}
		anyState := false
		for i := range n {
			m := Member{ID: idOf(i), Status: Status(rapid.IntRange(1, 4).Draw(t, "status")),
				Self: Self{Eligible: rapid.Bool().Draw(t, "eligible"), BootstrapExpect: 3}}
			members = append(members, m)
			state := RaftState{HasState: rapid.IntRange(0, 9).Draw(t, "state") == 0}
			known[m.ID] = state
			anyState = anyState || state.HasState && m.Eligible && m.Alive()
		}
		starters := 0
		var servers []Member
		for i := range n {
			shuffled := slices.Clone(members)
			rand.Shuffle(n, func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
			d := ShouldBootstrap(idOf(i), shuffled, 3, known)
			starters += count(d.Bootstrap)
			if i > 0 && !reflect.DeepEqual(servers, d.Servers) {
				t.Fatalf("two agents name different servers: %v, %v", servers, d.Servers)
			}
			servers = d.Servers
			if d.Bootstrap && (len(d.Servers) != 3 || d.Servers[0].ID != idOf(i) || anyState) {
				t.Fatalf("%+v", d)
			}
		}
		if starters > 1 || starters != count(len(servers) > 0) {
			t.Fatalf("%d agents start the group", starters)
		}
	})
}

func TestProfilesHaveHysteresis(t *testing.T) {
	for n, want := range map[int][2]Profile{1: {quick, quick}, 39: {quick, quick}, 40: {quick, calm}, 64: {quick, calm}, 65: {calm, calm},
		5000: {calm, calm}} {
		if got := [2]Profile{ProfileFor(n, quick), ProfileFor(n, calm)}; got != want {
			t.Error(n, got)
		}
	}
	if ProfileFor(50, Profile{}) != quick {
		t.Error("in between, a newcomer is not quick")
	}
}
