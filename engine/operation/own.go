package operation

import (
	"slices"
	"strconv"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// withOwn returns the graph of a shrink with the actions of services' own that the template's plan "decommission" names: before a service
// is stopped on a node that leaves, or else before the machine is deleted. They follow each other in the order of the plan.
func (p *Prepared) withOwn(g *plan.Graph, gone map[string]bool) (*plan.Graph, error) {
	i := slices.IndexFunc(p.Cluster.Template.Plans, func(t model.Plan) bool { return t.Name == model.DecommissionPlan })
	if p.Operation.Type != model.OpShrink || i < 0 {
		return g, nil
	}
	ahead := map[int][]string{} // entries of the graph's services, by the vertex that they come before
	for _, ph := range p.Cluster.Template.Plans[i].Phases {
		number := 0 // of the node among those that carry the service
		for k := range p.Nodes {
			n := &p.Nodes[k]
			if !slices.Contains(n.Services, ph.Service) {
				continue
			}
			v, ok := firstOf(g, n.ID, ph.Service)
			if n.Leaves && !gone[n.ID] && ok {
				for _, key := range p.ownSteps(ph, number) {
					ahead[v] = append(ahead[v], model.OwnAction(ph.Service, key))
				}
			}
			number++
		}
	}
	if len(ahead) == 0 {
		return g, nil
	}
	return insert(g, ahead)
}

// ownSteps returns the actions of a service's own in the steps of a phase for a node, in their order.
func (p *Prepared) ownSteps(ph model.PlanPhase, number int) []string {
	d := p.Cluster.Definitions[ph.Service]
	own := d.OwnActions()
	var out []string
	for _, tasks := range stepsOf(ph, number) {
		for _, key := range tasks {
			if slices.Contains(own, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// stepsOf returns the steps on a node, by its number among those that carry the service.
func stepsOf(p model.PlanPhase, number int) [][]string {
	var out [][]string
	for _, s := range p.Steps {
		if n, err := strconv.Atoi(s.Node); err == nil && n == number {
			return s.Tasks
		}
		if s.Node == model.DefaultSteps {
			out = s.Tasks
		}
	}
	return out
}

// firstOf returns the first task of a service on a node, or else the one that deletes the node.
func firstOf(g *plan.Graph, node, service string) (v int, ok bool) {
	last := -1
	for _, v := range g.On(node) {
		if g.ServiceName(int(v)) == service {
			return int(v), true
		}
		if g.Action[v] == model.Delete {
			last = int(v)
		}
	}
	return last, last >= 0
}

// insert returns a graph with further tasks before some vertices, by vertex. What the vertex waited for, its first such task waits for.
func insert(g *plan.Graph, ahead map[int][]string) (*plan.Graph, error) {
	services := slices.Clone(g.Services)
	index := func(entry string) int {
		i := slices.Index(services, entry)
		if i < 0 {
			i = len(services)
			services = append(services, entry)
		}
		return i
	}
	for v := range g.Len() {
		for _, entry := range ahead[v] {
			index(entry)
		}
	}
	b := plan.NewBuilder(g.Nodes, services)
	head, is := make([]uint32, g.Len()), make([]uint32, g.Len())
	for v, action := range g.Action {
		var before []uint32
		for _, entry := range ahead[v] {
			before = append(before, b.Task(model.Run, int(g.Node[v]), index(entry)))
		}
		is[v] = b.Task(action, int(g.Node[v]), int(g.Service[v]))
		before = append(before, is[v])
		for i := 1; i < len(before); i++ {
			b.Edge(before[i-1], before[i])
		}
		head[v] = before[0]
	}
	for v := range g.Len() {
		for _, w := range g.Next(v) {
			b.Edge(is[v], head[w])
		}
	}
	return b.Build()
}
