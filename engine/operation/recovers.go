package operation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
)

// The environment variables of the tasks of a recovery by a plan of the template: the address and the host name of the node before.
const (
	OldIP   = "COOPR_OLD_IP"
	OldHost = "COOPR_OLD_HOST"
)

// patternOf returns the plan by which recovery replaces or restarts a service, or nil if it does so in the usual way. The argument when is
// model.RecoversReplace or model.RecoversRestart.
func patternOf(t *model.ClusterTemplate, service, when string) *model.Plan {
	for i := range t.Plans {
		if r := t.Plans[i].Recovers; r != nil && *r == (model.Recovers{Service: service, When: when}) {
			return &t.Plans[i]
		}
	}
	return nil
}

// Patterned returns the plans of the cluster's template by which these services of a node are recovered, by service. The argument when is
// model.RecoversReplace or model.RecoversRestart.
func Patterned(cl *model.Cluster, services []string, when string) map[string]*model.Plan {
	out := map[string]*model.Plan{}
	for _, s := range services {
		if t := patternOf(&cl.Template, s, when); t != nil {
			out[s] = t
		}
	}
	return out
}

// recovered is the recovery of a service on a node by a plan of the template.
type recovered struct {
	node, service string
	actions       []model.Action
	phase         tree.OutlinePhase
}

// patterns returns the recoveries of services on one of the nodes of a cluster by plans of its template, in the order of the services. A
// plan without steps for the node leaves it to the usual recovery.
func patterns(cl *model.Cluster, nodes []*model.Node, n *model.Node, services []string, when string) ([]recovered, error) {
	var out []recovered
	plans := Patterned(cl, services, when)
	for _, s := range slices.Sorted(maps.Keys(plans)) {
		o, err := tree.Outlines(*plans[s], instancesOf(cl, nodes))
		if err != nil {
			return nil, err
		}
		r := recovered{node: n.ID, service: s, phase: tree.OutlinePhase{Name: plans[s].Name, Service: s}}
		for _, ph := range o.Phases {
			r.phase.Timeout = ph.Timeout
			for _, step := range ph.Steps {
				if step.Node != n.ID {
					continue
				}
				r.phase.Steps = append(r.phase.Steps, step)
				for _, name := range step.Tasks {
					a, err := model.ParseAction(name)
					if err != nil {
						return nil, err
					}
					r.actions = append(r.actions, a)
				}
			}
		}
		if len(r.actions) > 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

// follow lets the nodes that recovery replaces be made as plans of the template say, and restarts the other nodes where a plan asks for
// that. It does nothing for services without such a plan.
func (p *Prepared) follow(d *planner.Difference, at Input) error {
	if p.Operation.Type != model.OpReplaceNode || p.Operation.Plan != model.RecoveryPlan {
		return nil
	}
	var all []recovered
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if w, ok := d.Wanted[n.ID]; !p.only[n.ID] || !ok || len(w.Services) == 0 {
			continue
		}
		own, err := patterns(&p.Cluster, pointers(p.Nodes), n, n.Staying(), model.RecoversReplace)
		if err != nil {
			return err
		}
		all = append(all, own...)
	}
	if len(all) == 0 {
		return nil
	}
	if err := p.alone(len(p.only), all); err != nil {
		return err
	}
	for k := range all {
		r := &all[k]
		want(d, r.node, r.service, r.actions...)
		if patternOf(&p.Cluster.Template, r.service, model.RecoversReplace).Others != model.OthersRestart {
			continue
		}
		for i := range p.Nodes {
			n := &p.Nodes[i]
			if n.ID == r.node || p.only[n.ID] || at.Gone[n.ID] || n.Leaves || !n.Created || n.States[r.service] != model.Start.String() ||
				!slices.Contains(n.Staying(), r.service) {
				continue
			}
			want(d, n.ID, r.service, model.Stop, model.Start)
			r.phase.Steps = append(r.phase.Steps, tree.OutlineStep{Node: n.ID})
		}
	}
	p.remember(at, all)
	return nil
}

// want sets the actions of a service on a node.
func want(d *planner.Difference, node, service string, actions ...model.Action) {
	w := d.Wanted[node]
	w.Services = maps.Clone(w.Services)
	if w.Services == nil {
		w.Services = map[string][]model.Action{}
	}
	w.Services[service] = actions
	d.Wanted[node] = w
}

// alone refuses the recovery of several nodes in one operation by plans of the template, because each has an address of its own.
func (p *Prepared) alone(nodes int, all []recovered) error {
	if nodes == 1 {
		return nil
	}
	fs := model.Faults{}
	fs.Add("nodeNames", fmt.Sprintf("plan %s recovers %s on one node at a time, but %d are named: name one, and the next after it",
		all[0].phase.Name, all[0].service, nodes))
	return fs
}

// remember keeps the phases of recoveries by plans of the template, and where the node was before. A node whose replacement is repeated was
// where it was before the first one: what that made never took its place.
func (p *Prepared) remember(at Input, all []recovered) {
	for _, r := range all {
		p.own = append(p.own, r.phase)
	}
	i := slices.IndexFunc(at.Nodes, func(n *model.Node) bool { return n.ID == all[0].node })
	if i < 0 {
		return
	}
	old := map[string]string{OldIP: addressOf(at.Nodes[i]), OldHost: at.Nodes[i].Hostname}
	for _, r := range all {
		if at.Lost == nil {
			break
		}
		if had := at.Lost(r.node, r.service); had != nil {
			old = KeepOld(map[string]string{}, had)
		}
	}
	maps.DeleteFunc(old, func(_, value string) bool { return value == "" })
	p.Operation.Parameters = old
}

// KeepOld returns the parameters that an order gives an operation, together with those about the lost node that the operation had. They
// stay what they are, whatever the order says.
func KeepOld(given, had map[string]string) map[string]string {
	for _, name := range []string{OldIP, OldHost} {
		if value, ok := had[name]; ok {
			if given == nil {
				given = map[string]string{}
			}
			given[name] = value
		}
	}
	return given
}

// addressOf returns the address at which others reach a node, or "".
func addressOf(n *model.Node) string {
	if a := n.IPAddresses["access_v4"]; a != "" {
		return a
	}
	for _, name := range slices.Sorted(maps.Keys(n.IPAddresses)) {
		return n.IPAddresses[name]
	}
	return ""
}
