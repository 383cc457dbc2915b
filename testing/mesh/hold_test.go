package mesh_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/mesh"
)

// TestHold restores a state in which much is due: a cluster whose lease is over, another one that has lost a machine, a schedule, and an
// operation that was under way. Under two leaders nothing is done and no machine is touched until somebody resumes the mesh.
func TestHold(t *testing.T) {
	hold, lease, cron := 2*time.Hour, time.Hour, "*/10 * * * *"
	if testing.Short() {
		hold, lease, cron = 6*time.Minute, 10*time.Minute, "* * * * *" // the lease still ends, and the schedule is due
	}
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 51, Verbose: testing.Verbose()})
		m.DefineWatched()
		m.DefineRuns(profile.Profile{})
		one, op := m.Create("one", 3, "")
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		m.Until("all to be healthy", func() bool { return m.Well(one) == "" })
		var two struct {
			Cluster   model.Cluster
			Operation struct{ ID string }
		}
		m.Must("POST", "/v1/clusters", map[string]any{"name": "two", "clusterTemplate": "trio", "numMachines": 3,
			"initialLeaseDuration": lease.Milliseconds()}, &two)
		m.AwaitEnd(two.Operation.ID)
		m.Must("PUT", "/v1/schedules/often", profile.Schedule{Program: "job", Cron: cron,
			Properties: map[string]string{profile.ProfileKey: "small"}}, nil)
		_, under := m.Create("three", 3, "")
		m.Until("the create to be under way", func() bool { return m.World.Machines() > 6 })
		saved := m.SaveState()
		m.AwaitEnd(under)

		m.RestoreState(saved, "?file=old.snap")
		attention := func() (out api.Attention) {
			m.Must("GET", "/v1/attention", nil, &out)
			return out
		}
		if h := attention().Hold; h == nil || h.File != "old.snap" || h.Since == 0 || h.Actor == "" {
			t.Fatalf("%+v", h)
		}
		m.World.Raze(m.Nodes(one)[0].ID)
		time.Sleep(time.Minute) // until the workers are back, which go on with their checks for so long
		attempts, checks, asked, machines := len(m.World.Attempts()), m.World.Checks(), len(m.World.Asked()), m.World.Machines()
		for range 2 {
			time.Sleep(hold)
			killLeader(m)
			m.AwaitLeader()
		}
		if n := len(m.World.Attempts()) - attempts; n > 0 {
			t.Errorf("%d attempts of tasks", n)
		}
		if n := m.World.Checks() - checks; n > 0 {
			t.Errorf("%d checks", n)
		}
		if n := len(m.World.Asked()) - asked; n > 0 {
			t.Errorf("providers were asked %d times", n)
		}
		if n := m.World.Machines(); n != machines {
			t.Errorf("%d machines, and there were %d", n, machines)
		}
		if st := mesh.Cluster(m, two.Cluster.ID).Status; st != model.ClusterActive {
			t.Errorf("the cluster whose lease is over is %s", st)
		}
		if n := len(m.Operations(one)); n != 1 {
			t.Errorf("%d operations of the cluster that lost a machine", n)
		}
		if st := m.Operation(under).Status; st != model.OpPaused {
			t.Errorf("the operation that was under way is %s", st)
		}
		code, body := m.AwaitLeader().Call("POST", "/v1/clusters/one/restart", nil, "")
		if code != http.StatusConflict || !strings.Contains(string(body), "coopr operator resume") {
			t.Errorf("a request while the mesh is held: %d %s", code, body)
		}
		m.Must("POST", "/v1/clusters/one/restart?dryRun=true", nil, nil)
		m.Must("POST", "/v1/operations/"+under+"/resume", nil, nil)
		time.Sleep(time.Minute)
		if n := len(m.World.Attempts()) - attempts; n > 0 {
			t.Errorf("%d attempts after the operation was resumed", n)
		}

		m.Must("POST", "/v1/operator/resume", nil, nil)
		if h := attention().Hold; h != nil {
			t.Errorf("%+v", h)
		}
		m.Until("a second resume to be refused without an entry in the log, at which older builds would stop", func() bool {
			before := m.AwaitLeader().View().Index()
			if code := m.Ask("POST", "/v1/operator/resume", nil, nil); code != http.StatusConflict {
				t.Errorf("resumed twice: %d", code)
			}
			return m.AwaitLeader().View().Index() == before
		})
		if st := m.AwaitEnd(under); st != model.OpSucceeded {
			t.Errorf("the operation that was under way ended %s", st)
		}
		m.Until("the cluster whose lease is over to be gone", func() bool {
			return mesh.Cluster(m, two.Cluster.ID).Status == model.ClusterTerminated
		})
		m.Until("the lost machine to be replaced", func() bool { return len(m.Operations(one)) > 1 && m.Well(one) == "" })
		m.Until("a run of the schedule", func() bool {
			var runs []struct{ Schedule string }
			m.Must("GET", "/v1/runs", nil, &runs)
			return len(runs) > 0 && runs[0].Schedule == "often"
		})
		if wrong := m.World.Violations(); len(wrong) > 0 {
			t.Errorf("%v", wrong)
		}
	})
}
