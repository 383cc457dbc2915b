package server

import (
	"github.com/coopr/coopr/engine/model"
)

// sees reports whether the caller sees a cluster and everything that belongs to it. Users see
// their own clusters, all other roles those of the tenant (docs/spec/coopr.md 1.4).
func sees(who model.Caller, c *model.Cluster) bool {
	return who.Role != model.RoleUser || c.Owner == who.Actor
}

// cluster returns a cluster that the caller sees.
func (c *call) cluster(v View, idOrName string) (*model.Cluster, error) {
	cl, ok := v.Cluster(c.who.Tenant, idOrName)
	if !ok || !sees(c.who, cl) {
		return nil, notFound("there is no cluster %q in tenant %s", idOrName, c.who.Tenant)
	}
	return cl, nil
}

// seesID is like sees, for the id of a cluster. Only callers who see the whole tenant see the
// remaining records of a deleted cluster.
func (c *call) seesID(v View, id string) bool {
	if c.who.Role != model.RoleUser {
		return true
	}
	cl, ok := v.Cluster(c.who.Tenant, id)
	return ok && sees(c.who, cl)
}

func (c *call) operation(v View, id string) (*model.Operation, error) {
	op, ok := v.Operation(c.who.Tenant, id)
	if !ok || !c.seesID(v, op.Cluster) {
		return nil, notFound("there is no operation %q in tenant %s", id, c.who.Tenant)
	}
	return op, nil
}

func (c *call) task(v View, id string) (model.Task, error) {
	t, ok := v.Task(c.who.Tenant, id)
	if !ok || !c.seesID(v, t.Cluster) {
		return model.Task{}, notFound("there is no task %q in tenant %s", id, c.who.Tenant)
	}
	return t, nil
}

func (c *call) node(v View, id string) (*model.Node, error) {
	n, ok := v.Node(c.who.Tenant, id)
	if !ok || !c.seesID(v, n.Cluster) {
		return nil, notFound("there is no node %q in tenant %s", id, c.who.Tenant)
	}
	return n, nil
}

// visible returns the clusters that the caller sees.
func (c *call) visible(v View) []*model.Cluster {
	var out []*model.Cluster
	for _, cl := range v.Clusters(c.who.Tenant) {
		if sees(c.who, cl) {
			out = append(out, cl)
		}
	}
	return out
}
