package metrics

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
)

const (
	// ownerTimeout bounds the question to the dispatcher, which may be busy.
	ownerTimeout = time.Second
	// mostTenants is how many tenants have series of their own. The others share one.
	mostTenants = 50
	// otherTenants is the label of these others. No tenant has such a name.
	otherTenants = "(others)"
)

// leader collects the state of the mesh. Only the leader returns these metrics, so that a sum over all agents counts
// everything once.
func (s Sources) leader() collector {
	var f leaderFamilies
	families := f.define()
	return collector{families, func(send emit) {
		m, l, ok := s.Supervisor.Leader()
		if !ok {
			return
		}
		now := time.Now()
		f.state(send, m.Machine, now)
		f.waiting(send, l, now)
		f.sinks(send, l, now)
	}}
}

type leaderFamilies struct {
	clusters, nodes, abandoned, operations, plans, tasks, ready, oldest, records, kept, bytes, orphans family
	behind, age, lost, failing, held                                                                   family
}

func (f *leaderFamilies) define() []family {
	const only = " Only the leader has it."
	f.clusters = gauge("coopr_cluster_clusters",
		"Clusters by status and health: unhealthy, paused, healthy or, if nothing was checked, unknown."+only, "status", "health")
	f.nodes = gauge("coopr_node_nodes", "Nodes that were checked, by health: gone, unhealthy, paused or healthy."+only, "health")
	f.abandoned = gauge("coopr_recovery_given_up_nodes",
		"Nodes that fail and that recovery has given up. They wait for a person."+only)
	f.operations = gauge("coopr_operation_active_operations", "Operations that have not ended, by type and status."+only,
		"type", "status")
	f.plans = gauge("coopr_plan_waiting_plans", "Plans that wait for a person."+only)
	f.tasks = gauge("coopr_task_active_tasks", "Tasks of operations that have not ended, by status."+only, "status")
	f.ready = gauge("coopr_task_ready_tasks",
		"Tasks that wait for a slot or their node, by tenant: the 50 that have most, and (others)."+only, "tenant")
	f.oldest = gauge("coopr_task_oldest_ready_seconds",
		"Age of the oldest such task by tenant, counted from the start of the leader's term at the earliest."+only, "tenant")
	f.records = counter("coopr_audit_records_total", "Records that were ever written to the audit log."+only)
	f.kept = gauge("coopr_audit_kept_records", "Records of the audit log that are kept, each change of a task by itself."+only)
	f.bytes = gauge("coopr_audit_kept_bytes", "Size of the audit log."+only)
	f.orphans = gauge("coopr_provider_orphan_machines",
		"Machines at providers that belong to no node, as of the latest search."+only)
	f.held = gauge("coopr_mesh_held", "1 while the mesh begins no work, as it was restored and nobody has resumed it, or else 0."+only)
	f.behind = gauge("coopr_audit_sink_behind_records", "Numbers of the audit log that a sink has not taken."+only, "sink")
	f.age = gauge("coopr_audit_sink_oldest_seconds", "Age of the oldest record that a sink has not taken."+only, "sink")
	f.failing = gauge("coopr_audit_sink_failing", "1 while attempts to send records to a sink fail, or else 0."+only, "sink")
	f.lost = counter("coopr_audit_sink_lost_records_total",
		"Numbers of the audit log that were removed in the leader's term before a sink took them."+only, "sink")
	return []family{f.clusters, f.nodes, f.abandoned, f.operations, f.plans, f.tasks, f.ready, f.oldest, f.records, f.kept, f.bytes,
		f.orphans, f.held, f.behind, f.age, f.failing, f.lost}
}

// state sends what the state has.
func (f *leaderFamilies) state(send emit, m *state.Machine, now time.Time) {
	c := m.Census()
	for k, n := range c.Clusters {
		send(f.clusters, float64(n), string(k.Status), cmp.Or(k.Health, "unknown"))
	}
	for _, health := range []string{model.MachineGone, string(model.Unhealthy), "paused", string(model.Healthy)} {
		send(f.nodes, float64(c.Nodes[health]), health)
	}
	send(f.abandoned, float64(c.Abandoned))
	v := m.View()
	active := v.Figures(now.UnixMilli())
	for k, n := range active.Operations {
		send(f.operations, float64(n), string(k.Type), string(k.Status))
	}
	send(f.plans, float64(active.Waiting))
	for status, n := range active.Tasks {
		send(f.tasks, float64(n), model.TaskStatus(status).String())
	}
	trail := v.Audit().Stats()
	send(f.records, float64(trail.Head.Seq))
	send(f.kept, float64(trail.Records))
	send(f.bytes, float64(trail.Bytes))
	send(f.orphans, float64(len(v.Orphans().Found)))
	send(f.held, truth(v.Hold() != nil))
}

// waiting sends what waits for a slot.
func (f *leaderFamilies) waiting(send emit, l *member.Leadership, now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), ownerTimeout)
	defer cancel()
	for _, w := range bounded(l.Dispatcher.Waiting(ctx)) {
		send(f.ready, float64(w.Tasks), w.Tenant)
		send(f.oldest, now.Sub(w.Oldest).Seconds(), w.Tenant)
	}
}

// sinks sends how far the sinks of the audit log have come.
func (f *leaderFamilies) sinks(send emit, l *member.Leadership, now time.Time) {
	for _, s := range l.Sinks.Report() {
		age := 0.0
		if s.Oldest > 0 {
			age = max(now.Sub(time.UnixMilli(s.Oldest)).Seconds(), 0)
		}
		send(f.behind, float64(s.Behind), s.Name)
		send(f.age, age, s.Name)
		send(f.failing, truth(s.Fault != ""), s.Name)
		send(f.lost, float64(s.Lost), s.Name)
	}
}

// bounded returns the tenants with the most ready tasks, and the others as one.
func bounded(list []dispatch.Waiting) []dispatch.Waiting {
	if len(list) <= mostTenants {
		return list
	}
	slices.SortStableFunc(list, func(a, b dispatch.Waiting) int { return cmp.Compare(b.Tasks, a.Tasks) })
	rest := dispatch.Waiting{Tenant: otherTenants, Oldest: list[mostTenants].Oldest}
	for _, w := range list[mostTenants:] {
		rest.Tasks += w.Tasks
		if w.Oldest.Before(rest.Oldest) {
			rest.Oldest = w.Oldest
		}
	}
	return append(list[:mostTenants:mostTenants], rest)
}
