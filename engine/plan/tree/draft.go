package tree

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Draft is a tree whose order is not yet in a graph. Compile puts it there.
type Draft struct {
	Tree
	// Step is the step of each vertex of the underlying graph, or plan.NoStep.
	Step []uint32
}

// NodesPhase is the name of the phases in which machines are made and deleted.
const NodesPhase = "nodes"

func newDraft(g *plan.Graph, name string, s Strategy) *Draft {
	d := &Draft{Tree: Tree{Name: name, Strategy: s}, Step: make([]uint32, g.Len())}
	for v := range d.Step {
		d.Step[v] = plan.NoStep
	}
	return d
}

// phase begins a phase, to which the following steps belong.
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

// perNode puts vertices into one step for each of their nodes, in the nodes' order. Vertices
// without a node get a step of their own.
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

// parts are the tasks of a graph, grouped for phases.
type parts struct {
	made     []uint32   // tasks that make nodes
	services [][]uint32 // tasks of each service, by index
	order    []int      // the services, in the order in which they start, or else stop
	gone     []uint32   // tasks that only delete nodes
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
	// Until here p.order follows the services' first tasks. A first task can be a stop, and stops do
	// not show the order of starts: parts of a dependency may stop early on other nodes. So the
	// services are sorted by the first task that brings each of them up (rises).
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(rises(g, p.services[a]), rises(g, p.services[b])) })
	return p
}

// rises returns the first task of a service that brings it up, or else its first task.
func rises(g *plan.Graph, tasks []uint32) uint32 {
	for _, v := range tasks {
		if a := g.Action[v]; a >= model.Install && a <= model.Start {
			return v
		}
	}
	return tasks[0]
}

// Default groups the tasks of an operation as they are shown: a phase "nodes" in which
// machines are made, a phase for each service in the order in which they start, and a phase
// "nodes" in which machines are deleted. Each phase has a step for each node. Only the graph
// defines the order: a step begins when its dependencies are complete, whatever phase they are
// shown in (docs/spec/plans.md, top).
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

// ByNode makes one phase of an operation, with everything that is done on a node as one step.
// It is for upgrades and restarts in which nodes take turns.
func ByNode(g *plan.Graph, name string, s Strategy) *Draft {
	d := newDraft(g, name, Strategy{})
	p := partsOf(g, func(uint32) bool { return true })
	d.perNode(g, Phase{Name: NodesPhase, Strategy: s}, slices.Concat(p.made, slices.Concat(p.services...), p.gone))
	return d
}

// PerNode makes a phase for each node, with everything that is done on it as its one step. The
// function name returns a phase's name from its node's id. Phases are concurrent, and a failed
// node does not delay others. Recovery is shown this way.
func PerNode(g *plan.Graph, name string, phase func(node string) string, own ...OutlinePhase) *Draft {
	d := newDraft(g, name, Strategy{Kind: Parallel})
	at, named := map[int32]uint32{}, services(own)
	for v, n := range g.Node {
		if g.Action[v] == model.Barrier || named[serviceOn(g, v)] {
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
	d.own(g, own)
	return d
}

// serviceOn returns the id of a vertex's node and the name of its service.
func serviceOn(g *plan.Graph, v int) [2]string { return [2]string{g.NodeID(v), g.ServiceName(v)} }

// services returns the services that the steps of phases are about, with their nodes.
func services(phases []OutlinePhase) map[[2]string]bool {
	out := map[[2]string]bool{}
	for _, p := range phases {
		for _, s := range p.Steps {
			out[[2]string{s.Node, p.Service}] = true
		}
	}
	return out
}

// own adds serial phases with the steps that they name. A step without tasks is everything that is done with the service on its node. A
// task that no step of its service and node names joins the step of the next one that has a step, or else of the previous one.
func (d *Draft) own(g *plan.Graph, phases []OutlinePhase) {
	slots, named := map[[2]string][]uint32{}, services(phases)
	for v := range g.Len() {
		if at := serviceOn(g, v); named[at] {
			slots[at] = append(slots[at], uint32(v))
		}
	}
	for _, p := range phases {
		d.phase(Phase{Name: p.Name, Service: p.Service, Timeout: p.Timeout})
		for _, s := range p.Steps {
			var mine []uint32
			for _, v := range slots[[2]string{s.Node, p.Service}] {
				if len(s.Tasks) == 0 || slices.Contains(s.Tasks, g.Action[v].Key()) {
					mine = append(mine, v)
				}
			}
			if len(mine) == 0 {
				continue
			}
			step := d.step()
			for _, v := range mine {
				d.Step[v] = step
			}
		}
	}
	for _, vs := range slots {
		d.join(vs)
	}
}

// Apart makes two phases of a replacement: "replace" for the nodes that first selects, and
// "configure" for the others. The latter may fail one by one while the rest goes on. The phases own
// come between, with the tasks that they name.
func Apart(g *plan.Graph, name string, first func(node string) bool, own ...OutlinePhase) *Draft {
	d := newDraft(g, name, Strategy{Kind: Dependency})
	var made, others []uint32
	named := services(own)
	for v, a := range g.Action {
		switch {
		case a == model.Barrier, named[serviceOn(g, v)]:
		case first(g.NodeID(v)):
			made = append(made, uint32(v))
		default:
			others = append(others, uint32(v))
		}
	}
	d.perNode(g, Phase{Name: "replace", Strategy: Strategy{Kind: Parallel}}, made)
	d.own(g, own)
	d.perNode(g, Phase{Name: "configure", Strategy: Strategy{Kind: Parallel, MaxFailures: len(g.Nodes)}}, others)
	return d
}

// Staged makes a serial plan of parallel phases, one for each stage of planner.Stages and
// SplitStages. These are the barriers of the original.
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
