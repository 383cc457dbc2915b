package state

import (
	"cmp"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// mostRequests bounds the request ids that one command removes.
const mostRequests = 1000

// prune removes records whose retention ended. The leader chose them by an older state, so each is
// checked again.
func (a *applier) prune(p *pb.Prune) Answer {
	for _, id := range p.Operations {
		if o := table.Get[model.Operation](a.txn, table.Operations, "id", id); o != nil && o.Status.Ended() {
			a.operations().forget(o)
		}
	}
	for _, c := range p.Clusters {
		cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, c.Id)
		if cl != nil && cl.Version == c.Version && a.operations().over(cl) {
			a.operations().pruneCluster(cl)
		}
	}
	var old []*table.RequestRow
	table.Each(a.txn, table.Requests, "time", func(r *table.RequestRow) bool {
		if r.Time >= p.RequestsBeforeMs || len(old) == mostRequests {
			return false
		}
		old = append(old, r)
		return true
	})
	for _, r := range old {
		a.remove(table.Requests, r)
	}
	for _, id := range p.Parts {
		for _, r := range table.List[table.PartRow](a.txn, table.Parts, "id_prefix", id) {
			a.remove(table.Parts, r)
		}
	}
	a.audit.Prune(audit.Limits{Before: p.AuditBeforeMs, Keep: p.AuditKeep}, nil)
	return Answer{}
}

// pruneAudit removes records of the audit log.
func (a *applier) pruneAudit(p *pb.PruneAudit) Answer {
	l := audit.Limits{Before: p.BeforeMs, Keep: p.Records, UpTo: p.UpTo, Tenants: map[string]uint64{}}
	for _, k := range p.Keep {
		l.Tenants[k.Tenant] = k.Records
	}
	taken := map[string]uint64{}
	for _, name := range p.Sinks {
		taken[name] = 0
		if r := table.Get[table.SinkRow](a.txn, table.Sinks, "id", name); r != nil {
			taken[name] = r.Number
		}
	}
	a.audit.Prune(l, taken)
	return Answer{}
}

// moveCursors records how far sinks of the audit log have come. This is no record in the log itself, which would have no end.
// A cursor moves back only if it is beyond the log's end, which a restored log may have.
func (a *applier) moveCursors(m *pb.MoveCursors) Answer {
	for _, c := range m.Cursors {
		if r := table.Get[table.SinkRow](a.txn, table.Sinks, "id", c.Sink); r == nil || r.Number < c.Number || r.Number > a.audit.Head() {
			a.put(table.Sinks, &table.SinkRow{Name: c.Sink, Number: c.Number, Moved: a.now})
		}
	}
	return Answer{}
}

// noteOrphans records a search for machines that belong to no node. A machine that was found before
// keeps its time.
func (a *applier) noteOrphans(n *pb.NoteOrphans) Answer {
	m := table.Mesh(a.txn)
	since := map[model.FoundOrphan]int64{}
	for _, f := range m.Orphans.Found {
		since[model.FoundOrphan{Tenant: f.Tenant, ProviderType: f.ProviderType, ID: f.ID}] = f.Since
	}
	m.ID, m.Orphans = table.TheMeta, model.OrphanSearch{At: a.now}
	for _, f := range n.Found {
		x := model.FoundOrphan{Tenant: f.Tenant, ProviderType: f.ProviderType, ID: f.Id}
		x.Since = cmp.Or(since[x], a.now)
		m.Orphans.Found = append(m.Orphans.Found, x)
	}
	a.put(table.Meta, &m)
	return Answer{}
}

// over reports whether a cluster is terminated and none of its operations is under way.
func (a operations) over(cl *model.Cluster) bool {
	over := cl.Status == model.ClusterTerminated
	table.Each(a.txn, table.Operations, "cluster", func(o *model.Operation) bool {
		over = over && o.Status.Ended()
		return over
	}, cl.Tenant, cl.ID)
	return over
}

// pruneCluster removes a cluster for which over is true. The audit log gets a single record,
// because it already has every change of the cluster and of its operations.
func (a operations) pruneCluster(cl *model.Cluster) {
	ops := a.forgetCluster(cl, a.drop)
	a.audit.Pruned(cl, ops)
	a.event(model.Event{Type: "cluster.removed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name})
}

// forgetCluster removes a terminated cluster with everything that belongs to it, and returns the
// number of its operations. Its number is never given again.
func (a operations) forgetCluster(cl *model.Cluster, remove func(table string, row any)) (ops int) {
	for _, o := range table.List[model.Operation](a.txn, table.Operations, "cluster", cl.Tenant, cl.ID) {
		a.forgetPlan(o)
		a.queue().unqueue(o.ID)
		remove(table.Operations, o)
		ops++
	}
	for _, n := range table.List[model.Node](a.txn, table.Nodes, "cluster", cl.Tenant, cl.ID) {
		a.endings().removeNode(n)
	}
	for _, h := range table.List[model.NodeHealth](a.txn, table.Health, "cluster", cl.Tenant, cl.ID) {
		remove(table.Health, h)
	}
	for _, s := range table.List[model.Snapshot](a.txn, table.History, "id_prefix", cl.Tenant, cl.ID) {
		remove(table.History, s)
	}
	remove(table.Clusters, cl)
	a.gone = append(a.gone, cl.ID)
	if n, ok := model.ClusterID(cl.ID).Number(); ok {
		if m := table.Mesh(a.txn); n > m.LastCluster {
			m.ID, m.LastCluster = table.TheMeta, n
			a.put(table.Meta, &m)
		}
	}
	return ops
}

// forget removes an operation and its plan.
func (a operations) forget(o *model.Operation) {
	a.forgetPlan(o)
	a.remove(table.Operations, o)
}

func (a operations) forgetPlan(o *model.Operation) {
	delete(a.edits, o.ID)
	if p := table.Get[table.PlanRow](a.txn, table.Plans, "id", o.ID); p != nil {
		a.remove(table.Plans, p)
	}
}
