package mesh_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/mesh"
)

// failing is one of the failure scenarios of docs/spec/profiles.md §4, over whole agents. trouble
// decides about every attempt of the run's tasks, razes whether all machines vanish now.
type failing struct {
	name    string
	profile profile.Profile
	trouble func(r *course, t *pb.Task) mesh.Trouble
	razes   func(r *profile.Run) bool
	status  profile.Status
	cluster profile.ClusterStatus
}

// course is one run as the troubles of a scenario see it.
type course struct {
	began, deleting time.Time       // deleting: when a machine was to be removed first
	clusters        map[string]bool // that were asked for
	razed           bool
}

// outage is the duration of a cloud outage.
const outage = 15 * time.Second

func failures() []failing {
	done, gone := profile.Completed, profile.Deprovisioned
	down := func(action string, since func(*course) time.Time, long time.Duration) func(*course, *pb.Task) mesh.Trouble {
		return func(c *course, t *pb.Task) mesh.Trouble {
			if t.Action == action && time.Since(since(c)) < long {
				return mesh.Fails
			}
			return mesh.Well
		}
	}
	short := profile.Profile{Timeout: 40_000, DeprovisionTimeout: 40_000}
	began, deleting := func(c *course) time.Time { return c.began }, func(c *course) time.Time { return c.deleting }
	return []failing{
		{name: "scenarios 1 and 2, nothing fails but leaders", status: done, cluster: gone},
		{name: "scenario 3, no room for two clusters, then room", status: done, cluster: gone, trouble: func(c *course, t *pb.Task) mesh.Trouble {
			if c.clusters[t.Cluster] = true; t.Action == "CREATE" && len(c.clusters) <= 2 {
				return mesh.Dooms
			}
			return mesh.Well
		}},
		{name: "scenario 4, the cloud is down while it provisions", status: done, cluster: gone, trouble: down("CREATE", began, outage)},
		{name: "scenario 4, it is for longer than may be", profile: short, status: profile.Failed, cluster: gone,
			trouble: down("CREATE", began, time.Hour)},
		{name: "scenario 5, the cloud is down while it tears down", status: done, cluster: gone, trouble: down("DELETE", deleting, outage)},
		{name: "scenario 5, it is for longer than may be", profile: short, status: done, cluster: profile.Orphaned,
			trouble: down("DELETE", deleting, time.Hour)},
		{name: "scenario 6, machines vanish before they are torn down", status: done, cluster: gone,
			razes: func(r *profile.Run) bool { return r.Cluster.Status == profile.Deprovisioning }},
		{name: "scenario 7, machines vanish while they are made", status: done, cluster: gone,
			razes: func(r *profile.Run) bool { return r.Cluster.Status == profile.Provisioning }},
		{name: "scenario 8, the provisioner cannot delete", profile: short, status: done, cluster: profile.Orphaned,
			trouble: func(_ *course, t *pb.Task) mesh.Trouble {
				if t.Action == "DELETE" {
					return mesh.Dooms
				}
				return mesh.Well
			}},
		{name: "a program fails, and its nodes are kept", profile: profile.Profile{KeepAlive: profile.KeepAlive{Failed: 20_000}},
			status: profile.Failed, cluster: gone, trouble: func(_ *course, t *pb.Task) mesh.Trouble {
				if t.Action == "RUN" {
					return mesh.Dooms
				}
				return mesh.Well
			}},
	}
}

// where returns the states of a run's state machines as text.
func where(r *profile.Run) string {
	s := fmt.Sprintf("%s, %s", r.Status, r.Cluster.Status)
	if t := r.Current(); t != nil {
		s += fmt.Sprintf(", %s %s", t.Type, t.Status)
	}
	return s
}

// killLeader kills the leader and brings it back when there is another.
func killLeader(m *mesh.Mesh) {
	l := m.AwaitLeader()
	l.Crash()
	m.AwaitLeader()
	l.Start()
}

// TestRunsOutliveLeaders: in each failure scenario of docs/spec/profiles.md §4 the leader is killed
// in every state that a run passes through, until a run has no new state. Each run has the same
// result, no machine was made twice, and none is left.
func TestRunsOutliveLeaders(t *testing.T) {
	for i, f := range failures() {
		if testing.Short() && i != 8 {
			continue // each costs ten seconds
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := mesh.New(t, mesh.Options{Agents: 3, Seed: 300 + uint64(i), Verbose: *oneSeed != 0 && testing.Verbose()})
				m.DefineRuns(f.profile)
				killed := map[string]bool{}
				for before := -1; before < len(killed); {
					before = len(killed)
					f.run(m, killed)
				}
				t.Logf("leaders were killed in %d states: %q", len(killed), slices.Sorted(maps.Keys(killed)))
				if len(killed) < 6 {
					t.Error("a run has more states than these")
				}
			})
		})
	}
}

// run has one run from its beginning to its end.
func (f *failing) run(m *mesh.Mesh, killed map[string]bool) {
	m.T.Helper()
	c := &course{began: time.Now(), clusters: map[string]bool{}}
	m.World.SetTrouble(func(t *pb.Task, _ int) mesh.Trouble {
		if t.Action == "DELETE" && c.deleting.IsZero() {
			c.deleting = time.Now()
		}
		if f.trouble == nil {
			return mesh.Well
		}
		return f.trouble(c, t)
	})
	id := m.BeginRun()
	r := f.follow(m, c, id, killed, func(r *profile.Run) bool { return r.Over() })
	at := fmt.Sprintf("with leaders killed in %v: ", killed)
	if r.Status != f.status || r.Cluster.Status != f.cluster || r.Lost() != (f.cluster == profile.Orphaned) {
		m.T.Fatalf("%sit came to %s: %s", at, where(r), r.Message)
	}
	if r.Lost() {
		// Its machines are there, and are torn down when the cloud is well again.
		if m.World.Machines() == 0 {
			m.T.Errorf("%sit is an orphan, and nothing is left of it", at)
		}
		m.World.SetTrouble(nil)
		m.OrderRun(id, "retry")
		f.follow(m, c, id, killed, func(r *profile.Run) bool { return !r.Lost() })
	}
	if n, wrong := m.World.Machines(), m.World.Violations(); n > 0 || len(wrong) > 0 {
		m.T.Fatalf("%s%d machines are left; %v", at, n, wrong)
	}
}

// follow watches a run until its end.
func (f *failing) follow(m *mesh.Mesh, c *course, id string, killed map[string]bool, done func(*profile.Run) bool) *profile.Run {
	m.T.Helper()
	var r *profile.Run
	m.Within(30*time.Minute, time.Millisecond, "the end of run "+id, func() bool {
		now := m.Run(id)
		if now == nil {
			return false
		}
		r = now
		if f.razes != nil && !c.razed && f.razes(r) {
			c.razed = m.World.RazeAll() > 0
		}
		if s := where(r); !done(r) && !killed[s] {
			killed[s] = true
			m.Tracef("run %s is %s", id, s)
			killLeader(m)
		}
		return done(r)
	})
	return r
}

// TestStateErased is scenario 9: the state loses a run, in every state of it, as by an old snapshot
// that somebody restores. What the run had made is found by comparison with the provider's list and
// removed by hand. Nothing of it is left, and the next run succeeds.
func TestStateErased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 400, Verbose: *oneSeed != 0 && testing.Verbose()})
		m.DefineRuns(profile.Profile{})
		before := m.SaveState()
		erased := map[string]bool{}
		for {
			id := m.BeginRun()
			var r *profile.Run
			m.Within(time.Hour, time.Millisecond, "a state that was not erased yet, or the end of run "+id, func() bool {
				r = m.Run(id)
				return r != nil && (r.Over() || !erased[where(r)])
			})
			if r.Over() || testing.Short() && len(erased) == 3 {
				break
			}
			erased[where(r)] = true
			m.Tracef("run %s is erased when it is %s", id, where(r))
			m.RestoreState(before, "?resume=true")
			killLeader(m)
			// Machines that are being made appear a little later.
			m.Until("all that the run made to be found and removed", func() bool {
				for _, o := range m.Orphans() {
					m.RemoveOrphan(o.ID)
				}
				return m.World.Machines() == 0 && m.World.Idle()
			})
			if m.Run(id) != nil {
				t.Fatalf("run %s was not erased", id)
			}
		}
		if n, wrong := m.World.Machines(), m.World.Violations(); len(wrong) > 0 || !testing.Short() && (n > 0 || len(erased) < 7) {
			t.Errorf("erased in %v: %d machines are left; %v", erased, n, wrong)
		}
	})
}
