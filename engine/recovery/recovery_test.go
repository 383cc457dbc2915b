package recovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
)

// TestRestarts has the cases of docs/spec/plans.md §7: essential services e0, e1 and others
// n0, n1, marked as failed (F) or delayed (D).
func TestRestarts(t *testing.T) {
	all := "e0 e1 n0 n1"
	for _, c := range []struct{ failed, delayed, want string }{
		{"", "", ""},
		{"e0 e1", "", all},
		{"e1", "", all},
		{"n0 n1", "", "n0 n1"},
		{"n1", "", "n1"},
		{"e0 n0", "", all},
		{"e0 n0 n1", "e0", ""},
		{"e0 n0", "n0", ""},
		{"n0 n1", "n0", "n1"},
		{"n0", "n0", ""},
	} {
		var in []Service
		for _, name := range strings.Fields(all) {
			in = append(in, Service{
				Name: name, Essential: name[0] == 'e', Running: true,
				Failed: strings.Contains(c.failed, name), Delayed: strings.Contains(c.delayed, name),
			})
		}
		if got := strings.Join(Restarts(in), " "); got != c.want {
			t.Errorf("failed %q, delayed %q: %q, not %q", c.failed, c.delayed, got, c.want)
		}
	}
	// A service that was never started, or does not run, is not restarted with the others.
	in := []Service{{Name: "a", Essential: true, Running: true, Failed: true}, {Name: "b", Essential: true}}
	if got := Restarts(in); len(got) != 1 || got[0] != "a" {
		t.Errorf("%v", got)
	}
}

const now = 10_000_000

// cluster has a store, webs that need it, and side, which no service needs.
func cluster(nodes int) Input {
	no := false
	web := model.Service{}
	web.Dependencies.Runtime.Requires = []string{"store"}
	s := Input{Now: now, Cluster: &model.Cluster{Definitions: map[string]model.Service{
		"store": {}, "web": web, "side": {Essential: &no}, "once": {Goal: model.GoalOnce},
	}}, Health: map[string]*model.NodeHealth{}, Busy: map[string]string{}}
	for i := range nodes {
		n := &model.Node{ID: fmt.Sprint("n", i), Number: i, Services: []string{"web", "side"},
			States: map[string]string{"web": "START", "side": "START", "once": "START", "store": "START"}}
		if i == 0 {
			n.Services = []string{"store", "once"}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func (s Input) fails(node, service string, since int64) Input {
	h := s.Health[node]
	if h == nil {
		h = &model.NodeHealth{Node: node}
		s.Health[node] = h
	}
	if h.Services == nil {
		h.Services = map[string]model.ServiceHealth{}
	}
	h.Services[service] = model.ServiceHealth{Status: model.Unhealthy, Since: since}
	return s
}

func (s Input) gone(node string) Input {
	if s.Health[node] == nil {
		s.Health[node] = &model.NodeHealth{Node: node}
	}
	s.Health[node].Machine = model.MachineGone
	return s
}

func (s Input) with(change func(*Input)) Input { change(&s); return s }

func (d Decision) String() string {
	var b strings.Builder
	for _, u := range d.Restart {
		fmt.Fprintf(&b, "restart %s %s\n", u.Node, strings.Join(u.Services, ","))
	}
	for _, n := range d.Replace {
		fmt.Fprintf(&b, "replace %s\n", n)
	}
	for _, n := range d.Recreate {
		fmt.Fprintf(&b, "recreate %s\n", n)
	}
	for _, w := range d.Waits {
		fmt.Fprintf(&b, "%s waits: %s", w.Node, w.Why)
		if w.Until > 0 {
			fmt.Fprintf(&b, " +%d", w.Until-now)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		s    Input
		want string
	}{
		"all well":                            {cluster(4), ""},
		"an essential service takes the node": {cluster(4).fails("n1", "web", now), "restart n1 web,side\n"},
		"another goes alone":                  {cluster(4).fails("n1", "side", now), "restart n1 side\n"},
		"what is to end is left alone":        {cluster(4).fails("n0", "once", now), ""},
		"what depends waits": {cluster(20).fails("n0", "store", now).fails("n1", "web", now),
			"restart n0 store\nn1 waits: web depends on store, which fails on n0 +60000\n"},
		"but not for ever": {cluster(20).fails("n0", "store", now-60_000).fails("n1", "web", now-60_000),
			"restart n0 store\nrestart n1 web,side\n"},
		"a tenth at once": {cluster(10).fails("n1", "web", now).fails("n2", "web", now),
			"restart n1 web,side\nn2 waits: 1 nodes are under recovery already: no more at once\n"},
		"those under way count": {cluster(10).fails("n1", "web", now).with(func(s *Input) { s.Recovering = 1 }),
			"n1 waits: 1 nodes are under recovery already: no more at once\n"},
		"an operation is at work": {cluster(4).fails("n1", "web", now).with(func(s *Input) { s.Busy["n1"] = "op" }),
			"n1 waits: operation op is at work on it\n"},
		"an operation elsewhere": {cluster(4).fails("n1", "web", now).with(func(s *Input) { s.Main = "op" }), "restart n1 web,side\n"},
		"backing off": {cluster(4).fails("n1", "web", now).with(func(s *Input) { s.Health["n1"].Next, s.Health["n1"].Attempts = now+7, 2 }),
			"n1 waits: attempt 2 failed: the next is not due yet +7\n"},
		"given up": {cluster(4).fails("n1", "web", now).with(func(s *Input) { s.Health["n1"].GaveUp, s.Health["n1"].Attempts = true, 10 }),
			"n1 waits: recovery gave up after 10 attempts: restart or replace the node\n"},
		"paused": {cluster(4).fails("n1", "web", now).with(func(s *Input) { s.Cluster.RecoveryPaused = &model.RecoveryPause{By: "ann"} }),
			"n1 waits: recovery was paused by ann\n"},
		"a paused service": {cluster(4).fails("n1", "web",
			now).with(func(s *Input) { s.Health["n1"].Paused = map[string]string{"web": model.Paused} }), ""},
		"off": {cluster(4).fails("n1", "web", now).with(func(s *Input) { s.Cluster.Template.Recovery = &model.RecoveryPolicy{Off: true} }),
			"n1 waits: the template leaves recovery to people\n"},
		"gone":               {cluster(4).gone("n1").fails("n1", "web", now), "replace n1\n"},
		"gone, nothing else": {cluster(4).gone("n1"), "replace n1\n"},
		"gone while an operation is under way": {cluster(4).gone("n1").with(func(s *Input) { s.Main = "op" }),
			"recreate n1\n"},
		"gone while others need its address": {cluster(4).gone("n1").with(func(s *Input) { s.Main, s.Held = "op", map[string]string{"n1": "because"} }),
			"n1 waits: because\n"},
		"gone after an operation has begun there": {cluster(4).gone("n1").with(func(s *Input) { s.Main, s.Busy["n1"] = "op", "op" }),
			"recreate n1\n"},
		"failing for long while an operation has begun there": {cluster(4).fails("n1", "web", now-20*60_000).with(func(s *Input) {
			s.Cluster.Template.Recovery, s.Health["n1"].Attempts = &model.RecoveryPolicy{Replace: "failing"}, 3
			s.Main, s.Busy["n1"] = "op", "op"
		}), "n1 waits: operation op is at work on it\n"},
		"gone, but never replaced": {cluster(4).gone("n1").with(
			func(s *Input) { s.Cluster.Template.Recovery = &model.RecoveryPolicy{Replace: "never"} }),
			"n1 waits: its machine is gone, and the template's recovery replaces none\n"},
		"most seem gone": {cluster(4).gone("n1").gone("n2").gone("n3"),
			"n1 waits: 3 of 4 machines seem gone: if they are, replace them yourself\nn2 waits: 3 of 4 machines seem gone: if they are, replace " +
				"them yourself\nn3 waits: 3 of 4 machines seem gone: if they are, replace them yourself\n"},
		"one was replaced just now": {cluster(4).gone("n1").with(func(s *Input) {
			s.Cluster.Template.Recovery, s.Replaced = &model.RecoveryPolicy{MinReplaceDelay: 100}, now-60
		}), "n1 waits: another node was replaced a moment ago +40\n"},
		"failing for long, where that is enough": {cluster(4).fails("n1", "web", now-20*60_000).with(func(s *Input) {
			s.Cluster.Template.Recovery, s.Health["n1"].Attempts = &model.RecoveryPolicy{Replace: "failing"}, 3
		}), "replace n1\n"},
		"failing for long, where it is not": {cluster(4).fails("n1", "web", now-20*60_000), "restart n1 web,side\n"},
		"a node that leaves":                {cluster(4).fails("n1", "web", now).with(func(s *Input) { s.Nodes[1].Leaves = true }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(c.s).String(); got != c.want {
				t.Errorf("got\n%s\nnot\n%s", got, c.want)
			}
		})
	}
}

// TestDecideKeepsItsPromises checks for any input: busy, paused, given-up and delayed nodes
// are left alone, the limit of concurrent recoveries holds, healthy services are left alone,
// and every failing node that is not recovered has a reason.
func TestDecideKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster(rapid.IntRange(1, 12).Draw(t, "nodes"))
		p := &model.RecoveryPolicy{
			Off: rapid.IntRange(0, 9).Draw(t, "off") == 0, Replace: rapid.SampledFrom([]string{"", "gone", "failing", "never"}).Draw(t, "replace"),
			AtOnce: rapid.SampledFrom([]string{"", "1", "3", "50%"}).Draw(t, "at once"),
		}
		s.Cluster.Template.Recovery = p
		s.Recovering = rapid.IntRange(0, 2).Draw(t, "recovering")
		if rapid.Bool().Draw(t, "main") {
			s.Main, s.Held = "op", map[string]string{}
		}
		for _, n := range s.Nodes {
			for _, svc := range n.Services {
				if rapid.IntRange(0, 2).Draw(t, "fails") == 0 {
					s = s.fails(n.ID, svc, now-rapid.Int64Range(0, 30*60_000).Draw(t, "since"))
				}
			}
			if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
				s = s.gone(n.ID)
			}
			if h := s.Health[n.ID]; h != nil {
				h.Attempts = rapid.IntRange(0, 5).Draw(t, "attempts")
				h.Next = now + rapid.Int64Range(-5, 5).Draw(t, "next")
				h.GaveUp = rapid.IntRange(0, 5).Draw(t, "gave up") == 0
			}
			if rapid.IntRange(0, 4).Draw(t, "busy") == 0 {
				s.Busy[n.ID] = rapid.SampledFrom([]string{"op", "other"}).Draw(t, "busy by")
			}
			if s.Main != "" && rapid.IntRange(0, 2).Draw(t, "held") == 0 {
				s.Held[n.ID] = "because"
			}
		}
		d := Decide(s)
		done := slices.Concat(d.Replace, d.Recreate)
		for _, u := range d.Restart {
			done = append(done, u.Node)
			if len(u.Services) == 0 {
				t.Fatalf("nothing is restarted on %s", u.Node)
			}
		}
		policy := s.Cluster.Template.RecoveryPolicy()
		if most := policy.Most(len(s.Nodes)); len(done) > 0 && len(done)+s.Recovering > most {
			t.Fatalf("%d at once in addition to %d, where %d are allowed", len(done), s.Recovering, most)
		}
		for _, id := range done {
			h := s.Health[id]
			busy := s.Busy[id] != "" && !(slices.Contains(d.Recreate, id) && s.Busy[id] == s.Main && h.Machine != "")
			if p.Off || h.GaveUp || h.Next > now || busy || h.Machine == "" && len(h.Failing()) == 0 {
				t.Fatalf("%s is recovered:\n%s", id, d)
			}
		}
		if len(d.Replace) > 0 && s.Main != "" || len(d.Recreate) > 0 && s.Main == "" || len(d.Replace)+len(d.Recreate) > 0 && p.Replace == "never" {
			t.Fatalf("replaced:\n%s", d)
		}
		for _, id := range d.Recreate {
			if s.Held[id] != "" {
				t.Fatalf("replaced against a reason:\n%s", d)
			}
		}
		for _, w := range d.Waits {
			if w.Why == "" || slices.Contains(done, w.Node) || w.Until != 0 && w.Until <= now {
				t.Fatalf("waits:\n%s", d)
			}
			done = append(done, w.Node)
		}
		for id, h := range s.Health {
			ends := len(h.Failing()) == 0 || len(h.Failing()) == 1 && h.Failing()[0] == "once"
			if !slices.Contains(done, id) && (h.Machine != "" || !ends) {
				t.Fatalf("nothing is said of %s:\n%s", id, d)
			}
		}
	})
}

// TestPause: the pause grows up to its bound and starts with the configured one
// (docs/spec/plans.md §8).
func TestPause(t *testing.T) {
	p := (&model.ClusterTemplate{}).RecoveryPolicy()
	last := int64(0)
	for n := 1; n < 30; n++ {
		pause := p.Pause(n)
		if n == 1 && pause != 60_000 || n == 2 && pause != 69_000 || pause < last || pause > 300_000 || n > 20 && pause != 300_000 {
			t.Errorf("pause %d: %d after %d", n, pause, last)
		}
		last = pause
	}
}
