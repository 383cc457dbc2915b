package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// dropResource checks that a machine may be removed, because it belongs to no node now. It changes
// only the audit log.
func (a *applier) dropResource(c *pb.Command, d *pb.DropResource) Answer {
	busy := false
	table.Each(a.txn, table.Operations, "active", func(o *model.Operation) bool {
		// Concurrent operations neither make nor remove machines.
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
