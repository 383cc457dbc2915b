package planner

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// TestMakespan checks that execution by Rank is as good as list scheduling by the longest remaining
// path of the graph without barriers, whose ranks are computed here in another way, and that it
// beats the original's stages (docs/spec/planner.md, "Cases and speed": 1.06 to 2.31 times,
// depending on the spread of durations).
func TestMakespan(t *testing.T) {
	const seeds = 100
	for _, template := range []string{"hadoop-distributed", "cdap-distributed"} {
		set := templateServices(t, template)
		for _, n := range []int{10, 50} {
			in := Input{Operation: model.OpCreate, Nodes: clusterOf(n, set.masters, set.workers), Services: set.services}
			g := mustPlan(t, in)
			dense, err := build(&in, true)
			if err != nil {
				t.Fatal(err)
			}
			stages := SplitStages(g, Stages(g))
			for _, sigma := range []float64{0, 0.5, 1} {
				var ours, list, seer, barrier, bound float64
				for seed := range seeds {
					rng := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
					byName := map[string]float64{}
					for v := range dense.Len() {
						byName[dense.Name(v)] = 60 * math.Exp(sigma*rng.NormFloat64())
					}
					mine, theirs := durations(g, byName), durations(dense, byName)
					one := make([]float64, dense.Len())
					for i := range one {
						one[i] = 1
					}
					ours += simulate(g, mine, func(v int) float64 { return float64(g.Rank[v]) })
					unit, known := remaining(dense, one), remaining(dense, theirs)
					list += simulate(dense, theirs, func(v int) float64 { return unit[v] })
					seer += simulate(dense, theirs, func(v int) float64 { return known[v] })
					bound += lower(dense, theirs, known)
					for _, stage := range stages {
						longest := 0.0
						for _, v := range stage {
							longest = max(longest, mine[v])
						}
						barrier += longest
					}
				}
				name := fmt.Sprintf("%s N=%d sigma=%.1f", template, n, sigma)
				t.Logf(
					"%s: %.0f s; list scheduling x%.3f, with durations known x%.3f, lower bound x%.3f; the original's stages take %.2f times as long",
					name,
					ours/seeds,
					ours/list,
					ours/seer,
					ours/bound,
					barrier/ours,
				)
				if ours > 1.05*list {
					t.Errorf("%s: makespan %.0f s, list scheduling by longest remaining path takes %.0f s", name, ours/seeds, list/seeds)
				}
				if ours > 1.05*seer {
					t.Errorf("%s: makespan %.0f s, list scheduling that knows all durations takes %.0f s", name, ours/seeds, seer/seeds)
				}
				if barrier < ours {
					t.Errorf("%s: stages take %.0f s, the graph %.0f s", name, barrier/seeds, ours/seeds)
				}
			}
		}
	}
}

func durations(g *plan.Graph, byName map[string]float64) []float64 {
	out := make([]float64, g.Len())
	for v := range out {
		if g.Action[v] != model.Barrier {
			out[v] = byName[g.Name(v)]
		}
	}
	return out
}

// remaining returns the length of the longest path from each vertex.
func remaining(g *plan.Graph, length []float64) []float64 {
	out := make([]float64, g.Len())
	done := make([]bool, g.Len())
	var visit func(v int) float64
	visit = func(v int) float64 {
		if !done[v] {
			longest := 0.0
			for _, w := range g.Next(v) {
				longest = max(longest, visit(int(w)))
			}
			out[v], done[v] = longest+length[v], true
		}
		return out[v]
	}
	for v := range out {
		visit(v)
	}
	return out
}

// lower returns a lower bound of the makespan: the longest path, or the work of the busiest node.
func lower(g *plan.Graph, length, remaining []float64) float64 {
	node := make([]float64, len(g.Nodes))
	best := 0.0
	for v := range g.Len() {
		best = max(best, remaining[v])
		if n := g.Node[v]; n >= 0 {
			node[n] += length[v]
			best = max(best, node[n])
		}
	}
	return best
}

// simulate runs a graph with one task at a time on each node and as many workers as nodes. Of a
// node's ready tasks, the one with the highest priority runs first. simulate returns the time at
// which the last task ends.
func simulate(g *plan.Graph, length []float64, priority func(v int) float64) float64 {
	left := append([]uint32(nil), g.Preds...)
	ready := make([]*tasks, len(g.Nodes))
	for i := range ready {
		ready[i] = &tasks{}
	}
	busy := make([]bool, len(g.Nodes))
	running := &tasks{}
	now := 0.0
	var free func(v int)
	free = func(v int) {
		if g.Action[v] == model.Barrier {
			for _, w := range g.Next(v) {
				if left[w]--; left[w] == 0 {
					free(int(w))
				}
			}
			return
		}
		heap.Push(ready[g.Node[v]], task{v, -priority(v)})
	}
	start := func() {
		for n := range ready {
			if !busy[n] && ready[n].Len() > 0 {
				v := heap.Pop(ready[n]).(task).vertex
				busy[n] = true
				heap.Push(running, task{v, now + length[v]})
			}
		}
	}
	for v := range g.Len() {
		if g.Preds[v] == 0 {
			free(v)
		}
	}
	for start(); running.Len() > 0; start() {
		done := heap.Pop(running).(task)
		for now = done.key; ; done = heap.Pop(running).(task) {
			busy[g.Node[done.vertex]] = false
			for _, w := range g.Next(done.vertex) {
				if left[w]--; left[w] == 0 {
					free(int(w))
				}
			}
			if running.Len() == 0 || (*running)[0].key > now {
				break
			}
		}
	}
	return now
}

// tasks is a heap by key, then by vertex.
type tasks []task

type task struct {
	vertex int
	key    float64
}

func (h tasks) Len() int { return len(h) }
func (h tasks) Less(i, j int) bool {
	return h[i].key < h[j].key || h[i].key == h[j].key && h[i].vertex < h[j].vertex
}
func (h tasks) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *tasks) Push(x any)   { *h = append(*h, x.(task)) }
func (h *tasks) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
