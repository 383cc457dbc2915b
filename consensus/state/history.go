package state

import (
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
)

// keptSnapshots is the number of snapshots of a cluster that are kept.
const keptSnapshots = 20

// remember takes a snapshot of a cluster and returns the snapshot's number. Rows never change, so
// the snapshot consists of pointers to them. The caller must write the cluster's row afterwards,
// because remember updates its number of snapshots.
func (a *applier) remember(cl *model.Cluster, op *model.Operation, moment string) int {
	if last := table.Get[model.Snapshot](a.txn, table.History, "id", cl.Tenant, cl.ID, uint32(cl.Snapshots)); last != nil &&
		moment == model.MomentBefore && last.State.Version == cl.Version {
		return last.Number // nothing happened since the last operation's end
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
// operation in the cluster's row, may return.
func (a *applier) forgetSnapshots(cl *model.Cluster, op *model.Operation) {
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
		if s.Number <= cl.Snapshots-keptSnapshots && s.Number < needed {
			a.remove(table.History, s)
		}
	}
}

// History returns a cluster's snapshots, oldest first.
func (v *View) History(tenant, cluster string) []*model.Snapshot {
	return table.List[model.Snapshot](v.txn, table.History, "id_prefix", tenant, cluster)
}

// Snapshot finds a snapshot of a cluster by its number.
func (v *View) Snapshot(tenant, cluster string, number int) (*model.Snapshot, bool) {
	s := table.Get[model.Snapshot](v.txn, table.History, "id", tenant, cluster, uint32(number))
	return s, s != nil
}

// settledNode returns a copy of a node for changes.
func settledNode(have *model.Node) *model.Node {
	n := *have
	if n.States = maps.Clone(n.States); n.States == nil {
		n.States = map[string]string{}
	}
	if n.Marks = maps.Clone(n.Marks); n.Marks == nil {
		n.Marks = map[string]model.Mark{}
	}
	n.Services = slices.Clone(n.Services)
	return &n
}
