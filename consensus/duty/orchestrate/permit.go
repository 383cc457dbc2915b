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
	if err := o.cfg.HostExec.Ask(who, hostexec.Cluster(&p.Cluster)); err != nil || who.Follows {
		return err
	}
	if who.Role == "" {
		return problem.New(problem.Forbidden, "no token of %s belongs to %q any more", p.Cluster.Tenant, who.Actor)
	}
	v := o.cfg.Machine.View()
	if err := o.permitAuthors(v, &p.Cluster); err != nil {
		return err
	}
	size := func() int { return len(v.Nodes(p.Cluster.Tenant, p.Cluster.ID)) }
	have, _ := v.Cluster(p.Cluster.Tenant, p.Cluster.ID)
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

// permitAuthors returns problem.Forbidden if somebody wrote code of a cluster's services that runs on a control host, and may not
// request that now. Otherwise whoever starts the cluster would lend a stranger the right.
func (o *Orchestrator) permitAuthors(v *state.View, cl *model.Cluster) error {
	for _, name := range slices.Sorted(maps.Keys(cl.Definitions)) {
		s := cl.Definitions[name]
		uses := hostexec.Code(cl, name)
		if len(uses) == 0 || s.Author == "" { // an older build has kept no author
			continue
		}
		if err := o.cfg.HostExec.Ask(v.Acting(cl.Tenant, s.Author), uses); err != nil {
			return problem.New(problem.Forbidden, "service %s, version %d, was written by %s: %w; have somebody with that right write it anew, and "+
				"upgrade the cluster", name, s.Version, s.Author, err)
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
