package plan_test

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/plan"
)

func encode(t *rapid.T, s *plan.State) []byte {
	t.Helper()
	return s.Encode()
}

// A plan acts like the naive one in any sequence of events; a published state never changes; an
// encoded plan decodes to an equal one.
func TestPlanAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		o, s := newNaive(g), plan.NewState(g)
		o.compare(t, s)
		type moment struct {
			s *plan.State
			b []byte
		}
		past := []moment{{s, encode(t, s)}}
		now, index := int64(100), uint64(10)
		for range rapid.IntRange(0, 40).Draw(t, "batches") {
			e := s.Edit()
			before := map[uint32]bool{}
			for _, v := range s.Leasable() {
				before[v] = true
			}
			events := rapid.IntRange(1, 6).Draw(t, "events")
			for range events {
				index++
				now += 2
				o.step(t, e, index, now)
			}
			o.compare(t, e.State())
			if got := e.Revoked(); !slices.Equal(bySort(got), bySort(o.revoked)) {
				t.Fatalf("revoked %v, want %v", got, o.revoked)
			}
			o.revoked = nil
			s = e.Done()
			o.compare(t, s)
			told := map[uint32]bool{}
			for _, v := range e.Ready() {
				if events == 1 && (told[v] || !slices.Contains(s.Leasable(), v)) {
					t.Fatalf("%s is told to be leasable, twice or wrongly", g.Name(int(v)))
				}
				told[v] = true
			}
			for _, v := range s.Leasable() {
				if !before[v] && !told[v] {
					t.Fatalf("%s became leasable and nobody was told", g.Name(int(v)))
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "read back") == 0 {
				g2, err := plan.DecodeGraph(g.Encode())
				if err != nil {
					t.Fatal(err)
				}
				if s, err = plan.DecodeState(g2, encode(t, s)); err != nil {
					t.Fatal(err)
				}
				o.compare(t, s)
			}
			past = append(past, moment{s, encode(t, s)})
		}
		for _, m := range past {
			if !bytes.Equal(m.b, encode(t, m.s)) {
				t.Fatal("a published state has changed")
			}
		}
	})
}

func bySort(in []plan.Revoked) []plan.Revoked {
	return slices.SortedFunc(slices.Values(in), func(a, b plan.Revoked) int {
		return cmp.Or(cmp.Compare(a.Vertex, b.Vertex), cmp.Compare(a.Fence, b.Fence))
	})
}
