package state

import (
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
)

// keptSnapshots is how many snapshots of a cluster are kept.
const keptSnapshots = 20

// remember takes a snapshot of a cluster: rows never change, so it is made of
// pointers to them. It gives the snapshot's number. The cluster's row must be
// written after it, for it counts the snapshots.
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

// forgetSnapshots removes the oldest snapshots, but never one that the operation at
// work, or the one before it, may go back to.
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

// History gives a cluster's snapshots, the oldest first.
func (v *View) History(tenant, cluster string) []*model.Snapshot {
	return table.List[model.Snapshot](v.txn, table.History, "id_prefix", tenant, cluster)
}

// Snapshot finds a snapshot of a cluster by its number.
func (v *View) Snapshot(tenant, cluster string, number int) (*model.Snapshot, bool) {
	s := table.Get[model.Snapshot](v.txn, table.History, "id", tenant, cluster, uint32(number))
	return s, s != nil
}

// settledNode gives a copy of a node to write to.
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
