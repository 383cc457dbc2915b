package tree

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Draft is a tree whose order is not in a graph yet: Compile puts it there.
type Draft struct {
	Tree
	// Step is the step of each vertex of the graph that it is made for, or
	// plan.NoStep.
	Step []uint32
}

// NodesPhase is the name of the phases in which machines come and go.
const NodesPhase = "nodes"

func newDraft(g *plan.Graph, name string, s Strategy) *Draft {
	d := &Draft{Tree: Tree{Name: name, Strategy: s}, Step: make([]uint32, g.Len())}
	for v := range d.Step {
		d.Step[v] = plan.NoStep
	}
	return d
}

// phase begins a phase; steps added from now on are its.
func (d *Draft) phase(p Phase) {
	p.First = d.steps()
	p.End = p.First
	d.Phases = append(d.Phases, p)
}

func (d *Draft) steps() uint32 {
	if n := len(d.Phases); n > 0 {
		return d.Phases[n-1].End
	}
	return 0
}

// step adds a step to the last phase.
func (d *Draft) step() uint32 {
	d.Phases[len(d.Phases)-1].End++
	return d.steps() - 1
}

// perNode puts vertices into a step for each of their nodes, in the nodes' order,
// with those without a node in one of their own.
func (d *Draft) perNode(g *plan.Graph, p Phase, vertices []uint32) {
	if len(vertices) == 0 {
		return
	}
	d.phase(p)
	vertices = slices.Clone(vertices)
	node := func(v uint32) int32 { return g.Machine(g.Node[v]) }
	slices.SortStableFunc(vertices, func(a, b uint32) int { return cmp.Compare(node(a), node(b)) })
	for i, v := range vertices {
		if i == 0 || node(v) != node(vertices[i-1]) {
			d.step()
		}
		d.Step[v] = d.steps() - 1
	}
}

// parts are the tasks of a graph in the groups that become phases.
type parts struct {
	made     []uint32   // tasks of whole nodes that are made
	services [][]uint32 // of each service, by index
	order    []int      // of the services: as they come up, or else go down
	gone     []uint32   // tasks of whole nodes that only go
}

func partsOf(g *plan.Graph, which func(v uint32) bool) parts {
	p := parts{services: make([][]uint32, len(g.Services))}
	made := make([]bool, len(g.Nodes))
	for v, a := range g.Action {
		if a.PerNode() && a != model.Delete && g.Node[v] >= 0 {
			made[g.Node[v]] = true
		}
	}
	for v, a := range g.Action {
		if a == model.Barrier || !which(uint32(v)) {
			continue
		}
		s := g.Service[v]
		switch n := g.Node[v]; {
		case s >= 0:
			if len(p.services[s]) == 0 {
				p.order = append(p.order, int(s))
			}
			p.services[s] = append(p.services[s], uint32(v))
		case n >= 0 && !made[n]:
			p.gone = append(p.gone, uint32(v))
		default:
			p.made = append(p.made, uint32(v))
		}
	}
	// What a service depends on comes up before it, but on other nodes something
	// of it may go down before that.
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(rises(g, p.services[a]), rises(g, p.services[b])) })
	return p
}

// rises returns the first of a service's tasks with which it comes up, or else the first.
func rises(g *plan.Graph, tasks []uint32) uint32 {
	for _, v := range tasks {
		if a := g.Action[v]; a >= model.Install && a <= model.Start {
			return v
		}
	}
	return tasks[0]
}

// Default groups the tasks of an operation as they are shown: a phase "nodes" in
// which machines are made, a phase for each service in the order in which they
// come up, a phase "nodes" in which machines go; each with a step for each node. The
// graph alone says what waits for what: a step begins when what it depends on is
// complete, whatever phase that is shown in (docs/spec/plans.md, top).
func Default(g *plan.Graph, name string) *Draft {
	d := newDraft(g, name, Strategy{Kind: Dependency})
	p := partsOf(g, func(uint32) bool { return true })
	d.perNode(g, Phase{Name: NodesPhase, Strategy: d.Strategy}, p.made)
	for _, s := range p.order {
		d.perNode(g, Phase{Name: g.Services[s], Service: g.Services[s], Strategy: d.Strategy}, p.services[s])
	}
	d.perNode(g, Phase{Name: NodesPhase, Strategy: d.Strategy}, p.gone)
	return d
}

// ByNode makes one phase of an operation, with all that is done on a node as one
// step: for upgrades and restarts in which nodes take turns.
func ByNode(g *plan.Graph, name string, s Strategy) *Draft {
	d := newDraft(g, name, Strategy{})
	p := partsOf(g, func(uint32) bool { return true })
	d.perNode(g, Phase{Name: NodesPhase, Strategy: s}, slices.Concat(p.made, slices.Concat(p.services...), p.gone))
	return d
}

// PerNode makes a phase of its own for each node, with all that is done there as
// its one step; name gives a phase's from its node's id. Phases go on beside each
// other, and a node may fail without holding the others up: so recovery is shown.
func PerNode(g *plan.Graph, name string, phase func(node string) string) *Draft {
	d := newDraft(g, name, Strategy{Kind: Parallel})
	at := map[int32]uint32{}
	for v, n := range g.Node {
		if g.Action[v] == model.Barrier {
			continue
		}
		n = g.Machine(n)
		step, ok := at[n]
		if !ok {
			d.phase(Phase{Name: phase(g.NodeID(v)), Strategy: Strategy{Kind: Parallel, MaxFailures: 1}})
			step = d.step()
			at[n] = step
		}
		d.Step[v] = step
	}
	return d
}

// Apart makes two phases of a replacement: "replace" for the nodes that first says,
// and "configure" for the others, which may fail one by one and the rest goes on.
func Apart(g *plan.Graph, name string, first func(node string) bool) *Draft {
	d := newDraft(g, name, Strategy{Kind: Dependency})
	var made, others []uint32
	for v, a := range g.Action {
		switch {
		case a == model.Barrier:
		case first(g.NodeID(v)):
			made = append(made, uint32(v))
		default:
			others = append(others, uint32(v))
		}
	}
	d.perNode(g, Phase{Name: "replace", Strategy: Strategy{Kind: Parallel}}, made)
	d.perNode(g, Phase{Name: "configure", Strategy: Strategy{Kind: Parallel, MaxFailures: len(g.Nodes)}}, others)
	return d
}

// Staged makes a serial plan of parallel phases, one for each stage, as
// planner.Stages and SplitStages give them: the original's barriers.
func Staged(g *plan.Graph, name string, stages [][]int) *Draft {
	d := newDraft(g, name, Strategy{})
	for i, stage := range stages {
		d.phase(Phase{Name: fmt.Sprintf("stage-%d", i+1), Strategy: Strategy{Kind: Parallel}})
		for _, v := range stage {
			d.Step[v] = d.step()
		}
	}
	return d
}
