package metrics

import (
	"context"
	"regexp"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/api"
)

// Quorum counts the voters; *service.Mesh implements it.
type Quorum interface {
	Quorum(ctx context.Context) api.Quorum
}

// Worker carries out tasks; *worker.Worker implements it.
type Worker interface {
	// Busy returns the number of tasks that run.
	Busy() int
}

// Sources are the parts of an agent whose values are shown.
type Sources struct {
	Build      string // version of the binary
	Slots      int    // of the worker
	Supervisor *member.Supervisor
	Quorum     Quorum
	Worker     Worker
	Plugins    *host.Host            // nil in simulations
	Settings   func() *config.Config // as last reloaded
}

// Register registers the collectors of an agent.
func Register(to prometheus.Registerer, s Sources) error {
	list := append([]prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		s.agent(), s.raft(), s.state(), s.leader(), s.runs(), s.machine(), clock(),
	}, s.Supervisor.Counters()...)
	for _, c := range list {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// liveHeap is what the last garbage collection has left: unlike other sizes of memory, it does not depend on when
// the next one comes.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")}

// family is a family of metrics.
type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) family {
	return family{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) family {
	return family{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// emit sends the value of a family, with a value for each of its labels.
type emit func(f family, value float64, labels ...string)

// collector computes the values of some families when they are asked for.
type collector struct {
	families []family
	collect  func(send emit)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.collect(func(f family, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
	})
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// agent collects what every agent has.
func (s Sources) agent() collector {
	build := gauge("coopr_build_info", "1, with the version of the agent and of Go.", "version", "goversion")
	slots := gauge("coopr_worker_slots", "Slots of this agent's worker, by state: busy or free.", "state")
	running := gauge("coopr_plugin_running_processes", "Programs of plugins that run on this agent.")
	crashes := counter("coopr_plugin_crashes_total",
		"Plugin processes of this agent that died or did not start. A later task starts them again.")
	calls := counter("coopr_provider_calls_total",
		"Calls of providers' plugins of this agent that have ended: by provider type, operation (an action, LIST, REMOVE or VALIDATE), outcome.",
		"provider", "operation", "outcome")
	calling := counter("coopr_provider_call_seconds_total", "Time that these calls took.", "provider", "operation", "outcome")
	return collector{[]family{build, slots, running, crashes, calls, calling}, func(send emit) {
		send(build, 1, s.Build, runtime.Version())
		busy := s.Worker.Busy()
		send(slots, float64(busy), "busy")
		send(slots, float64(max(s.Slots-busy, 0)), "free")
		if s.Plugins != nil {
			st := s.Plugins.Stats()
			send(running, float64(st.Running))
			send(crashes, float64(st.Crashes))
			for c, n := range st.Calls {
				send(calls, float64(n.Count), c.Provider, c.Operation, c.Outcome)
				send(calling, n.Time.Seconds(), c.Provider, c.Operation, c.Outcome)
			}
		}
	}}
}

// raft collects this agent's part in Raft. An agent without a Raft member reports only that it does not lead.
func (s Sources) raft() collector {
	leads := gauge("coopr_raft_is_leader", "1 if this agent leads and its duties run, or else 0. The sum over all agents must be 1.")
	known := gauge("coopr_raft_leader_known", "1 if this member of the Raft group knows a leader, or else 0.")
	term := gauge("coopr_raft_term", "Term of this member. Each election begins one.")
	committed := gauge("coopr_raft_commit_index", "Index of the last log entry that this member knows to be committed.")
	applied := gauge("coopr_raft_applied_index", "Index of the last log entry in this member's copy of the state.")
	voters := gauge("coopr_raft_voters", "Voters as this member sees them: wanted, present in the group, alive.", "which")
	margin := gauge("coopr_raft_quorum_margin_voters", "How many more voters may be lost. Below 0 nothing can be changed.")
	age := gauge("coopr_raft_snapshot_age_seconds", "Time since this member's newest snapshot, if it has one.")
	patience := gauge("coopr_raft_heartbeat_timeout_seconds",
		"Silence of a leader after which this member stands for election. It is longer while heartbeats are late, as on a busy machine.")
	writes := counter("coopr_raft_log_writes_total", "Writes to the Raft log of this member, by outcome.", "outcome")
	writing := counter("coopr_raft_log_write_seconds_total",
		"Time of the writes to the Raft log that succeeded. Divided by their number, it is how long a write takes to be on the disk.")
	entries := counter("coopr_raft_applied_entries_total",
		"Log entries that this member has applied to its copy of the state since it started.")
	applying := counter("coopr_raft_apply_seconds_total", "Time that it took to apply them.")
	return collector{[]family{leads, known, term, committed, applied, voters, margin, age, patience, writes, writing, entries,
		applying}, func(send emit) {
		m, _, ok := s.Supervisor.Leader()
		send(leads, truth(ok))
		if m == nil || !m.Group.Member() {
			return
		}
		st := m.Group.Stats()
		send(known, truth(st.LeaderID != ""))
		send(term, float64(st.Term))
		send(committed, float64(st.CommitIndex))
		send(applied, float64(st.AppliedIndex))
		send(patience, st.HeartbeatTimeout.Seconds())
		for outcome, n := range map[string]uint64{"succeeded": st.Store.Writes, "failed": st.Store.Failed, "timed-out": st.Store.TimedOut,
			"refused": st.Store.Refused} {
			send(writes, float64(n), outcome)
		}
		send(writing, st.Store.WriteTime.Seconds())
		send(entries, float64(st.Applied))
		send(applying, st.Applying.Seconds())
		if !st.Snapshot.IsZero() {
			send(age, time.Since(st.Snapshot).Seconds())
		}
		q := s.Quorum.Quorum(context.Background())
		send(voters, float64(q.Wanted), "wanted")
		send(voters, float64(q.Voters), "present")
		send(voters, float64(q.Alive), "alive")
		send(margin, float64(q.Alive-q.Needed))
	}}
}
