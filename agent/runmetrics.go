package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coopr/coopr/engine/profile"
)

// runMetrics tells what the runs of each profile use. Only the leader does: the others would
// tell the same once more.
type runMetrics struct{ *Agent }

var (
	byProfile    = []string{"tenant", "profile"}
	runsTotal    = prometheus.NewDesc("coopr_run_ended_total", "Runs that ended, by outcome", append([]string{"outcome"}, byProfile...), nil)
	runsActive   = prometheus.NewDesc("coopr_run_active_runs", "Runs whose programs are not over", byProfile, nil)
	runsNodes    = prometheus.NewDesc("coopr_run_up_nodes", "Nodes of runs that are up now", byProfile, nil)
	runsMinutes  = prometheus.NewDesc("coopr_run_node_minutes_total", "Minutes of nodes that runs used", byProfile, nil)
	runsSeconds  = prometheus.NewDesc("coopr_run_provisioning_seconds_total", "Time that provisioning took, of those that came up", byProfile, nil)
	runsProvided = prometheus.NewDesc("coopr_run_provisioned_total", "Clusters that came up", byProfile, nil)
)

// Describe names the metrics.
func (runMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runsTotal, runsActive, runsNodes, runsMinutes, runsSeconds, runsProvided} {
		ch <- d
	}
}

// Collect reads the state.
func (r runMetrics) Collect(ch chan<- prometheus.Metric) {
	m, _, ok := r.supervisor.Leader()
	if !ok {
		return
	}
	for _, u := range m.Machine.View().Usages(time.Now().UnixMilli()) {
		labels := []string{u.Tenant, u.Profile.String()}
		tell := func(d *prometheus.Desc, t prometheus.ValueType, v float64) {
			ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
		}
		for status, n := range map[profile.Status]int64{profile.Completed: u.Completed, profile.Failed: u.Failed, profile.Killed: u.Killed, profile.Rejected: u.Rejected} {
			ch <- prometheus.MustNewConstMetric(runsTotal, prometheus.CounterValue, float64(n), append([]string{string(status)}, labels...)...)
		}
		tell(runsActive, prometheus.GaugeValue, float64(u.Active))
		tell(runsNodes, prometheus.GaugeValue, float64(u.NodesUp))
		tell(runsMinutes, prometheus.CounterValue, float64(u.NodeMinutes))
		tell(runsSeconds, prometheus.CounterValue, float64(u.ProvisioningMillis)/1000)
		tell(runsProvided, prometheus.CounterValue, float64(u.Provisioned))
	}
}
