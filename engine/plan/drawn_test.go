package plan_test

import (
	"fmt"

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
	if rapid.Bool().Draw(t, "steps") {
		return drawSteps(t, g)
	}
	return g
}

// drawSteps puts vertices into steps, some of them into none.
func drawSteps(t *rapid.T, g *plan.Graph) *plan.Graph {
	sizes := rapid.SliceOfN(rapid.Uint32Range(0, 3), 0, 3).Draw(t, "phases")
	total := uint32(0)
	for _, n := range sizes {
		total += n
	}
	steps := make([]uint32, g.Len())
	for v := range steps {
		steps[v] = plan.NoStep
		if s := rapid.Uint32Range(0, total).Draw(t, "step"); s < total {
			steps[v] = s
		}
	}
	h, err := g.WithSteps(steps, sizes)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func seq(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}
