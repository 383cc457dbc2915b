package rest

import (
	"iter"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// Cluster returns a cluster that the caller may read and that it may do the route's action with.
func (c *Call) Cluster(v View, idOrName string) (*model.Cluster, error) {
	hidden := NotFound("there is no cluster %q in tenant %s", idOrName, c.Who.Tenant)
	cl, ok := v.Cluster(c.Who.Tenant, idOrName)
	if !ok {
		return nil, hidden
	}
	return cl, c.use(ofCluster(v, cl), hidden)
}

// clusterOf returns the cluster of a record as a resource. Of a cluster that is gone only the id is known.
func (c *Call) clusterOf(v View, id string) access.Resource {
	if cl, ok := v.Cluster(c.Who.Tenant, id); ok {
		return ofCluster(v, cl)
	}
	return access.Resource{Ref: access.Ref{Type: access.TypeCluster, ID: id}, Tenant: c.Who.Tenant}
}

// Operation returns an operation of a cluster that the caller may read, and that it may do the route's
// action with.
func (c *Call) Operation(v View, id string) (*model.Operation, error) {
	hidden := NotFound("there is no operation %q in tenant %s", id, c.Who.Tenant)
	op, ok := v.Operation(c.Who.Tenant, id)
	if !ok {
		return nil, hidden
	}
	return op, c.use(c.clusterOf(v, op.Cluster), hidden)
}

// Task returns a task of a cluster that the caller may read. A call that lasts ends once it may not.
func (c *Call) Task(v View, id string) (model.Task, error) {
	c.repeat(func(c *Call, v View) error {
		_, err := c.Task(v, id)
		return err
	})
	hidden := NotFound("there is no task %q in tenant %s", id, c.Who.Tenant)
	t, ok := v.Task(c.Who.Tenant, id)
	if !ok {
		return t, hidden
	}
	if err := c.use(c.clusterOf(v, t.Cluster), hidden); err != nil {
		return t, err
	}
	if n, ok := v.Node(c.Who.Tenant, t.Node); ok {
		return t, c.UseNode(v, n, hidden)
	}
	return t, nil
}

// Node returns a node that the caller may read and that it may do the route's action with.
func (c *Call) Node(v View, id string) (*model.Node, error) {
	hidden := NotFound("there is no node %q in tenant %s", id, c.Who.Tenant)
	n, ok := v.Node(c.Who.Tenant, id)
	if !ok {
		return nil, hidden
	}
	return n, c.UseNode(v, n, hidden)
}

// UseNode returns nil if the caller may read a node and do the route's action with it. It fails with hidden
// if the caller may not read it.
func (c *Call) UseNode(v View, n *model.Node, hidden error) error { return c.use(ofNode(v, n), hidden) }

// Run returns a run that the caller may read and that it may do the route's action with. A call that lasts ends once it
// may not.
func (c *Call) Run(v View, id string) (*profile.Run, error) {
	c.repeat(func(c *Call, v View) error {
		_, err := c.Run(v, id)
		return err
	})
	hidden := NotFound("there is no run %q in tenant %s", id, c.Who.Tenant)
	r, ok := v.Run(c.Who.Tenant, id)
	if !ok {
		return nil, hidden
	}
	return r, c.use(c.ofRun(r), hidden)
}

// Tenants returns the tenant that a call is about, or "" for all of them.
func (c *Call) Tenants() string {
	if c.Who.Tenant == api.AllTenants {
		return ""
	}
	return c.Who.Tenant
}

// Clusters returns the clusters that the caller may list, by id, from an id on unless that is "".
func (c *Call) Clusters(v View, from string) iter.Seq[*model.Cluster] {
	f := c.filter(access.TypeCluster)
	all := func() iter.Seq[*model.Cluster] {
		if tenant := c.Tenants(); tenant != "" {
			return v.ClustersFrom(tenant, from)
		}
		return slices.Values(v.Clusters(""))
	}
	return func(yield func(*model.Cluster) bool) {
		for cl := range all() {
			if x := ofCluster(v, cl); f.Allows(&x) && !yield(cl) {
				return
			}
		}
	}
}

// Nodes returns the nodes of a cluster that the caller may list.
func (c *Call) Nodes(v View, cl *model.Cluster) []*model.Node {
	return c.Listable(v, v.Nodes(c.Who.Tenant, cl.ID))
}

// Listable returns those of the nodes that the caller may list.
func (c *Call) Listable(v View, nodes []*model.Node) []*model.Node {
	listed := NodeFilter(c, v)
	var out []*model.Node
	for _, n := range nodes {
		if listed(n) {
			out = append(out, n)
		}
	}
	return out
}

// NodeFilter returns a function that reports whether the caller may list a node.
func NodeFilter(c *Call, v View) func(*model.Node) bool {
	f := c.filter(access.TypeNode)
	return func(n *model.Node) bool {
		x := ofNode(v, n)
		return f.Allows(&x)
	}
}

// NameFilter returns a function that reports whether the caller may list a resource that has no attributes but its name.
func NameFilter(c *Call, on access.Type) func(name string) bool {
	f := c.filter(on)
	return func(name string) bool {
		x := c.named(on, name)
		return f.Allows(&x)
	}
}

// RunFilter returns a function that reports whether the caller may list a run.
func (c *Call) RunFilter() func(*profile.Run) bool {
	f := c.filter(access.TypeRun)
	return func(r *profile.Run) bool {
		x := c.ofRun(r)
		return f.Allows(&x)
	}
}

// Find returns a resource by its name. Clusters, nodes and runs must be there, and the caller must be allowed to read
// them; with an empty name one of the caller's own is meant.
func (c *Call) Find(v View, on access.Type, name string) (access.Resource, error) {
	x := c.named(on, name)
	hidden := NotFound("there is no %s in tenant %s", phrase(&x), c.Who.Tenant)
	switch on {
	case access.TypeCluster, access.TypeNode, access.TypeRun:
	default:
		return x, nil
	}
	ok := false
	switch {
	case name == "":
		return c.own(on), nil
	case on == access.TypeCluster:
		var cl *model.Cluster
		if cl, ok = v.Cluster(c.Who.Tenant, name); ok {
			x = ofCluster(v, cl)
		}
	case on == access.TypeNode:
		var n *model.Node
		if n, ok = v.Node(c.Who.Tenant, name); ok {
			x = ofNode(v, n)
		}
	case on == access.TypeRun:
		var r *profile.Run
		if r, ok = v.Run(c.Who.Tenant, name); ok {
			x = c.ofRun(r)
		}
	}
	if !ok || !c.ask(access.Read, &x).Allowed {
		return x, hidden
	}
	return x, nil
}

// Resource returns a resource of the tenant by its reference. One that is gone has no attributes but its name.
func (c *Call) Resource(v View, ref access.Ref) access.Resource {
	switch ref.Type {
	case access.TypeCluster:
		return c.clusterOf(v, ref.ID)
	case access.TypeNode:
		if n, ok := v.Node(c.Who.Tenant, ref.ID); ok {
			return ofNode(v, n)
		}
	case access.TypeRun:
		if r, ok := v.Run(c.Who.Tenant, ref.ID); ok {
			return c.ofRun(r)
		}
	}
	return c.named(ref.Type, strings.TrimPrefix(ref.ID, c.Who.Tenant+"/"))
}

// MayDelete returns nil unless a policy forbids the caller to delete a cluster that is there.
func (c *Call) MayDelete(v View, idOrName string) error {
	x := c.clusterOf(v, idOrName)
	if d := c.ask(access.Delete, &x); x.Row != nil && d.Forbidden() {
		return c.refusal(access.Delete, &x, d)
	}
	return nil
}

// DecideFor decides for another caller of the same tenant.
func (c *Call) DecideFor(who model.Caller, a access.Action, x access.Resource) access.Decision {
	p := c.principal
	if who.Actor != c.Who.Actor || who.Role != c.Who.Role {
		p = access.OfCaller(who)
	}
	return c.set.Decide(&access.Request{Principal: p, Action: a, Resource: x, Context: c.circumstances})
}

// ClusterFilter returns a function that reports whether the caller may list what belongs to a cluster, which
// may be gone. It follows changes of the policies.
func (s *Server) ClusterFilter(c *Call) func(v View, id string) bool {
	f := c.filter(access.TypeCluster)
	return func(v View, id string) bool {
		if set := s.setOf(v, c.Who.Tenant); set != c.set {
			c.set = set
			f = c.filter(access.TypeCluster)
		}
		f.At(s.Millis())
		x := c.clusterOf(v, id)
		return f.Allows(&x)
	}
}
