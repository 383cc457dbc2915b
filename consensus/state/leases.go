package state

import (
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// leaseEnded returns nil if a cluster may be deleted because the lease that ended at a time is over: it still ends then. With time 0 the
// deletion has another reason. The order of the log decides between such a deletion and a user who prolongs the lease meanwhile.
func (a operations) leaseEnded(tenant, cluster string, ended int64) error {
	if ended == 0 {
		return nil
	}
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", tenant, cluster)
	if have == nil || have.ExpiresAt == ended {
		return nil
	}
	return problem.New(problem.Conflict, "the lease of cluster %s was changed: the cluster is not deleted", have.Name)
}

// lease changes when the lease of a cluster ends, or puts on record that its end is near. Either is an order about the lease that ends at
// LeaseWasMs.
func (a operations) lease(c *pb.Command, o *pb.ControlCluster) Answer {
	if !a.view().Understands(logformat.LeaseLevel) { // older voters refuse the order, as they do not know it
		return refuse(problem.Unsupported, "order %d about cluster %s needs agents that are newer", o.Order, o.Cluster)
	}
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, o.Cluster)
	if have == nil {
		return refuse(problem.NotFound, "there is no cluster %q", o.Cluster)
	}
	if have.ExpiresAt != o.LeaseWasMs {
		return refuse(problem.Stale, "the lease of cluster %s was changed meanwhile; run the command again", have.Name)
	}
	cl := *have
	e := model.Event{Type: "cluster.changed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Status: string(cl.Status), Actor: c.Actor,
		Message: logformat.ClusterOrders.Word(o.Order)}
	if o.Order == pb.ClusterOrder_CLUSTER_ORDER_WARN {
		if have.WarnedOf == have.ExpiresAt {
			return refuse(problem.Stale, "the warning that the lease of cluster %s ends is on record already", have.Name)
		}
		cl.WarnedOf = cl.ExpiresAt
		e.Type, e.Message = "cluster.expiring", o.Reason
	} else {
		if err := have.CheckLease(o.LeaseToMs, a.now); err != nil {
			return Answer{Err: err}
		}
		cl.ExpiresAt = o.LeaseToMs
	}
	a.put(table.Clusters, &cl)
	a.event(e)
	return Answer{Subject: cl.ID}
}
