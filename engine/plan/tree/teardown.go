package tree

import (
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// Teardown marks a phase that removes something, and selects how its steps are named
// (docs/spec/plans.md §10, §11).
type Teardown string

const (
	// TearNode removes a node: kill-<node>-<service> stops a service, erase-<node>-<service>
	// removes it, unreserve-<node> deletes the machine. An action of the service's own has its own name in place of "kill".
	TearNode Teardown = "node"
	// TearTasks stops and removes the services of a cluster: kill-task-<node>-<service>.
	TearTasks Teardown = "tasks"
	// TearCluster ends the cluster. Its one step, deregister, has no tasks and is complete when
	// all other steps of the plan are.
	TearCluster Teardown = "cluster"
)

// name returns the name of a step from its tasks, or "".
func (t Teardown) name(g *plan.Graph, step uint32, node func(id string) string) string {
	for v := range g.In(plan.Step(step)) {
		verb := "kill-"
		switch {
		case g.Action[v] == model.Delete:
			return "unreserve-" + node(g.NodeID(int(v)))
		case t == TearTasks:
			verb = "kill-task-"
		case g.Action[v] == model.Run:
			verb = g.ActionKey(int(v)) + "-"
		case g.Action[v] == model.Remove:
			verb = "erase-"
		}
		return verb + node(g.NodeID(int(v))) + "-" + g.ServiceName(int(v))
	}
	return ""
}

// unreserve is the prefix of the names of the phases in which an uninstall deletes machines.
const unreserve = "unreserve-resources-"

// torn returns the names of the nodes that phases remove, by id. After their removal no other
// record has these names.
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

// lasts reports whether a phase's steps represent the end of the rest of the plan.
func (p *Phase) lasts() bool { return p.Teardown == TearCluster }

// Leaver is a node that leaves, and its name.
type Leaver struct{ Node, Name string }

// Decommission makes a serial plan: a serial phase for each leaving node, in this order, with
// a step for each task on it, and then the reconfiguration of other services
// (docs/spec/plans.md §10).
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

// Uninstall makes the plan that deletes a cluster (docs/spec/plans.md §11): a phase kill-tasks
// in which services are stopped and removed, a phase for each node, by name, in which its
// machine is deleted, and a phase for the end of the cluster itself. Only the graph defines
// the order.
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
