package orchestrate

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
)

// actions has the actions, as policies name them, of operations that do more than operate a cluster.
var actions = map[model.OperationType]access.Action{
	model.OpCreate: access.Create, model.OpDelete: access.Delete,
	model.OpGrow: access.Update, model.OpShrink: access.Update, model.OpAddServices: access.Update, model.OpRemoveServices: access.Update,
	model.OpUpgrade: access.Update, model.OpSyncTemplate: access.Update, model.OpRollback: access.Update,
}

// permit returns problem.Forbidden if the caller may not start an operation on its cluster: because it runs on a
// control host, or because of the policies, which it asks about the cluster as it would be afterwards. What the mesh
// does in consequence of what was accepted before is not decided again.
func (o *Orchestrator) permit(who model.Caller, p *operation.Prepared) error {
	if err := o.hostExec().Ask(who, hostexec.Cluster(&p.Cluster)); err != nil || who.Follows {
		return err
	}
	if err := PermitAgentTasks(who, &p.Cluster, p.Graph); err != nil {
		return err
	}
	if who.Role == "" {
		return problem.New(problem.Forbidden, "no token of %s belongs to %q any more", p.Cluster.Tenant, who.Actor)
	}
	v := o.cfg.Machine.View()
	size := func() int { return len(v.Nodes(p.Cluster.Tenant, p.Cluster.ID)) }
	have, _ := v.Cluster(p.Cluster.Tenant, p.Cluster.ID)
	if err := o.permitAuthors(have, &p.Cluster); err != nil {
		return err
	}
	action := actions[p.Operation.Type]
	switch {
	case p.Operation.Type == model.OpConfigure && have != nil && !reflect.DeepEqual(have.Config, p.Cluster.Config):
		action = access.Update
	case action == "":
		action = access.Operate
	}
	set := o.sets.Of(v, p.Cluster.Tenant)
	r := access.Request{
		Principal: access.OfCaller(who), Action: action, Context: access.Context{Now: time.Now().UnixMilli(), Method: "token"},
		Resource: access.OfCluster(&p.Cluster, size),
	}
	if p.Operation.Type == model.OpCreate {
		use := r
		use.Action, use.Resource = access.Use, access.Named(access.TypeTemplate, p.Cluster.Tenant, p.Cluster.Template.Name)
		if d := set.Decide(&use); !d.Allowed {
			return d.Refusal(who, "use template "+p.Cluster.Template.Name)
		}
	}
	afters := planned(p)
	if p.Operation.Type.Concurrent() { // it knows the nodes that it is about
		afters = []access.After{access.AfterOf(&p.Cluster, size())}
	}
	for _, after := range afters {
		r.Context.After = after
		if d := set.Decide(&r); !d.Allowed {
			return d.Refusal(who, string(action)+" cluster "+p.Cluster.Name)
		}
	}
	if action == access.Operate || p.Operation.Type == model.OpShrink {
		return forbidNodes(set, r, who, p)
	}
	return nil
}

// hostExec returns the rules about control hosts, with the addresses of all agents.
func (o *Orchestrator) hostExec() hostexec.Rules {
	return o.cfg.HostExec.Among(o.cfg.Machine.View().Agents)
}

// permitEnding returns problem.Forbidden if the caller may not end an operation of a cluster, as an abort does.
func (o *Orchestrator) permitEnding(who model.Caller, v *state.View, cl *model.Cluster, open *model.Operation) error {
	r := access.Request{
		Principal: access.OfCaller(who), Action: access.Operate, Context: access.Context{Now: time.Now().UnixMilli(), Method: "token"},
		Resource: access.OfCluster(cl, func() int { return len(v.Nodes(cl.Tenant, cl.ID)) }),
	}
	if d := o.sets.Of(v, cl.Tenant).Decide(&r); !d.Allowed {
		return d.Refusal(who, "operate cluster "+cl.Name+", and so end its operation "+open.ID)
	}
	return nil
}

// permitAuthors returns problem.Forbidden if an operation brings code into a cluster that runs on a control host, and whose author
// may not request that. Otherwise whoever starts it would lend a stranger the right. What the cluster has was accepted before.
func (o *Orchestrator) permitAuthors(have, next *model.Cluster) error {
	for _, name := range slices.Sorted(maps.Keys(next.Definitions)) {
		s := next.Definitions[name]
		if have != nil {
			if now, ok := have.Definitions[name]; ok && now.Version == s.Version && now.Author == s.Author {
				continue
			}
		}
		author := model.Caller{Tenant: next.Tenant, Actor: s.Author}
		if s.HostExec {
			author.Role = model.RoleSuperadmin
		}
		if err := o.hostExec().Ask(author, hostexec.Code(next, name)); err != nil {
			return problem.New(problem.Forbidden, "service %s, version %d: %w; have somebody with that right write it", name, s.Version, err)
		}
	}
	return nil
}

// PermitAgentTasks returns problem.Forbidden if the caller may not have a plan of a cluster carried out because of its tasks on agents, or
// if those who wrote the actions of these tasks might not.
func PermitAgentTasks(who model.Caller, cl *model.Cluster, g *plan.Graph) error {
	for v := range g.AgentTasks() {
		if err := (hostexec.Rules{}).Ask(who, []hostexec.Use{{What: "step " + g.Name(v)}}); err != nil {
			return err
		}
		s := cl.Definitions[g.ServiceName(v)]
		if err := hostexec.Written(&s); err != nil {
			return err
		}
	}
	return nil
}

// forbidNodes returns the refusal of a policy that forbids the caller to operate a node that the operation is about.
// A caller who may operate a cluster may operate its nodes, unless a policy forbids it.
func forbidNodes(set *access.Set, r access.Request, who model.Caller, p *operation.Prepared) error {
	r.Action, r.Context.After = access.Operate, access.After{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if !about(p, n.ID) {
			continue
		}
		r.Resource = access.OfNode(n, func() string { return p.Cluster.Owner })
		if d := set.Decide(&r); d.Forbidden() {
			return d.Refusal(who, "operate node "+n.Hostname)
		}
	}
	return nil
}

// about reports whether an operation is about a node. Replacing and removing nodes also configures others, for the new
// addresses, but is not about these.
func about(p *operation.Prepared, node string) bool {
	return slices.ContainsFunc(p.Graph.On(node), func(v uint32) bool {
		switch p.Operation.Type {
		case model.OpReplaceNode:
			return p.Graph.Action[v] == model.Create
		case model.OpShrink:
			return p.Graph.Action[v] == model.Delete
		}
		return true
	})
}

// planned returns what an operation asks for: an entry for each pair of hardware and image types of the nodes that
// the cluster has afterwards, so that a policy sees each.
func planned(p *operation.Prepared) []access.After {
	cl := &p.Cluster
	base := access.AfterOf(cl, 0)
	if cl.ExpiresAt > 0 {
		base.Lease = cl.ExpiresAt - cl.CreatedAt
	}
	for i := range p.Nodes {
		if !p.Nodes[i].Leaves {
			base.Size++
		}
	}
	var out []access.After
	seen := map[[2]string]bool{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Leaves {
			continue
		}
		if key := [2]string{n.HardwareType, n.ImageType}; !seen[key] {
			seen[key] = true
			a := base
			a.HardwareType, a.ImageType = n.HardwareType, n.ImageType
			out = append(out, a)
		}
	}
	if out == nil {
		out = append(out, base)
	}
	return out
}
