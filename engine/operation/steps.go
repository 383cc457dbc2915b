package operation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
)

// PlanName returns the name under which an operation's plan is shown and controlled.
func PlanName(op *model.Operation) string {
	if op.Plan != "" {
		return op.Plan
	}
	switch {
	case op.Type.Concurrent():
		return model.RecoveryPlan
	case op.Type == model.OpShrink:
		return model.DecommissionPlan
	}
	if op.Type == model.OpRollback {
		if op.Follows != "" {
			return "rollback:" + op.Follows
		}
		return "rollback:" + op.ID
	}
	return "deploy"
}

// grouped adds phases and steps to the graph. They are shown, orders refer to them, and a strategy
// orders the steps (docs/spec/plans.md).
func (p *Prepared) grouped() (*Prepared, error) {
	d, err := p.draft()
	if err != nil {
		return nil, err
	}
	g, err := d.Compile(p.Graph)
	var order *tree.OrderError
	switch {
	case !errors.As(err, &order):
	case p.Operation.Type == model.OpShrink && !p.rolled():
		// The order in which nodes leave is a preference: services that need each other decide.
		d = tree.Default(p.Graph, PlanName(&p.Operation))
		g, err = d.Compile(p.Graph)
	default:
		fs := model.Faults{}
		fs.Add("strategy", order.Error())
		return nil, fs
	}
	if err != nil {
		return nil, err
	}
	p.Graph, p.Tree = g, &d.Tree
	return p, nil
}

// rolled reports whether the request sets the order in which nodes change.
func (p *Prepared) rolled() bool {
	return p.rollout.Strategy != "" || p.rollout.MaxFailures > 0 || p.rollout.Staged
}

// upgrades reports whether nodes change one by one by default, if neither the request nor the
// template sets their order.
func (p *Prepared) upgrades() bool {
	return p.Operation.Type == model.OpUpgrade || p.Operation.Type == model.OpSyncTemplate && p.turns
}

// draft chooses the grouping: the one that the request asks for, else the template's plan,
// else node by node for upgrades, else by service.
func (p *Prepared) draft() (*tree.Draft, error) {
	name := PlanName(&p.Operation)
	s, err := strategyOf(p.rollout)
	switch {
	case err != nil:
		return nil, err
	case p.rollout.Staged:
		return tree.Staged(p.Graph, name, planner.SplitStages(p.Graph, planner.Stages(p.Graph))), nil
	case p.rollout.Strategy != "" || p.rollout.MaxFailures > 0 && p.templatePlan() == nil:
		if p.rollout.Strategy == "" && !p.upgrades() {
			s.Kind = tree.Parallel
		}
		return tree.ByNode(p.Graph, name, s), nil
	}
	switch p.Operation.Type {
	case model.OpShrink:
		return tree.Decommission(p.Graph, name, p.leavers()), nil
	case model.OpDelete:
		var all []tree.Leaver
		for i := range p.Nodes {
			all = append(all, tree.Leaver{Node: p.Nodes[i].ID, Name: p.Nodes[i].ShortName()})
		}
		return tree.Uninstall(p.Graph, name, all), nil
	}
	if p.only != nil {
		return tree.Apart(p.Graph, name, func(node string) bool { return p.only[node] }, p.own...), nil
	}
	if t := p.templatePlan(); t != nil {
		o, err := tree.Outlines(*t, p.instances())
		if err != nil {
			return nil, err
		}
		o.Name, o.Turns = name, p.turns
		for i := range o.Phases {
			o.Phases[i].Strategy.MaxFailures = max(o.Phases[i].Strategy.MaxFailures, s.MaxFailures)
		}
		return o.Draft(p.Graph)
	}
	if p.upgrades() {
		return tree.ByNode(p.Graph, name, s), nil
	}
	return tree.Default(p.Graph, name), nil
}

// templatePlan returns the template's plan for this operation, or nil.
func (p *Prepared) templatePlan() *model.Plan {
	var names []string
	switch p.Operation.Type {
	case model.OpUpgrade, model.OpSyncTemplate, model.OpConfigure:
		names = []string{"update", "deploy"}
	case model.OpCreate, model.OpGrow, model.OpAddServices:
		names = []string{"deploy"}
	}
	for _, name := range names {
		for i := range p.Cluster.Template.Plans {
			if t := &p.Cluster.Template.Plans[i]; t.Name == name {
				return t
			}
		}
	}
	return nil
}

// instances returns the future nodes of each service and the service's actions.
func (p *Prepared) instances() map[string]tree.Instances {
	return instancesOf(&p.Cluster, pointers(p.Nodes))
}

// instancesOf returns the nodes of a cluster that keep each service, and the service's actions.
func instancesOf(cl *model.Cluster, nodes []*model.Node) map[string]tree.Instances {
	out := map[string]tree.Instances{}
	for name, d := range cl.Definitions {
		in := tree.Instances{}
		for a := model.Create; a <= model.Delete; a++ {
			if _, ok := d.Provisioner.Actions[a.Key()]; ok {
				in.Tasks = append(in.Tasks, a.Key())
			}
		}
		for _, n := range nodes {
			if slices.Contains(n.Services, name) && !n.Leaves && !slices.Contains(n.Leaving, name) {
				in.Nodes = append(in.Nodes, n.ID)
			}
		}
		out[name] = in
	}
	return out
}

// strategyOf parses a strategy: the name of one, "batch=2" or "batch=25%".
func strategyOf(r model.Rollout) (tree.Strategy, error) {
	var fs model.Faults
	s, err := tree.ParseStrategy(strings.Replace(r.Strategy, "batch=", "batch ", 1))
	if err != nil || s.Kind == tree.Random || s.Kind == tree.Dependency {
		fs.Add(
			"strategy",
			fmt.Sprintf("must be serial, parallel, canary, serial-canary, parallel-canary, batch=N or batch=N%%, but is %q", r.Strategy),
		)
	}
	if r.MaxFailures < 0 {
		fs.Add("maxFailures", fmt.Sprintf("must be 0 or more, but is %d", r.MaxFailures))
	}
	if r.Staged && (r.Strategy != "" || r.MaxFailures != 0) {
		fs.Add("staged", "is a strategy of its own: leave strategy and maxFailures away, or staged")
	}
	s.MaxFailures = int(r.MaxFailures)
	return s, fs.Err()
}

// leavers returns the nodes that leave, in their order (docs/spec/plans.md §10): first nodes
// whose services depend on others, then newer nodes before older ones.
func (p *Prepared) leavers() []tree.Leaver {
	first := map[string]int{} // by services: the first task of such a node
	number := map[string]int{}
	kind := map[string]string{}
	var out []tree.Leaver
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Leaves {
			number[n.ID], kind[n.ID] = n.Number, strings.Join(n.Services, "+")
			out = append(out, tree.Leaver{Node: n.ID, Name: n.ShortName()})
		}
	}
	for v := range p.Graph.Len() {
		k, leaves := kind[p.Graph.NodeID(v)]
		if _, has := first[k]; leaves && !has {
			first[k] = v
		}
	}
	slices.SortFunc(out, func(a, b tree.Leaver) int {
		return cmp.Or(cmp.Compare(first[kind[a.Node]], first[kind[b.Node]]), cmp.Compare(number[b.Node], number[a.Node]))
	})
	return out
}
