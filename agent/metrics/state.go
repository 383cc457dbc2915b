package metrics

import (
	"sync"
	"time"

	"github.com/coopr/coopr/engine/profile"
)

// state collects the size of this agent's copy of the state. Only members of the Raft group have one.
func (s Sources) state() collector {
	rows := gauge("coopr_state_rows", "Rows of this agent's copy of the replicated state, by table; counted once a minute at most.", "table")
	var mu sync.Mutex
	var last map[string]int
	var until time.Time // when the count is too old
	return collector{[]family{rows}, func(send emit) {
		m := s.Supervisor.Member()
		if m == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); !now.Before(until) { // the count reads all rows
			last, until = m.Machine.View().Rows(), now.Add(time.Minute)
		}
		for table, n := range last {
			send(rows, float64(n), table)
		}
	}}
}

// runs collects what the runs of each profile use. Only the leader returns these metrics, so that a sum over all agents
// counts every run once.
func (s Sources) runs() collector {
	byProfile := []string{"tenant", "profile"}
	ended := counter("coopr_run_ended_total", "Runs that ended, by outcome. Only the leader has it.", "outcome", "tenant", "profile")
	active := gauge("coopr_run_active_runs", "Runs whose programs have not ended. Only the leader has it.", byProfile...)
	up := gauge("coopr_run_up_nodes", "Nodes of runs that are up now. Only the leader has it.", byProfile...)
	minutes := counter("coopr_run_node_minutes_total", "Node minutes that runs used. Only the leader has it.", byProfile...)
	seconds := counter("coopr_run_provisioning_seconds_total",
		"Provisioning time of the clusters of runs that came up. Only the leader has it.", byProfile...)
	provided := counter("coopr_run_provisioned_total", "Clusters of runs that came up. Only the leader has it.", byProfile...)
	return collector{[]family{ended, active, up, minutes, seconds, provided}, func(send emit) {
		m, _, ok := s.Supervisor.Leader()
		if !ok {
			return
		}
		for _, u := range m.Machine.View().Usages(time.Now().UnixMilli()) {
			tenant, name := u.Tenant, u.Profile.String()
			for status, n := range map[profile.Status]int64{profile.Completed: u.Completed, profile.Failed: u.Failed,
				profile.Killed: u.Killed, profile.Rejected: u.Rejected} {
				send(ended, float64(n), string(status), tenant, name)
			}
			send(active, float64(u.Active), tenant, name)
			send(up, float64(u.NodesUp), tenant, name)
			send(minutes, float64(u.NodeMinutes), tenant, name)
			send(seconds, float64(u.ProvisioningMillis)/1000, tenant, name)
			send(provided, float64(u.Provisioned), tenant, name)
		}
	}}
}
