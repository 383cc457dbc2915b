package mesh_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	coopr "github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// scrape returns the metrics of agents, each series as `family{label}` with the values of its labels. Equal series are added up.
func scrape(t *testing.T, agents ...*mesh.Agent) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, a := range agents {
		status, body := a.Call("GET", "/v1/metrics", nil, "")
		if status != 200 {
			t.Fatalf("%s: %d %s", a.Name, status, body)
		}
		p := expfmt.NewTextParser(model.UTF8Validation)
		families, err := p.TextToMetricFamilies(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range families {
			for _, m := range f.Metric {
				key := name
				for _, l := range m.Label {
					key += "{" + l.GetValue() + "}"
				}
				out[key] += m.Counter.GetValue() + m.Gauge.GetValue()
			}
		}
	}
	return out
}

// TestMetricsMove follows the metrics of a mesh from its start through a cluster's creation and recovery to the loss of its quorum.
func TestMetricsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 3, Slots: 1, Verbose: testing.Verbose()})
		m.DefineWatched()
		// until waits until the sums over the agents that are up have these values; a negative one stands for any above 0.
		until := func(want map[string]float64) {
			t.Helper()
			var lacks string
			defer func() {
				if t.Failed() {
					t.Log(lacks)
				}
			}()
			m.Until("the metrics", func() bool {
				got := scrape(t, m.Up()...)
				lacks = ""
				for key, v := range want {
					if have, ok := got[key]; !ok || have != v && (v >= 0 || have <= 0) {
						lacks += fmt.Sprintf("%s is %v, not %v; ", key, have, v)
					}
				}
				return lacks == ""
			})
		}
		const some = -1
		until(map[string]float64{
			"coopr_raft_is_leader": 1, "coopr_raft_leader_known": 3, "coopr_raft_term": some, "coopr_raft_commit_index": some,
			"coopr_raft_heartbeat_timeout_seconds": some, "coopr_raft_applied_entries_total": some,
			"coopr_raft_applied_index": some, "coopr_raft_voters{wanted}": 9, "coopr_raft_voters{present}": 9, "coopr_raft_voters{alive}": 9,
			"coopr_raft_quorum_margin_voters": 3, "coopr_raft_log_writes_total{succeeded}": some, "coopr_worker_slots{free}": 3,
			"coopr_worker_slots{busy}": 0, "coopr_audit_records_total": some, "coopr_audit_kept_records": some, "coopr_state_rows{agents}": some,
		})
		if build := slices.Collect(func(yield func(string) bool) {
			for key := range scrape(t, m.Agents()[0]) {
				if len(key) > 16 && key[:16] == "coopr_build_info" && !yield(key) {
					return
				}
			}
		}); len(build) != 1 {
			t.Errorf("the builds are %v", build)
		}

		cluster, op := m.Create("one", 6, "")
		until(map[string]float64{"coopr_task_oldest_ready_seconds{default}": some, "coopr_task_ready_tasks{default}": some,
			"coopr_worker_slots{busy}": some, "coopr_operation_active_operations{running}{create}": 1})
		if st := m.AwaitEnd(op); st != coopr.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		until(map[string]float64{"coopr_operation_ended_total{succeeded}{create}": 1, "coopr_cluster_clusters{healthy}{active}": 1,
			"coopr_node_nodes{healthy}": 6, "coopr_node_nodes{unhealthy}": 0, "coopr_task_ended_total{INSTALL}{succeeded}": some})

		n := m.Nodes(cluster)[0]
		m.World.Break(n.ID, n.Services[0])
		until(map[string]float64{"coopr_recovery_started_total{recover}": 1, "coopr_operation_ended_total{succeeded}{recover}": 1,
			"coopr_recovery_given_up_total": 0, "coopr_recovery_given_up_nodes": 0, "coopr_plan_waiting_plans": 0,
			"coopr_node_nodes{healthy}": 6})

		leader := m.Leader()
		others := slices.DeleteFunc(slices.Clone(m.Agents()), func(a *mesh.Agent) bool { return a == leader })
		others[0].Crash()
		until(map[string]float64{"coopr_raft_voters{alive}": 4, "coopr_raft_quorum_margin_voters": 0})
		others[1].Crash()
		until(map[string]float64{"coopr_raft_voters{alive}": 1, "coopr_raft_quorum_margin_voters": -1, "coopr_raft_is_leader": 0,
			"coopr_raft_leader_known": 0})
	})
}
