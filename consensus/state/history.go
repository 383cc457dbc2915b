package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
)

// keptSnapshots is the number of snapshots of a cluster that are kept.
const keptSnapshots = 20

// remember takes a snapshot of a cluster and returns the snapshot's number. Rows never change, so
// the snapshot consists of pointers to them. The caller must write the cluster's row afterwards,
// because remember updates its number of snapshots.
func (a endings) remember(cl *model.Cluster, op *model.Operation, moment string) int {
	if last := table.Get[model.Snapshot](a.txn, table.History, "id", cl.Tenant, cl.ID, uint32(cl.Snapshots)); last != nil &&
		moment == model.MomentBefore && last.State.Version == cl.Version &&
		(last.Moment != model.MomentFailed || cl.Status == model.ClusterPending) {
		// Nothing happened since the last operation's end. One that failed has a snapshot of its own
		// only while its rollback follows, as nobody may ask for a return to that moment.
		return last.Number
	}
	cl.Snapshots++
	kept := *cl
	a.put(table.History, &model.Snapshot{
		Tenant: cl.Tenant, Cluster: cl.ID, Number: cl.Snapshots, Time: a.now, Operation: op.ID, Moment: moment,
		State: &kept, Nodes: table.List[model.Node](a.txn, table.Nodes, "cluster", cl.Tenant, cl.ID),
	})
	a.forgetSnapshots(cl, op)
	return cl.Snapshots
}

// forgetSnapshots removes the oldest snapshots. It keeps those to which this operation, or the
// operation in the cluster's row, may return, and that to which a failed cluster is to be rolled back.
func (a endings) forgetSnapshots(cl *model.Cluster, op *model.Operation) {
	needed := cl.Snapshots
	for _, o := range []*model.Operation{op, table.Get[model.Operation](a.txn, table.Operations, "id", cl.Operation)} {
		if o == nil {
			continue
		}
		for _, n := range []int{o.Before, o.To} {
			if n > 0 {
				needed = min(needed, n)
			}
		}
	}
	for _, s := range table.List[model.Snapshot](a.txn, table.History, "id_prefix", cl.Tenant, cl.ID) {
		if s.Number <= cl.Snapshots-keptSnapshots && s.Number < needed && s.Number != cl.ReturnTo {
			a.remove(table.History, s)
		}
	}
}
