package plan_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

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

// BenchmarkMemory measures the bytes that a vertex takes: in the graph with its edges and
// steps, in the state before anything is done, and in the state when all is done.
func BenchmarkMemory(b *testing.B) {
	for _, tasks := range []int{1_000, 500_000, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			var graph, fresh, done float64
			for b.Loop() {
				before := heap()
				g := bigPlan(tasks)
				graph = heap() - before
				before = heap()
				s := plan.NewState(g)
				fresh = heap() - before
				for ready := s.Leasable(); len(ready) > 0; {
					e := s.Edit()
					for _, v := range ready {
						if err := e.Lease(v, 1, plan.Holder{Session: "s", Agent: "a"}, 1); err != nil {
							b.Fatal(err)
						}
						if err := e.Succeed(v, 1, plan.End{}, 2); err != nil {
							b.Fatal(err)
						}
					}
					ready, s = e.Ready(), e.Done()
				}
				done = heap() - before
				runtime.KeepAlive(g)
				runtime.KeepAlive(s)
			}
			n := float64(tasks)
			b.ReportMetric(graph/n, "graph-B/vertex")
			b.ReportMetric(fresh/n, "fresh-B/vertex")
			b.ReportMetric(done/n, "done-B/vertex")
		})
	}
}

// heap returns the bytes that are in use.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkOrder measures orders about one step of a plan of many, each in an edit of its own:
// the cost should follow the step, not the plan.
func BenchmarkOrder(b *testing.B) {
	for _, tasks := range []int{1_000, 1_000_000} {
		g := bigPlan(tasks)
		steps := uint32(len(g.Nodes))
		of := make([]uint32, g.Len())
		for v := range of {
			of[v] = uint32(g.Node[v])
		}
		g, err := g.WithSteps(of, []uint32{steps / 2, steps - steps/2})
		if err != nil {
			b.Fatal(err)
		}
		for name, order := range map[string]func(e *plan.Edit, p plan.Part) error{
			"hold and release": func(e *plan.Edit, p plan.Part) error {
				if err := e.Hold(p, plan.GateInterrupt); err != nil {
					return err
				}
				return e.Release(p, plan.GateInterrupt)
			},
			"force complete": func(e *plan.Edit, p plan.Part) error { return e.ForceComplete(p, plan.Order{}) },
			"restart":        func(e *plan.Edit, p plan.Part) error { return e.Restart(p, plan.Order{}) },
		} {
			b.Run(fmt.Sprintf("tasks=%d/%s", tasks, name), func(b *testing.B) {
				b.ReportAllocs()
				s, i := plan.NewState(g), uint32(0)
				for b.Loop() {
					e := s.Edit()
					if err := order(e, plan.Step(i%steps)); err != nil {
						b.Fatal(err)
					}
					s = e.Done()
					i += 7919
				}
			})
		}
	}
}
