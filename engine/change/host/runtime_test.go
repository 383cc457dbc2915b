package host

import (
	"fmt"
	"testing"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

func compiled(t *testing.T, text string) *object.Site {
	t.Helper()
	d, err := site.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s, err := compile.Site(d, compile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const two = `
name: two
objects:
  - {name: x, host: agent:a, type: script, requires: [{object: p}, {object: q}]}
  - {name: p, host: agent:b, type: script}
  - {name: q, host: agent:b, type: script}
`

func pair(t *testing.T) (a, b *Runtime) {
	s := compiled(t, two)
	route := func(id object.ID) Name {
		if s.Defs[id].Name == "x" {
			return "a"
		}
		return "b"
	}
	a, b = New(Config{Self: "a", Site: s, Route: route}), New(Config{Self: "b", Site: s, Route: route})
	for i := range s.Defs {
		if h := map[Name]*Runtime{"a": a, "b": b}[route(object.ID(i))]; i == 0 {
			h.Start(&s.Defs[i], 1, 0)
		}
	}
	return a, b
}

func flush(h *Runtime, now int64) (packets []Packet) {
	h.Flush(now, func(p Packet) { packets = append(packets, p) })
	return packets
}

// Two requests to one agent share a packet. A message that arrives before its object starts is
// kept. Releases that no object waits for travel together, and late.
func TestPackets(t *testing.T) {
	a, b := pair(t)
	if acts := a.Acts(); len(acts) != 1 || acts[0].What != object.Check {
		t.Fatal(acts)
	}
	if err := a.Event(0, object.Event{What: object.Checked, State: 1}, 0); err != nil {
		t.Fatal(err)
	}
	p := flush(a, 0)
	if len(p) != 1 || len(p[0].Messages) != 2 || p[0].To != "b" {
		t.Fatalf("%+v", p)
	}
	b.Receive("a", p[0].Messages, 1) // b runs nothing yet
	s := a.cfg.Site
	for id := object.ID(1); id < 3; id++ {
		b.Start(&s.Defs[id], 1, 2)
		if err := b.Event(id, object.Event{What: object.Checked, State: 2}, 2); err != nil {
			t.Fatal(err)
		}
	}
	p = flush(b, 2)
	if len(p) != 1 || len(p[0].Messages) != 2 || p[0].Messages[0].Kind != object.Grant {
		t.Fatalf("%+v", p)
	}
	a.Receive("b", p[0].Messages, 3)
	if acts := a.Acts(); len(acts) != 1 || acts[0].What != object.Run {
		t.Fatal(acts)
	}
	if err := a.Event(0, object.Event{What: object.Done, OK: true}, 10); err != nil {
		t.Fatal(err)
	}
	if p := flush(a, 10); len(p) != 0 {
		t.Fatalf("releases that nobody waits for went at once: %+v", p)
	}
	if a.Next() != 10+Laze {
		t.Error(a.Next())
	}
	if p := flush(a, 10+Laze); len(p) != 1 || len(p[0].Messages) != 2 {
		t.Fatalf("%+v", p)
	}
	if !a.AtRest() || !b.AtRest() {
		t.Error("not at rest")
	}
	a.Tick(a.Next()) // the last sweep over waiting objects
	if a.Next() != 0 || b.Next() != 0 {
		t.Errorf("runtimes at rest want to be called at %d and %d", a.Next(), b.Next())
	}
}

// A waiting object repeats its requests less and less often.
func TestPatience(t *testing.T) {
	a, _ := pair(t)
	if err := a.Event(0, object.Event{What: object.Checked, State: 1}, 0); err != nil {
		t.Fatal(err)
	}
	flush(a, 0)
	asked := 0
	for now := a.Next(); now <= 40*Patience; now = a.Next() {
		a.Tick(now)
		asked += len(flush(a, now))
	}
	if asked != 6 { // after 1, 2, 4, 8, 16, 32 times Patience
		t.Errorf("asked %d times", asked)
	}
	a.Lost(func(id object.ID) bool { return id == 1 }, 41*Patience)
	if p := flush(a, 41*Patience); len(p) != 1 || len(p[0].Messages) != 1 {
		t.Errorf("a stream made anew is not used at once, and for nothing else: %v", p)
	}
}

// An object that is gone here answers a question from a newer generation: it holds nothing.
func TestTheRemovedHoldNothing(t *testing.T) {
	_, b := pair(t)
	b.cfg.Site = &object.Site{Defs: make([]object.Def, 3)}
	b.cfg.Route = func(object.ID) Name { return "a" }
	b.Receive("a", []object.Message{{From: 0, To: 1, FromInc: 4, ToInc: 1, Epoch: 3, Kind: object.Recall}}, 0)
	p := flush(b, 0)
	if len(p) != 1 || p[0].Messages[0].Kind != object.Revoke || p[0].Messages[0].Epoch != 4 || p[0].Messages[0].ToInc != 4 {
		t.Fatalf("%+v", p)
	}
}

func TestChooseMovesOnlyWhatItMust(t *testing.T) {
	agents := []Name{"a", "b", "c", "d"}
	count := map[Name]int{}
	for i := range 1000 {
		host := fmt.Sprintf("node:c/n%d", i)
		was := Choose(host, agents)
		count[was]++
		if now := Choose(host, []Name{"d", "b", "a"}); was != "c" && now != was {
			t.Fatalf("%s moved from %s to %s when c died", host, was, now)
		}
	}
	for _, a := range agents {
		if count[a] < 200 || count[a] > 300 {
			t.Errorf("%s has %d of 1000 hosts", a, count[a])
		}
	}
	if Choose("node:c/n", nil) != "" {
		t.Error("nobody is somebody")
	}
}

// A generation with a shorter check interval is checked at once.
func TestAnotherCheckInterval(t *testing.T) {
	s := compiled(t, two)
	s.CheckInterval = 600_000
	h := New(Config{Self: "a", Site: s, Route: func(object.ID) Name { return "a" }})
	h.Start(&s.Defs[1], 1, 0)
	next := *s
	next.CheckInterval = 1_000
	h.Switch(&next, map[string]bool{"agent:b": true}, 5_000)
	if h.Next() != 6_000 {
		t.Errorf("it looks at %d", h.Next())
	}
	never := next
	never.CheckInterval = 0
	h.Switch(&never, map[string]bool{"agent:b": true}, 5_500)
	if h.Next() != 0 {
		t.Errorf("it looks at %d", h.Next())
	}
}

// An object that has the number of a removed one answers a question meant for its predecessor.
// Otherwise its lock would be waited for without end.
func TestANumberUsedAgainIsAnsweredFor(t *testing.T) {
	s := compiled(t, two)
	b := New(Config{Self: "b", Site: s, Route: func(id object.ID) Name {
		if id == 1 {
			return "b"
		}
		return ""
	}})
	b.Start(&s.Defs[1], 2, 0)
	b.Receive("c", []object.Message{{From: 7, To: 1, FromInc: 1, ToInc: 1, Epoch: 3, Kind: object.Recall}}, 1)
	p := flush(b, 1)
	if len(p) != 1 || p[0].To != "c" || p[0].Messages[0].To != 7 || p[0].Messages[0].Kind != object.Revoke || p[0].Messages[0].FromInc != 2 {
		t.Fatalf("%+v", p)
	}
}
