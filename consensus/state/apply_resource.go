package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// dropResource says whether a machine may be removed: it is no node's now. It
// changes nothing but the audit log.
func (a *applier) dropResource(c *pb.Command, d *pb.DropResource) Answer {
	busy := false
	table.Each(a.txn, table.Operations, "active", func(o *model.Operation) bool {
		// What runs beside others makes and removes no machines.
		busy = o.Tenant == c.Tenant && o.Cluster == d.Cluster && !o.Type.Concurrent()
		return !busy
	}, "active")
	known := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, d.Cluster) != nil
	n := table.Get[model.Node](a.txn, table.Nodes, "id", c.Tenant, d.Node)
	if _, orphaned := model.Orphaned(n, known, busy, d.Id); !orphaned {
		return refuse(problem.Conflict, "machine %s is node %s's of cluster %s, or may become it by an operation under way", d.Id, d.Node,
			d.Cluster)
	}
	return Answer{Subject: d.Id}
}
