package object

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

const (
	down State = 1 + iota
	upState
	outdated
)

// chain is three objects: c needs b up and holds it, b needs a up and holds it.
func chain() *Site {
	t := BuiltinTypes()["script"]
	s := &Site{Name: "chain"}
	for i, name := range []string{"a", "b", "c"} {
		d := Def{ID: ID(i), Name: name, Host: "agent:x", Type: t, Preferred: upState, Content: 1}
		if i > 0 {
			d.Out = []ID{ID(i - 1)}
			d.Needs = []Need{{From: Any, To: upState, State: upState}, {Hold: true, From: upState, State: upState}}
		}
		s.Defs = append(s.Defs, d)
	}
	s.Link()
	return s
}

func TestTypes(t *testing.T) {
	simple := BuiltinTypes()["script"]
	if n, _ := simple.Next(outdated, upState); n != upState || simple.Actions[simple.Move(outdated, upState).Action] != "restart" {
		t.Error("outdated goes up by restart")
	}
	if _, ok := simple.Next(upState, outdated); ok || simple.Targetable(outdated) || simple.Targetable(Unknown) {
		t.Error("outdated is never a target (rule 3)")
	}
	// A longer way, and ties by priority: from s to up over a or b, where b
	// comes first by priority.
	long, err := NewType(TypeSpec{Name: "x", States: []string{"down", "b", "a", "s", "up"}, Transitions: []TransitionSpec{
		{From: "s", To: "a", Action: "1"}, {From: "s", To: "b", Action: "2"}, {From: "a", To: "up", Action: "3"},
		{From: "b", To: "up", Action: "4"},
		{From: "up", To: "down", Action: "5", Error: "a"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	from, _ := long.State("s")
	to, _ := long.State("up")
	if w := long.Way(from, to); len(w) != 2 || long.States[w[0]] != "b" {
		t.Error(w)
	}
	if dn, _ := long.State("down"); long.Way(dn, to) != nil {
		t.Error("there is no way up from down")
	}
	for _, bad := range []TypeSpec{
		{Name: "x", States: []string{"up", "up"}},
		{Name: "x", States: []string{"up", "unknown"}},
		{Name: "x", States: []string{"up"}, PreRemove: "gone"},
		{Name: "x", States: []string{"up", "down"}, Transitions: []TransitionSpec{{From: "up", To: "up", Action: "a"}}},
		{Name: "x", States: []string{"up", "down"}, Transitions: []TransitionSpec{{From: "up", To: "left", Action: "a"}}},
		{Name: "x", States: make([]string, 20)},
	} {
		if _, err := NewType(bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func handle(t *testing.T, o *Object, ev Event, now int64) *Effects {
	t.Helper()
	fx := &Effects{}
	if err := o.Handle(&ev, now, fx); err != nil {
		t.Fatal(err)
	}
	return fx
}

// Duplicated, late and reordered messages change nothing (rule 19).
func TestMessagesOfThePastChangeNothing(t *testing.T) {
	s := chain()
	b := New(&s.Defs[1])
	handle(t, b, Event{What: Started, Inc: 1}, 0)
	fx := handle(t, b, Event{What: Checked, State: down}, 0)
	ask := fx.Messages[0]
	if ask.Kind != Request || ask.To != 0 || ask.State != upState {
		t.Fatalf("%+v", ask)
	}
	grant := Message{From: 0, To: 1, FromInc: 5, ToInc: 1, Epoch: ask.Epoch, Kind: Grant, State: upState}
	for _, old := range []Message{
		{From: 0, To: 1, FromInc: 5, ToInc: 1, Epoch: ask.Epoch + 1, Kind: Grant},
		{From: 0, To: 1, FromInc: 5, ToInc: 2, Epoch: ask.Epoch, Kind: Grant},
	} {
		if fx := handle(t, b, Event{What: Received, Message: old}, 0); len(fx.Acts) > 0 {
			t.Errorf("%+v made it move", old)
		}
	}
	if fx := handle(t, b, Event{What: Received, Message: grant}, 0); len(fx.Acts) != 1 || fx.Acts[0].What != Run {
		t.Fatalf("%+v", fx)
	}
	if fx := handle(t, b, Event{What: Received, Message: grant}, 0); len(fx.Acts)+len(fx.Messages) > 0 {
		t.Errorf("a doubled grant: %+v", fx)
	}
	// A grant to an earlier life of a, after a has begun another one.
	fx = handle(t, b, Event{What: Received, Message: Message{From: 0, To: 1, FromInc: 6, Kind: Resync}}, 0)
	if len(fx.Messages) != 1 || !fx.Messages[0].Held || fx.Messages[0].ToInc != 6 {
		t.Errorf("the answer to a resync: %+v", fx.Messages)
	}
	if err := b.Handle(&Event{What: Received, Message: Message{From: 9, Kind: Request}}, 0, fx); !errors.Is(err, ErrNoLink) {
		t.Error(err)
	}
	if err := b.Handle(&Event{What: Done, OK: true}, 0, fx); err != nil {
		t.Error(err)
	}
	if err := b.Handle(&Event{What: Done, OK: true}, 0, fx); err == nil {
		t.Error("an action ended that never began")
	}
}

// After a restart an object moves only when every dependent has answered, or is known to hold
// nothing (rule 20).
func TestSilentDependentsCountAsHolding(t *testing.T) {
	s := chain()
	a := New(&s.Defs[0])
	fx := handle(t, a, Event{What: Started, Inc: 2}, 0)
	if len(fx.Messages) != 1 || fx.Messages[0].Kind != Resync {
		t.Fatalf("%+v", fx.Messages)
	}
	if fx := handle(t, a, Event{What: Checked, State: down}, 0); len(fx.Acts) > 0 || !a.Waiting() {
		t.Fatal("it moves before its dependent has answered")
	}
	if st := a.Status(); len(st.Waits) != 1 || st.Waits[0].Why != Silence {
		t.Errorf("%+v", st)
	}
	// A message of b to the earlier life is not an answer.
	if fx := handle(t, a, Event{What: Received, Message: Message{From: 1, To: 0, FromInc: 1, ToInc: 1, Epoch: 1, Kind: Revoke}},
		0); len(fx.Acts) > 0 {
		t.Fatal("an old message was taken for an answer")
	}
	if fx := handle(t, a, Event{What: Freed, Peer: 1}, 0); len(fx.Acts) != 1 || fx.Acts[0].What != Run {
		t.Errorf("%+v", fx)
	}
}

// Backoffs are 1 s, doubled, at most five minutes.
func TestBackoff(t *testing.T) {
	s := chain()
	a := New(&s.Defs[0])
	handle(t, a, Event{What: Started, Inc: 1}, 0)
	now := int64(0)
	for _, want := range []int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		fx := handle(t, a, Event{What: Checked, State: Unknown}, now)
		if len(fx.Acts) != 1 || fx.Acts[0].What != SetTimer || fx.Acts[0].At != now+want*1000 {
			t.Fatalf("want %d s: %+v", want, fx.Acts)
		}
		now = fx.Acts[0].At
		if fx := handle(t, a, Event{What: Alarm}, now); len(fx.Acts) != 1 || fx.Acts[0].What != Check {
			t.Fatalf("%+v", fx.Acts)
		}
	}
}

// random drives an object with events that may make no sense.
func random(rng *rand.Rand, o *Object, n int) {
	fx := &Effects{}
	now := int64(0)
	for range n {
		now += rng.Int64N(2000)
		peers := []ID{0, 1, 2}
		ev := Event{What: What(1 + rng.IntN(11)), State: State(rng.IntN(6)), OK: rng.IntN(2) == 0, Inc: o.inc + 1, Peer: peers[rng.IntN(3)],
			Def: o.def}
		ev.Message = Message{From: peers[rng.IntN(3)], To: o.def.ID, FromInc: uint32(rng.IntN(3)), ToInc: uint32(rng.IntN(int(o.inc) + 1)),
			Epoch: uint32(rng.IntN(6)),
			Kind:  Kind(1 + rng.IntN(6)), State: State(rng.IntN(20)), Urgent: rng.IntN(4) == 0, Held: rng.IntN(4) == 0}
		// Senseless events result in errors.
		_ = o.Handle(&ev, now, fx)
		fx.Reset()
	}
}

func TestRecordsComeBackTheSame(t *testing.T) {
	s := chain()
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 5))
		o := New(&s.Defs[rng.IntN(3)])
		random(rng, o, rng.IntN(40))
		b := o.Append(nil)
		back, rest, err := Decode(o.def, append(b, 7))
		if err != nil || len(rest) != 1 {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if o.later() != nil {
			continue // the definition that it will follow is not part of the encoding
		}
		if again := back.Append(nil); !bytes.Equal(b, again) {
			t.Fatalf("seed %d: %x, %x", seed, b, again)
		}
		one, two := rand.New(rand.NewPCG(seed, 6)), rand.New(rand.NewPCG(seed, 6))
		random(one, o, 20)
		random(two, back, 20)
		if !bytes.Equal(o.Append(nil), back.Append(nil)) {
			t.Fatalf("seed %d: it went on in another way", seed)
		}
	}
}

// FuzzDecode checks that no input crashes the decoder, and that a decoded object does not crash when it is
// used.
func FuzzDecode(f *testing.F) {
	s := chain()
	o := New(&s.Defs[1])
	f.Add(o.Append(nil))
	random(rand.New(rand.NewPCG(1, 1)), o, 30)
	f.Add(o.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, _, err := Decode(&s.Defs[1], b)
		if err == nil {
			random(rand.New(rand.NewPCG(1, 2)), o, 20)
		}
	})
}

// A hub with many dependents acts like any other object: it counts their locks correctly.
func TestHubsCountRight(t *testing.T) {
	typ := BuiltinTypes()["script"]
	s := &Site{Name: "hub", Defs: []Def{{ID: 0, Name: "hub", Type: typ, Preferred: upState}}}
	for i := range 40 {
		s.Defs = append(s.Defs, Def{ID: ID(i + 1), Name: "d", Type: typ, Preferred: upState, Out: []ID{0},
			Needs: []Need{{From: Any, To: upState, State: upState}}})
	}
	s.Link()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 7))
		o := New(&s.Defs[0])
		fx := &Effects{}
		_ = o.Handle(&Event{What: Started, Inc: 1}, 0, fx)
		_ = o.Handle(&Event{What: Checked, State: down}, 0, fx)
		epochs := make([]uint32, 41)
		for range 300 {
			p := 1 + rng.IntN(40)
			epochs[p]++
			m := Message{From: ID(p), FromInc: 1, ToInc: 1, Epoch: epochs[p], Kind: Revoke}
			if rng.IntN(2) == 0 {
				m.Kind, m.State, m.Urgent = Request, State(1+rng.IntN(2)), rng.IntN(10) == 0
			}
			_ = o.Handle(&Event{What: Received, Message: m}, 0, fx)
			if o.phase == Moving && rng.IntN(3) == 0 {
				_ = o.Handle(&Event{What: Done, OK: true}, 0, fx)
			}
			fx.Reset()
			want, urgent := o.best()
			kept := o.rare
			if kept == nil {
				t.Fatal("a hub without a tally")
			}
			o.rare = nil
			got, u := o.best()
			o.rare = kept
			if got != want || u != urgent {
				t.Fatalf("seed %d: the tally says %d %v, the dependents %d %v", seed, want, urgent, got, u)
			}
		}
	}
}
