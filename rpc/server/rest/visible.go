package rest

import (
	"github.com/coopr/coopr/engine/model"
)

// sees reports whether the caller sees a cluster and everything that belongs to it. Users see
// their own clusters, all other roles those of the tenant (docs/spec/coopr.md 1.4).
func sees(who model.Caller, c *model.Cluster) bool {
	return who.Role != model.RoleUser || c.Owner == who.Actor
}

// Cluster returns a cluster that the caller sees.
func (c *Call) Cluster(v View, idOrName string) (*model.Cluster, error) {
	cl, ok := v.Cluster(c.Who.Tenant, idOrName)
	if !ok || !sees(c.Who, cl) {
		return nil, NotFound("there is no cluster %q in tenant %s", idOrName, c.Who.Tenant)
	}
	return cl, nil
}

// SeesID is like sees, for the id of a cluster. Only callers who see the whole tenant see the
// remaining records of a deleted cluster.
func (c *Call) SeesID(v View, id string) bool {
	if c.Who.Role != model.RoleUser {
		return true
	}
	cl, ok := v.Cluster(c.Who.Tenant, id)
	return ok && sees(c.Who, cl)
}

// Operation returns an operation that the caller sees.
func (c *Call) Operation(v View, id string) (*model.Operation, error) {
	op, ok := v.Operation(c.Who.Tenant, id)
	if !ok || !c.SeesID(v, op.Cluster) {
		return nil, NotFound("there is no operation %q in tenant %s", id, c.Who.Tenant)
	}
	return op, nil
}

// Task returns a task that the caller sees.
func (c *Call) Task(v View, id string) (model.Task, error) {
	t, ok := v.Task(c.Who.Tenant, id)
	if !ok || !c.SeesID(v, t.Cluster) {
		return model.Task{}, NotFound("there is no task %q in tenant %s", id, c.Who.Tenant)
	}
	return t, nil
}

// Node returns a node that the caller sees.
func (c *Call) Node(v View, id string) (*model.Node, error) {
	n, ok := v.Node(c.Who.Tenant, id)
	if !ok || !c.SeesID(v, n.Cluster) {
		return nil, NotFound("there is no node %q in tenant %s", id, c.Who.Tenant)
	}
	return n, nil
}

// Visible returns the clusters that the caller sees.
func (c *Call) Visible(v View) []*model.Cluster {
	var out []*model.Cluster
	for _, cl := range v.Clusters(c.Who.Tenant) {
		if sees(c.Who, cl) {
			out = append(out, cl)
		}
	}
	return out
}
