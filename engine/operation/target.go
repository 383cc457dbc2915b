package operation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// moveOn makes the result of the operation the cluster's next target
// (docs/decisions/023-recovery.md, "Targets").
func (p *Prepared) moveOn(at Input, c change) {
	p.Cluster.MoveOn(p.Operation.ID, at.Cluster, at.Nodes)
	place := map[string]*model.Node{}
	for i := range p.Nodes {
		p.Nodes[i].Back = nil
		place[p.Nodes[i].ID] = &p.Nodes[i]
	}
	switch {
	case c.back != nil:
		// A service that was at an earlier target (older definitions, an older configuration)
		// in the snapshot returns to that target.
		then := c.back.State
		for _, t := range then.Earlier {
			if !slices.ContainsFunc(p.Cluster.Earlier, func(o model.Target) bool { return o.Number == t.Number }) {
				p.Cluster.Earlier = append(p.Cluster.Earlier, t)
			}
		}
		slices.SortFunc(p.Cluster.Earlier, func(a, b model.Target) int { return cmp.Compare(b.Number, a.Number) })
		for _, old := range at.Nodes {
			place[old.ID].Marks = at.Cluster.Numbered(old.Services, old.Marks, at.Cluster.Target)
		}
		for _, old := range c.back.Nodes {
			if n := place[old.ID]; n != nil {
				back := behind(then, old)
				n.Back = then.Numbered(slices.Collect(maps.Keys(back)), back, p.Cluster.Target)
			}
		}
	case p.only != nil:
		// Recovery replaces nodes, but does not bring other nodes to a target that they have not
		// reached.
		for _, old := range at.Nodes {
			if n := place[old.ID]; n != nil && !c.made[old.ID] && !n.Leaves {
				n.Back = behind(at.Cluster, old)
			}
		}
	}
}

// behind returns the marks of a node's services that are not at the target of their cluster's
// record; nil if all are.
func behind(cl *model.Cluster, n *model.Node) map[string]model.Mark {
	var out map[string]model.Mark
	for _, s := range n.Services {
		m := n.Marks[s]
		if cl.Stands(m, s) && (m.Goal == "" || len(cl.Earlier) == 0) {
			continue
		}
		if out == nil {
			out = map[string]model.Mark{}
		}
		out[s] = m
	}
	return out
}

// previous returns the definitions, including those of earlier targets, with which services
// can be stopped and removed.
func previous(cl *model.Cluster) map[string]model.Service {
	out := map[string]model.Service{}
	for _, t := range cl.Earlier {
		for name, d := range t.Definitions {
			out[name] = withActions(cl.Definitions[name], out[name], d)
		}
	}
	return out
}

// able returns the cluster's definitions, extended by the actions of the earlier definitions
// that services on these nodes have or return to.
func able(cl *model.Cluster, nodes []*model.Node) map[string]model.Service {
	out, own := cl.Definitions, false
	for _, n := range nodes {
		for s, m := range n.Back {
			d, _ := cl.DefinitionAt(m, s)
			if cl.Stands(m, s) || model.SameService(d, cl.Definitions[s]) {
				continue
			}
			if !own {
				out, own = maps.Clone(out), true
			}
			out[s] = withActions(out[s], d)
		}
	}
	return out
}

// withActions returns a definition with additional actions of other definitions.
func withActions(d model.Service, others ...model.Service) model.Service {
	actions := maps.Clone(d.Provisioner.Actions)
	if actions == nil {
		actions = map[string]model.ServiceAction{}
	}
	for _, o := range others {
		for key, a := range o.Provisioner.Actions {
			if _, ok := actions[key]; !ok {
				actions[key] = a
			}
		}
	}
	d.Provisioner.Actions = actions
	return d
}

// built returns the definition to use for an action on a service of a node. An operation that
// moves the cluster to a new target builds and starts services by that target. Every other
// action (a stop before an upgrade, a health check, a recovery) uses the definition that the
// service was built from (docs/spec/plans.md §8).
// The parameter key is that of the action in the definition.
func built(cl *model.Cluster, operation string, n *model.Node, action model.Action, key, service string) model.Service {
	d := cl.Definitions[service]
	if !cl.Varies() {
		return d
	}
	if m, stands := markOf(cl, operation, n, action, service); stands {
		d, _ = cl.DefinitionAt(m, service)
	}
	if _, ok := d.Provisioner.Actions[key]; !ok {
		return cl.Definitions[service] // no definition has the action
	}
	return d
}

// markOf returns the mark to use for an action, or false if the cluster's record applies.
func markOf(cl *model.Cluster, operation string, n *model.Node, action model.Action, service string) (model.Mark, bool) {
	if n.ID == "" {
		return model.Mark{}, false
	}
	if !cl.Moves(operation) || departs(action) {
		return n.Marks[service], true
	}
	m, ok := n.Back[service]
	return m, ok
}
