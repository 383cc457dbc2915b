package plan_test

import (
	"fmt"
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
