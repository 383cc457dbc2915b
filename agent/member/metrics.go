package member

import (
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/coopr/coopr/engine/profile"
)

// RegisterMetrics registers the metrics of an agent's process, of the Go runtime and of runs.
func RegisterMetrics(to prometheus.Registerer, s *Supervisor) error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), RunMetrics{Supervisor: s}, StateMetrics{Supervisor: s},
	} {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// liveHeap is what the last garbage collection has left: unlike other sizes of memory, it does not depend on when
// the next one comes.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")}

// StateMetrics collects how large the state is. Only members of the Raft group return these metrics.
type StateMetrics struct{ Supervisor *Supervisor }

var stateRows = prometheus.NewDesc("coopr_state_rows", "Rows of the replicated state, by table", []string{"table"}, nil)

// Describe implements prometheus.Collector.
func (StateMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- stateRows }

// Collect implements prometheus.Collector.
func (s StateMetrics) Collect(ch chan<- prometheus.Metric) {
	m := s.Supervisor.Member()
	if m == nil {
		return
	}
	for table, n := range m.Machine.View().Rows() {
		ch <- prometheus.MustNewConstMetric(stateRows, prometheus.GaugeValue, float64(n), table)
	}
}

// RunMetrics collects what the runs of each profile use. Only the leader returns
// these metrics, so that a sum over all agents counts every run once.
type RunMetrics struct{ Supervisor *Supervisor }

var (
	byProfile    = []string{"tenant", "profile"}
	runsTotal    = prometheus.NewDesc("coopr_run_ended_total", "Runs that ended, by outcome", append([]string{"outcome"}, byProfile...), nil)
	runsActive   = prometheus.NewDesc("coopr_run_active_runs", "Runs whose programs have not ended", byProfile, nil)
	runsNodes    = prometheus.NewDesc("coopr_run_up_nodes", "Nodes of runs that are up now", byProfile, nil)
	runsMinutes  = prometheus.NewDesc("coopr_run_node_minutes_total", "Node minutes that runs used", byProfile, nil)
	runsSeconds  = prometheus.NewDesc("coopr_run_provisioning_seconds_total", "Provisioning time of the clusters that came up", byProfile, nil)
	runsProvided = prometheus.NewDesc("coopr_run_provisioned_total", "Clusters that came up", byProfile, nil)
)

// Describe implements prometheus.Collector.
func (RunMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runsTotal, runsActive, runsNodes, runsMinutes, runsSeconds, runsProvided} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (r RunMetrics) Collect(ch chan<- prometheus.Metric) {
	m, _, ok := r.Supervisor.Leader()
	if !ok {
		return
	}
	for _, u := range m.Machine.View().Usages(time.Now().UnixMilli()) {
		labels := []string{u.Tenant, u.Profile.String()}
		send := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
		}
		for status, n := range map[profile.Status]int64{profile.Completed: u.Completed, profile.Failed: u.Failed, profile.Killed: u.Killed,
			profile.Rejected: u.Rejected} {
			ch <- prometheus.MustNewConstMetric(runsTotal, prometheus.CounterValue, float64(n), append([]string{string(status)}, labels...)...)
		}
		send(runsActive, prometheus.GaugeValue, float64(u.Active))
		send(runsNodes, prometheus.GaugeValue, float64(u.NodesUp))
		send(runsMinutes, prometheus.CounterValue, float64(u.NodeMinutes))
		send(runsSeconds, prometheus.CounterValue, float64(u.ProvisioningMillis)/1000)
		send(runsProvided, prometheus.CounterValue, float64(u.Provisioned))
	}
}
