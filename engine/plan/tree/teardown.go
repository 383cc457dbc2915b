package tree

import (
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Teardown says of a phase that it takes something down, and with it how its
// steps are named (docs/spec/plans.md §10, §11).
type Teardown string

const (
	// TearNode takes a node away: kill-<node>-<service> stops a service,
	// erase-<node>-<service> removes it, unreserve-<node> gives the machine back.
	TearNode Teardown = "node"
	// TearTasks ends the services of a cluster: kill-task-<node>-<service>.
	TearTasks Teardown = "tasks"
	// TearCluster is the end of a cluster: its one step, deregister, has no task of its
	// own and is complete when all others of the plan are.
	TearCluster Teardown = "cluster"
)

// name returns a step's name from its tasks; "" where it has none.
func (t Teardown) name(g *plan.Graph, step uint32, node func(id string) string) string {
	for v := range g.In(plan.Step(step)) {
		verb := "kill-"
		switch {
		case g.Action[v] == model.Delete:
			return "unreserve-" + node(g.NodeID(int(v)))
		case t == TearTasks:
			verb = "kill-task-"
		case g.Action[v] == model.Remove:
			verb = "erase-"
		}
		return verb + node(g.NodeID(int(v))) + "-" + g.ServiceName(int(v))
	}
	return ""
}

// unreserve begins the names of the phases in which an uninstall gives machines back.
const unreserve = "unreserve-resources-"

// torn returns the names of the nodes that phases take away, by id: when these have done so
// nobody else knows them any more.
func (t *Tree) torn(g *plan.Graph) map[string]string {
	var out map[string]string
	for i, p := range t.Phases {
		if p.Teardown != TearNode {
			continue
		}
		for v := range g.In(plan.Phase(uint32(i))) {
			if out == nil {
				out = map[string]string{}
			}
			out[g.NodeID(int(v))] = strings.TrimPrefix(p.Name, unreserve)
			break
		}
	}
	return out
}

// lasts reports whether a phase's steps stand for the end of the rest of the plan.
func (p *Phase) lasts() bool { return p.Teardown == TearCluster }

// Leaver is a node that goes, and its name.
type Leaver struct{ Node, Name string }

// Decommission makes a serial plan: a serial phase for each node that goes, in this
// order, with a step for each thing that is done on it, and behind them what others
// are configured anew for (docs/spec/plans.md §10).
func Decommission(g *plan.Graph, name string, leave []Leaver) *Draft {
	d := newDraft(g, name, Strategy{})
	tasks := map[string][]uint32{}
	for v, a := range g.Action {
		if a != model.Barrier {
			tasks[g.NodeID(v)] = append(tasks[g.NodeID(v)], uint32(v))
		}
	}
	for _, l := range leave {
		if len(tasks[l.Node]) == 0 {
			continue
		}
		d.phase(Phase{Name: l.Name, Teardown: TearNode})
		for _, v := range tasks[l.Node] {
			d.Step[v] = d.step()
		}
		delete(tasks, l.Node)
	}
	var others []uint32
	for _, left := range tasks {
		others = append(others, left...)
	}
	slices.Sort(others)
	d.perNode(g, Phase{Name: "configure", Strategy: Strategy{Kind: Dependency}}, others)
	return d
}

// Uninstall shows the end of a cluster (docs/spec/plans.md §11): a phase kill-tasks in
// which services are stopped and removed, one for each node in the order of their
// names in which its machine is given back, and one for the cluster's own end.
// The graph alone says what waits for what.
func Uninstall(g *plan.Graph, name string, nodes []Leaver) *Draft {
	d := newDraft(g, name, Strategy{Kind: Dependency})
	machine := map[string][]uint32{}
	type instance struct {
		node    int32
		service int16
	}
	steps := map[instance]uint32{}
	d.phase(Phase{Name: "kill-tasks", Strategy: Strategy{Kind: Parallel}, Teardown: TearTasks})
	for v, a := range g.Action {
		switch {
		case a == model.Barrier:
		case a.PerNode():
			machine[g.NodeID(v)] = append(machine[g.NodeID(v)], uint32(v))
		default:
			of := instance{g.Node[v], g.Service[v]}
			step, ok := steps[of]
			if !ok {
				step = d.step()
				steps[of] = step
			}
			d.Step[v] = step
		}
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Leaver) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		if len(machine[n.Node]) == 0 {
			continue
		}
		d.phase(Phase{Name: unreserve + n.Name, Strategy: Strategy{Kind: Parallel}, Teardown: TearNode})
		step := d.step()
		for _, v := range machine[n.Node] {
			d.Step[v] = step
		}
	}
	d.phase(Phase{Name: "deregister-service", Teardown: TearCluster})
	d.step()
	return d
}
