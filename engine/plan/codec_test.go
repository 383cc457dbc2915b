package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// A graph reads back as it was written, and damage is refused or gives a graph.
func TestGraphReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		b := g.Encode()
		h, err := plan.DecodeGraph(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, h.Encode()) || !slices.Equal(g.Rank, h.Rank) || !slices.Equal(g.Preds, h.Preds) {
			t.Fatal("the graph that was read is another")
		}
		for i := range b {
			if _, err := plan.DecodeGraph(b[:i]); err == nil {
				t.Fatalf("a graph of %d bytes is read from the first %d", len(b), i)
			}
		}
	})
}

// The encodings of earlier builds can be read, with the same meaning.
func TestFixtures(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, format := range []string{"format-1", "format-2"} {
		t.Run(format, func(t *testing.T) {
			g, err := plan.DecodeGraph(read(format + ".graph"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := plan.DecodeState(g, read(format+".state"))
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			for v := range uint32(g.Len()) {
				task := s.Task(v)
				note, err := json.Marshal(task.Note)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&got, "%s: step %d, %s, attempt %d by %v, fence %d, from %d to %d, forced %t, tolerated %t, held back %t, note %s\n",
					g.Name(int(v)), g.StepOf(v), task.Status, task.Attempt, task.Holder, task.Fence, task.LeasedAt, task.EndedAt, task.Forced,
					task.Tolerated, s.HeldBack(v), note)
			}
			node, busy := s.Busy(0)
			fmt.Fprintln(&got, "leasable", s.Leasable(), "held", s.Held(), "node 0", node, busy, "tolerated", s.Tolerated())
			if want := read(format + ".txt"); !bytes.Equal(got.Bytes(), want) {
				t.Errorf("it says\n%s\nwant\n%s", got.Bytes(), want)
			}
			if !bytes.Equal(g.Encode(), read(format+".graph")) || !bytes.Equal(s.Encode(), read(format+".state")) {
				t.Error("it is written in another way than it was")
			}
		})
	}
}

// TestDecodeDamaged cuts stored states off at every byte, with every value of one of the four
// bytes before the end: the decoder does not panic.
func TestDecodeDamaged(t *testing.T) {
	for _, format := range []string{"format-1", "format-2"} {
		graph, err1 := os.ReadFile("testdata/" + format + ".graph")
		state, err2 := os.ReadFile("testdata/" + format + ".state")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		g, err := plan.DecodeGraph(graph)
		if err != nil {
			t.Fatal(err)
		}
		for end := range state {
			cut := append([]byte(nil), state[:end]...)
			if _, err := plan.DecodeState(g, cut); err == nil {
				t.Errorf("%s: the first %d of %d bytes are taken for a state", format, end, len(state))
			}
			for at := max(end-4, 0); at < end; at++ {
				for b := range 256 {
					cut[at] = byte(b)
					_, _ = plan.DecodeState(g, cut)
				}
				cut[at] = state[at]
			}
		}
	}
}

// FuzzDecode: what comes from outside neither crashes nor asks for more memory
// than it has bytes.
func FuzzDecode(f *testing.F) {
	b := plan.NewBuilder([]string{"n"}, []string{"s"})
	b.Edge(b.Task(model.Create, 0, plan.None), b.Task(model.Install, 0, 0))
	g, _ := b.Build()
	f.Add(g.Encode(), plan.NewState(g).Encode())
	for _, format := range []string{"format-1", "format-2"} {
		graph, err1 := os.ReadFile("testdata/" + format + ".graph")
		state, err2 := os.ReadFile("testdata/" + format + ".state")
		if err := errors.Join(err1, err2); err != nil {
			f.Fatal(err)
		}
		f.Add(graph, state)
	}
	f.Fuzz(func(t *testing.T, graph, state []byte) {
		g, err := plan.DecodeGraph(graph)
		if err != nil {
			return
		}
		s, err := plan.DecodeState(g, state)
		if err != nil {
			return
		}
		// A decoded state can be encoded and decoded again, and no edit of it panics.
		if s, err = plan.DecodeState(g, s.Encode()); err != nil {
			t.Fatal(err)
		}
		s.Leased("s1")
		e := s.Edit()
		for i, v := range s.Leasable() {
			if e.Lease(v, 1, plan.Holder{Session: "x"}, math.MaxInt64) == nil && i%2 == 0 {
				_ = e.FailTolerated(v, 1, false, plan.End{}, 1)
				_ = e.Succeed(v, 1, plan.End{}, 1)
			}
		}
		_ = e.Release(plan.Whole(), plan.GateInterrupt)
		_ = e.Stop(plan.Whole(), plan.Order{})
		_ = e.ForceComplete(plan.Whole(), plan.Order{})
	})
}
