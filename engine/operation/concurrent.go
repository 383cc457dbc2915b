package operation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
)

// Unit is a node, and the services on it that a concurrent operation works on.
type Unit struct {
	Node     string // id
	Services []string
}

// Concurrent prepares an operation that runs concurrently with others of its cluster: it
// restarts, pauses or resumes services on some nodes (docs/spec/plans.md §8, §9), or replaces their
// machines. Its tasks on a node wait for nothing on other nodes, so operations never wait for each
// other in a circle, and if one node fails, the others go on. Only where a replaced machine has its
// address in configurations, these are written when the new machine is confirmed.
func Concurrent(who model.Caller, op model.OperationType, units []Unit, at Input, id string) (*Prepared, error) {
	cl := at.Cluster
	if !op.Concurrent() {
		return nil, fmt.Errorf("operations of type %q never run concurrently with other operations of their cluster", op)
	}
	if cl.Status == model.ClusterTerminated {
		return nil, fmt.Errorf("%w: cluster %s is %s", ErrState, cl.Name, cl.Status)
	}
	p := &Prepared{Version: cl.Version, Cluster: *cl, Operation: model.Operation{
		ID: id, Tenant: cl.Tenant, Cluster: cl.ID, Type: op, Status: model.OpRunning, Actor: who.Actor, Request: who.Request,
		OnFailure: "leave", Plan: model.RecoveryPlan, Priority: 1,
	}}
	actions := []model.Action{model.Stop, model.Start}
	switch op {
	case model.OpPauseNode:
		actions = actions[:1]
	case model.OpResumeNode:
		actions = actions[1:]
	}
	var others map[string][]string
	if op == model.OpRecreateNode {
		made := map[string]bool{}
		for _, u := range units {
			made[u.Node] = true
		}
		var err error
		if others, p.Operation.Services, err = dependents(at, made); err != nil {
			return nil, err
		}
	}
	in := planner.Input{
		Operation:   planner.OpConverge,
		Services:    asBuilt(cl, at.Nodes, concerned(units, others)),
		Previous:    previous(cl),
		NodeLocal:   true,
		Wanted:      map[string]planner.Wanted{},
		Reconfigure: others,
		Gather:      len(others) > 0,
	}
	var all []recovered
	for _, n := range at.Nodes {
		i := slices.IndexFunc(units, func(u Unit) bool { return u.Node == n.ID })
		if i < 0 && len(others[n.ID]) == 0 {
			continue
		}
		p.Nodes = append(p.Nodes, *n)
		in.Nodes = append(in.Nodes, planner.Node{ID: n.ID, Number: n.Number, Services: n.Services, States: n.States, Created: n.Created})
		if i < 0 {
			continue
		}
		in.GatherFrom = append(in.GatherFrom, n.ID)
		var w planner.Wanted
		var own []recovered
		var err error
		switch op {
		case model.OpRecreateNode:
			w, own, err = recreation(at, n)
		case model.OpRecover:
			w = wanted(cl, n, units[i].Services, actions)
			own, err = patterns(cl, at.Nodes, n, units[i].Services, model.RecoversRestart)
			for _, r := range own {
				w.Services[r.service] = r.actions
			}
		default:
			w = wanted(cl, n, units[i].Services, actions)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, own...)
		in.Wanted[n.ID] = w
	}
	if len(all) > 0 {
		if err := p.alone(len(units), all); err != nil {
			return nil, err
		}
		p.remember(at, all)
	}
	g, err := planned(in)
	if err != nil {
		return nil, err
	}
	if g.Len() == 0 {
		fs := model.Faults{}
		fs.Add("services", fmt.Sprintf("none of them has an action to %s it", actions[len(actions)-1].Key()))
		return nil, fs
	}
	d := tree.PerNode(g, PlanName(&p.Operation), func(id string) string { return p.unitName(id) }, p.own...)
	if p.Graph, err = d.Compile(g); err != nil {
		return nil, err
	}
	p.Tree = &d.Tree
	return p, nil
}

// wanted returns those of the actions that the definitions have by which services of a node were built.
func wanted(cl *model.Cluster, n *model.Node, services []string, actions []model.Action) planner.Wanted {
	w := planner.Wanted{Services: map[string][]model.Action{}}
	for _, s := range services {
		def, _ := cl.DefinitionAt(n.Marks[s], s)
		for _, a := range actions {
			if _, ok := def.Provisioner.Actions[a.Key()]; ok {
				w.Services[s] = append(w.Services[s], a)
			}
		}
	}
	return w
}

// concerned returns units extended by other services on further nodes.
func concerned(units []Unit, others map[string][]string) []Unit {
	out := slices.Clone(units)
	for _, id := range slices.Sorted(maps.Keys(others)) {
		out = append(out, Unit{Node: id, Services: others[id]})
	}
	return out
}

// asBuilt returns the definitions that the services of the units were built from.
func asBuilt(cl *model.Cluster, nodes []*model.Node, units []Unit) map[string]model.Service {
	if !cl.Varies() {
		return cl.Definitions
	}
	out := maps.Clone(cl.Definitions)
	for _, u := range units {
		i := slices.IndexFunc(nodes, func(n *model.Node) bool { return n.ID == u.Node })
		for _, s := range u.Services {
			if i >= 0 {
				def, _ := cl.DefinitionAt(nodes[i].Marks[s], s)
				out[s] = withActions(def, out[s])
			}
		}
	}
	return out
}

// unitName returns the name of a node's phase.
func (p *Prepared) unitName(id string) string {
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.ID == id {
			return n.ShortName()
		}
	}
	return id
}

// Named returns the nodes that an order names, without those that it names wrongly.
func Named(names []string, at Input) []*model.Node {
	ids, _ := victims(names, at)
	return slices.DeleteFunc(slices.Clone(at.Nodes), func(n *model.Node) bool { return !slices.Contains(ids, n.ID) })
}

// Whole returns the units of an order to replace the machines of nodes.
func Whole(at Input, nodes []string) ([]Unit, error) {
	ids, err := victims(nodes, at)
	var out []Unit
	for _, id := range ids {
		n := at.Nodes[slices.IndexFunc(at.Nodes, func(n *model.Node) bool { return n.ID == id })]
		out = append(out, Unit{Node: id, Services: n.Staying()})
	}
	return out, err
}

// Units returns the units of an operator's order to restart, pause or resume nodes: the named
// services, or all services on these nodes that the order applies to. The parameter health is
// by node id.
func Units(op model.OperationType, at Input, health map[string]*model.NodeHealth, nodes, services []string) ([]Unit, error) {
	ids, err := victims(nodes, at)
	if err != nil {
		return nil, err
	}
	var fs model.Faults
	var out []Unit
	for i, id := range ids {
		n := at.Nodes[slices.IndexFunc(at.Nodes, func(n *model.Node) bool { return n.ID == id })]
		h := health[id]
		u := Unit{Node: id}
		for k, s := range services {
			if !slices.Contains(n.Staying(), s) {
				fs.Add(fmt.Sprintf("services[%d]", k), fmt.Sprintf("node %s has no service %q%s", n.ShortName(), s, near(s, n.Services)))
			}
		}
		for _, s := range n.Staying() {
			def, _ := at.Cluster.DefinitionAt(n.Marks[s], s)
			asked := len(services) == 0 && can(op, n, h, s) && def.Runs() || slices.Contains(services, s) &&
				(op != model.OpResumeNode || can(op, n, h, s)) // a resume starts nothing that runs
			if _, starts := def.Provisioner.Actions[model.Start.Key()]; asked && starts {
				u.Services = append(u.Services, s)
			}
		}
		if len(u.Services) == 0 && len(fs) == 0 {
			fs.Add(fmt.Sprintf("nodeNames[%d]", i), fmt.Sprintf("there is nothing on %s to %s", n.ShortName(), verbs[op]))
		}
		out = append(out, u)
	}
	return out, fs.Err()
}

var verbs = map[model.OperationType]string{model.OpRecover: "restart", model.OpPauseNode: "pause", model.OpResumeNode: "resume"}

// can reports whether an order without service names applies to a service on a node.
func can(op model.OperationType, n *model.Node, h *model.NodeHealth, service string) bool {
	paused := h != nil && h.Paused[service] != ""
	if op == model.OpResumeNode {
		return paused
	}
	switch n.States[service] {
	case "", model.Install.String(), model.Configure.String(), model.Initialize.String(), model.Remove.String():
		return false // it was never started
	case model.Stop.String():
		return !paused && slices.Contains(h.Failing(), service)
	}
	return !paused
}
