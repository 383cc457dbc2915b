package planner

import (
	"cmp"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Stages returns the tasks of a graph by level: each task is in the first stage that comes after
// those of all tasks for which it waits. Barriers take no stage. Vertices ascend within a stage
// (docs/spec/coopr.md 5.5, Kahn levels before the split).
func Stages(g *plan.Graph) [][]int {
	n := g.Len()
	level := make([]int32, n) // the stage of a task; for a barrier, the stage after its predecessors
	left := slices.Clone(g.Preds)
	queue := make([]uint32, 0, n)
	for v := range n {
		if left[v] == 0 {
			queue = append(queue, uint32(v))
		}
	}
	sizes := []int{}
	for i := 0; i < len(queue); i++ {
		v := queue[i]
		after := level[v]
		if g.Action[v] != model.Barrier {
			for int(after) >= len(sizes) {
				sizes = append(sizes, 0)
			}
			sizes[after]++
			after++
		}
		for _, w := range g.Next(int(v)) {
			level[w] = max(level[w], after)
			if left[w]--; left[w] == 0 {
				queue = append(queue, w)
			}
		}
	}
	stages := make([][]int, len(sizes))
	for i, size := range sizes {
		stages[i] = make([]int, 0, size)
	}
	for v := range n {
		if g.Action[v] != model.Barrier {
			stages[level[v]] = append(stages[level[v]], v)
		}
	}
	return stages
}

// SplitStages splits each stage so that no part has two tasks of one node. The number of parts is
// the number of tasks of the busiest node. Tasks of other nodes go to the smallest parts, so that
// the parts have similar sizes. On each node the task with the longest remaining path comes first.
// Equal inputs lead to equal results (docs/spec/planner.md, "Graph" 1).
func SplitStages(g *plan.Graph, stages [][]int) [][]int {
	out := make([][]int, 0, len(stages))
	for _, stage := range stages {
		out = append(out, split(g, stage)...)
	}
	return out
}

func split(g *plan.Graph, stage []int) [][]int {
	tasks := slices.Clone(stage)
	slices.SortStableFunc(tasks, func(a, b int) int {
		return cmp.Or(cmp.Compare(g.Node[a], g.Node[b]), cmp.Compare(g.Rank[b], g.Rank[a]), cmp.Compare(a, b))
	})
	var runs [][]int // the tasks of one node each
	for start := 0; start < len(tasks); {
		end := start + 1
		for end < len(tasks) && g.Node[tasks[end]] == g.Node[tasks[start]] && g.Node[tasks[end]] >= 0 {
			end++
		}
		runs = append(runs, tasks[start:end])
		start = end
	}
	slices.SortStableFunc(runs, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	if len(runs) == 0 {
		return nil
	}
	parts := make([][]int, len(runs[0]))
	if len(parts) == 1 {
		return [][]int{slices.Clone(stage)}
	}
	emptiest := make([]int, len(parts))
	for i := range emptiest {
		emptiest[i] = i
	}
	for _, run := range runs {
		if len(run) < len(parts) {
			slices.SortFunc(emptiest, func(a, b int) int { return cmp.Or(cmp.Compare(len(parts[a]), len(parts[b])), cmp.Compare(a, b)) })
		}
		into := slices.Clone(emptiest[:len(run)])
		slices.Sort(into)
		for i, v := range run {
			parts[into[i]] = append(parts[into[i]], v)
		}
	}
	for _, part := range parts {
		slices.Sort(part)
	}
	return parts
}
