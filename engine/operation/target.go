package operation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// moveOn makes what the operation is to come to the cluster's next target
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
		// Where the snapshot had services at targets before its own, they go back there.
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
	case p.forced != nil:
		// Recovery makes nodes anew, and brings no others to a target that they have not come to.
		for _, old := range at.Nodes {
			if n := place[old.ID]; n != nil && !c.made[old.ID] && !n.Leaves {
				n.Back = behind(at.Cluster, old)
			}
		}
	}
}

// behind returns the marks of a node's services that an operation has not brought to where
// their cluster's record says; nil: all of them are there.
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

// previous returns definitions that have what services, of earlier targets too, can be stopped
// and removed by.
func previous(cl *model.Cluster) map[string]model.Service {
	out := map[string]model.Service{}
	for _, t := range cl.Earlier {
		for name, d := range t.Definitions {
			out[name] = withActions(cl.Definitions[name], out[name], d)
		}
	}
	return out
}

// able returns the cluster's definitions, those of services that stand at other targets, or go
// back there, with the actions that these have.
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

// withActions returns a definition with those actions that others have besides.
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

// built returns the definition by which an action is done to a service on a node: an operation
// that moves the cluster on builds and starts by its target; whatever else is done to a
// service, its stop before an upgrade, a health check, a recovery, is done by what it was
// really built from (docs/spec/plans.md §8).
func built(cl *model.Cluster, operation string, n *model.Node, action model.Action, service string) model.Service {
	d := cl.Definitions[service]
	if !cl.Varies() {
		return d
	}
	if m, stands := markOf(cl, operation, n, action, service); stands {
		d, _ = cl.DefinitionAt(m, service)
	}
	if _, ok := d.Provisioner.Actions[action.Key()]; !ok {
		return cl.Definitions[service] // nobody could do what nobody defines
	}
	return d
}

// markOf returns the mark by which an action is done, or false where it is done as the
// cluster's record says.
func markOf(cl *model.Cluster, operation string, n *model.Node, action model.Action, service string) (model.Mark, bool) {
	if !cl.Moves(operation) || departs(action) {
		return n.Marks[service], true
	}
	m, ok := n.Back[service]
	return m, ok
}
