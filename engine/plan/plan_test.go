package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// drawGraph draws an acyclic graph: edges lead from lower to higher vertices
// of a random order. Some nodes get a CREATE with a CONFIRM behind it.
func drawGraph(t *rapid.T) *plan.Graph {
	nodes := rapid.IntRange(1, 6).Draw(t, "nodes")
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprint("n", i))
	}
	b := plan.NewBuilder(names, []string{"a", "b"})
	n := rapid.IntRange(1, 30).Draw(t, "vertices")
	for range n {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			b.Barrier()
		case 1:
			node := rapid.IntRange(0, nodes-1).Draw(t, "node")
			b.Edge(b.Task(model.Create, node, plan.None), b.Task(model.Confirm, node, plan.None))
		default:
			b.Task(model.Action(rapid.IntRange(int(model.Bootstrap), int(model.Delete)).Draw(t, "action")),
				rapid.IntRange(plan.None, nodes-1).Draw(t, "node"), rapid.IntRange(plan.None, 1).Draw(t, "service"))
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	n = g.Len()
	order := rapid.Permutation(seq(n)).Draw(t, "order")
	if rapid.Bool().Draw(t, "in order") {
		order = seq(n)
	}
	pos := make([]int, n)
	for i, v := range order {
		pos[v] = i
	}
	for v := range n {
		for _, w := range g.Next(v) {
			if pos[v] > pos[w] { // keep CREATE before CONFIRM
				pos[v], pos[w] = pos[w], pos[v]
				order[pos[v]], order[pos[w]] = uint32(v), w
			}
		}
	}
	for range rapid.IntRange(0, 3*n).Draw(t, "edges") {
		i, j := rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")
		if i != j {
			b.Edge(order[min(i, j)], order[max(i, j)])
		}
	}
	if g, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	return g
}

func seq(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

// naive is the slow and obvious plan: after every event it looks at every
// vertex and all that it waits for.
type naive struct {
	g       *plan.Graph
	preds   [][]uint32
	status  []model.TaskStatus
	fence   []uint64
	attempt []int
	holder  []string
	observe []bool
	undo    []bool
	retryAt []int64
}

func newNaive(g *plan.Graph) *naive {
	n := g.Len()
	o := &naive{
		g: g, preds: make([][]uint32, n), status: make([]model.TaskStatus, n), fence: make([]uint64, n), attempt: make([]int, n),
		holder: make([]string, n), observe: make([]bool, n), undo: make([]bool, n), retryAt: make([]int64, n),
	}
	for v := range n {
		for _, w := range g.Next(v) {
			o.preds[w] = append(o.preds[w], uint32(v))
		}
		o.status[v] = model.TaskBlocked
	}
	o.flow()
	return o
}

// flow makes ready whatever waits for nothing any more.
func (o *naive) flow() {
	for changed := true; changed; {
		changed = false
		for v := range o.g.Len() {
			if o.status[v] != model.TaskBlocked || slices.ContainsFunc(o.preds[v], func(u uint32) bool { return o.status[u] != model.TaskSucceeded }) {
				continue
			}
			o.status[v] = model.TaskReady
			if o.g.Action[v] == model.Barrier {
				o.status[v] = model.TaskSucceeded
			}
			changed = true
		}
	}
}

func (o *naive) leasable(v uint32) bool {
	return o.g.Action[v] != model.Barrier && (o.status[v] == model.TaskReady || o.status[v] == model.TaskUncertain)
}

func (o *naive) busy(node int32) bool {
	for v := range o.g.Len() {
		if o.g.Node[v] == node && o.status[v].Held() {
			return true
		}
	}
	return false
}

func (o *naive) again(v uint32) {
	o.status[v] = model.TaskReady
	if o.observe[v] {
		o.status[v] = model.TaskUncertain
	}
}

// step draws an event and gives it to both.
func (o *naive) step(t *rapid.T, e *plan.Edit, index uint64, now int64) {
	v := uint32(rapid.IntRange(0, o.g.Len()-1).Draw(t, "vertex"))
	fence := o.fence[v]
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		fence += uint64(rapid.IntRange(1, 3).Draw(t, "off"))
	}
	held := o.status[v].Held() && fence == o.fence[v]
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", o.g.Name(int(v)), err, want)
		}
	}
	stale := func() error {
		if held {
			return nil
		}
		return plan.ErrStaleFence
	}
	unseen := rapid.Bool().Draw(t, "unseen")
	retryAt := now + int64(rapid.IntRange(-5, 5).Draw(t, "retry"))
	switch rapid.IntRange(0, 12).Draw(t, "event") {
	case 0, 1, 2, 3:
		h := plan.Holder{Session: fmt.Sprint("s", rapid.IntRange(0, 2).Draw(t, "session")), Agent: "x"}
		err := e.Lease(v, index, h, now)
		switch {
		case !o.leasable(v) || o.retryAt[v] > now:
			check(err, plan.ErrNotReady)
		case o.g.Node[v] >= 0 && o.busy(o.g.Node[v]):
			check(err, plan.ErrNodeBusy)
		default:
			check(err, nil)
			o.status[v], o.fence[v], o.holder[v] = model.TaskLeased, index, h.Session
			o.attempt[v]++
		}
	case 4:
		check(e.Start(v, fence), stale())
		if held {
			o.status[v] = model.TaskRunning
		}
	case 5, 6, 7:
		check(e.Succeed(v, fence, plan.End{}, now), stale())
		if !held {
			return
		}
		if o.undo[v] {
			o.undo[v], o.observe[v], o.retryAt[v] = false, false, 0
			o.again(v)
			return
		}
		o.status[v], o.observe[v], o.retryAt[v] = model.TaskSucceeded, false, 0
		o.flow()
	case 8:
		if create, ok := o.g.Before(v, model.Create); ok && o.g.Action[v] == model.Confirm {
			check(e.Recreate(v, create, fence, plan.End{}, retryAt, now), stale())
			if held {
				o.status[v], o.status[create], o.undo[create], o.retryAt[create] = model.TaskBlocked, model.TaskReady, true, retryAt
			}
			return
		}
		check(e.Retry(v, fence, unseen, plan.End{}, retryAt, now), stale())
		if held {
			o.observe[v] = o.observe[v] || unseen
			o.retryAt[v] = retryAt
			o.again(v)
		}
	case 9:
		check(e.Lose(v, fence, unseen, plan.End{Outcome: "lost"}, now), stale())
		if held {
			o.observe[v] = o.observe[v] || unseen
			o.again(v)
		}
	case 10:
		check(e.Fail(v, fence, unseen, plan.End{}, now), stale())
		if held {
			o.observe[v] = o.observe[v] || unseen
			o.status[v] = model.TaskFailed
		}
	case 11:
		e.Reopen(v)
		if o.status[v] == model.TaskFailed {
			o.retryAt[v] = 0
			o.again(v)
		}
	case 12:
		switch rapid.IntRange(0, 9).Draw(t, "end") {
		case 0:
			e.CancelWaiting(now)
			for w := range o.g.Len() {
				if !o.status[w].Ended() && !o.status[w].Held() && o.g.Action[w] != model.Barrier {
					o.status[w] = model.TaskCancelled
				}
			}
		case 1:
			e.Cancel(v, plan.End{}, now)
			if !o.status[v].Ended() && o.g.Action[v] != model.Barrier {
				o.status[v] = model.TaskCancelled
			}
		}
	}
}

func (o *naive) compare(t *rapid.T, s *plan.State) {
	t.Helper()
	var counts [model.TaskStatuses]int
	var leasable, leased []uint32
	complete := true
	for v := range o.g.Len() {
		u := uint32(v)
		complete = complete && o.status[v] == model.TaskSucceeded
		if got := s.Status(u); got != o.status[v] {
			t.Fatalf("%s (%d) is %s, want %s", o.g.Name(v), v, got, o.status[v])
		}
		if o.g.Action[v] == model.Barrier {
			continue
		}
		counts[o.status[v]]++
		if o.leasable(u) {
			leasable = append(leasable, u)
		}
		if o.status[v].Held() {
			leased = append(leased, u)
		}
		if task := s.Task(u); task.Fence != o.fence[v] || task.Attempt != o.attempt[v] || task.Holder.Session != o.holder[v] {
			t.Fatalf("%s: %+v, want fence %d, attempt %d", o.g.Name(v), task, o.fence[v], o.attempt[v])
		}
	}
	for st := range counts {
		if got := s.Count(model.TaskStatus(st)); got != counts[st] {
			t.Fatalf("%d tasks count as %s, want %d", got, model.TaskStatus(st), counts[st])
		}
	}
	if got := s.Leasable(); !slices.Equal(got, leasable) {
		t.Fatalf("leasable %v, want %v", got, leasable)
	}
	if got := s.Leased(""); !slices.Equal(got, leased) {
		t.Fatalf("leased %v, want %v", got, leased)
	}
	if s.Held() != len(leased) || s.Complete() != complete {
		t.Fatalf("held %d of %d, complete %t, want %t", s.Held(), len(leased), s.Complete(), complete)
	}
	for node := range o.g.Nodes {
		if _, got := s.Busy(int32(node)); got != o.busy(int32(node)) {
			t.Fatalf("node %d busy %t", node, got)
		}
	}
}

func encode(t *rapid.T, s *plan.State) []byte {
	t.Helper()
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A plan does what the naive one does, whatever happens to it; a published
// state never changes; what is written reads back the same.
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
		for range rapid.IntRange(0, 25).Draw(t, "batches") {
			e := s.Edit()
			before := map[uint32]bool{}
			for _, v := range s.Leasable() {
				before[v] = true
			}
			for range rapid.IntRange(1, 6).Draw(t, "events") {
				index++
				now += 2
				o.step(t, e, index, now)
			}
			o.compare(t, e.State())
			s = e.Done()
			o.compare(t, s)
			told := map[uint32]bool{}
			for _, v := range e.Ready() {
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

// FuzzDecode: what comes from outside neither crashes nor asks for more memory
// than it has bytes.
func FuzzDecode(f *testing.F) {
	b := plan.NewBuilder([]string{"n"}, []string{"s"})
	b.Edge(b.Task(model.Create, 0, plan.None), b.Task(model.Install, 0, 0))
	g, _ := b.Build()
	s, _ := plan.NewState(g).Encode()
	f.Add(g.Encode(), s)
	f.Fuzz(func(t *testing.T, graph, state []byte) {
		if g, err := plan.DecodeGraph(graph); err == nil {
			if s, err := plan.DecodeState(g, state); err == nil {
				s.Leasable()
				s.Leased("")
			}
		}
	})
}

// bigPlan makes a plan of so many tasks on nodes of seven each.
func bigPlan(tasks int) *plan.Graph {
	nodes := (tasks + 6) / 7
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("00000001-%d", 1000+i)
	}
	b := plan.NewBuilder(names, []string{"s"})
	b.Grow(7*nodes, 6*nodes)
	chain := []model.Action{model.Create, model.Confirm, model.Bootstrap, model.Install, model.Configure, model.Initialize, model.Start}
	for n := range nodes {
		last := uint32(0)
		for i, a := range chain {
			service := plan.None
			if i > 2 {
				service = 0
			}
			v := b.Task(a, n, service)
			if i > 0 {
				b.Edge(last, v)
			}
			last = v
		}
	}
	g, err := b.Build()
	if err != nil {
		panic(err)
	}
	return g
}

// BenchmarkResult is one lease and one result, in edits of so many: an edit
// for each is the worst case, a state machine gathers them.
func BenchmarkResult(b *testing.B) {
	for _, tasks := range []int{1_000, 500_000, 1_000_000} {
		for _, batch := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("tasks=%d/batch=%d", tasks, batch), func(b *testing.B) {
				g := bigPlan(tasks)
				start := plan.NewState(g)
				s, ready := start, start.Leasable()
				fence := uint64(1)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; {
					if len(ready) == 0 {
						b.StopTimer()
						s, ready = start, start.Leasable()
						b.StartTimer()
					}
					n := min(batch, len(ready))
					e := s.Edit()
					fence++
					for _, v := range ready[:n] {
						if err := e.Lease(v, fence, plan.Holder{Session: "s", Agent: "a"}, 1); err != nil {
							b.Fatal(err)
						}
						if err := e.Succeed(v, fence, plan.End{}, 2); err != nil {
							b.Fatal(err)
						}
					}
					ready = append(ready[n:], e.Ready()...)
					s = e.Done()
					i += n
				}
			})
		}
	}
}
