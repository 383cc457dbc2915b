package runs

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
)

// scenario is one of the failures of docs/spec/profiles.md §4, with the expected result of the run.
type scenario struct {
	name    string
	profile profile.Profile
	set     func(*lab)
	status  profile.Status
	cluster profile.ClusterStatus
	left    int // resources at the end
}

func scenarios() []scenario {
	during := func(from, to time.Duration, calls ...string) func(string) bool {
		begin := time.Now()
		return func(call string) bool {
			if d := time.Since(begin); d < from || d >= to {
				return false
			}
			for _, c := range calls {
				if c == call {
					return true
				}
			}
			return false
		}
	}
	short := profile.Profile{Timeout: 5000, DeprovisionTimeout: 8000}
	return []scenario{
		{"1,2 nothing fails but leaders", profile.Profile{}, func(*lab) {}, profile.Completed, profile.Deprovisioned, 0},
		{"3 quota, then room", profile.Profile{}, func(l *lab) { l.cloud.bad = 2 }, profile.Completed, profile.Deprovisioned, 0},
		{"3 quota for ever", short, func(l *lab) { l.cloud.bad = 1 << 30 }, profile.Failed, profile.Deprovisioned, 0},
		{"3 the answer to a create is lost", profile.Profile{}, func(l *lab) { l.cloud.loseAnswers = true }, profile.Failed,
			profile.Deprovisioned, 0},
		{"4 the cloud is down while it provisions", profile.Profile{},
			func(l *lab) { l.cloud.down = during(0, 4*time.Second, "create", "get", "init") }, profile.Completed, profile.Deprovisioned, 0},
		{"4 down for longer than may be", profile.Profile{Timeout: 5000},
			func(l *lab) { l.cloud.down = during(200*time.Millisecond, time.Minute, "create", "get", "init") }, profile.Failed,
			profile.Deprovisioned, 0},
		{"5 down while it tears down", profile.Profile{}, func(l *lab) { l.cloud.down = during(time.Second, 7*time.Second, "delete", "get") },
			profile.Completed, profile.Deprovisioned, 0},
		{"5 down for longer than may be", short, func(l *lab) { l.cloud.down = during(0, time.Hour, "delete") }, profile.Completed,
			profile.Orphaned, 1},
		{"6 nodes vanish before they are torn down", profile.Profile{},
			func(l *lab) { l.cloud.vanish = func(call string) bool { return call == "delete" } }, profile.Completed, profile.Deprovisioned, 0},
		{"7 nodes vanish while they are made", profile.Profile{}, func(l *lab) {
			n := 0
			l.cloud.vanish = func(call string) bool {
				if call == "get" {
					n++
				}
				return call == "get" && n == 2
			}
		}, profile.Completed, profile.Deprovisioned, 0},
		{"8 deleting fails for good", profile.Profile{}, func(l *lab) { l.cloud.fail["delete"] = true }, profile.Completed, profile.Orphaned, 1},
		{"8 the provisioner goes when it has been asked", profile.Profile{}, func(l *lab) {
			l.cloud.vanish = func(call string) bool {
				if call == "create" {
					l.gone.Store(true) // from now on no agent offers it
				}
				return false
			}
		}, profile.Failed, profile.Orphaned, 1},
		{"a program fails", profile.Profile{KeepAlive: profile.KeepAlive{Failed: 3000}}, func(l *lab) { l.jobs.result = profile.Failed },
			profile.Failed, profile.Deprovisioned, 0},
		{"every second call fails", profile.Profile{}, func(l *lab) { l.cloud.everyN = 2 }, profile.Completed, profile.Deprovisioned, 0},
	}
}

// TestLeaderDiesAtEveryState: in each scenario the leader dies after each entry that it writes,
// before or after it learns that the entry was committed, and another leader continues. The run has
// the same result, its program starts once, nothing is created twice, and nothing is left over.
func TestLeaderDiesAtEveryState(t *testing.T) {
	for i := range len(scenarios()) {
		t.Run(scenarios()[i].name, func(t *testing.T) {
			entries := 1
			for kill := 0; kill <= entries; kill++ {
				for _, lost := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						s := scenarios()[i]
						l := newLab(t)
						s.set(l)
						id := l.start(s.profile)
						l.kill, l.lost = kill, lost
						l.lead()
						r := l.until(id, over)
						l.stop()
						entries = max(entries, l.entries)
						at := fmt.Sprintf("killed at %d of %d, lost %v", kill, l.entries, lost)
						if r.Status != s.status || r.Cluster.Status != s.cluster {
							t.Errorf("%s: it came to %s, %s (%s)", at, r.Status, r.Cluster.Status, r.Message)
						}
						if n := l.cloud.left(); n != s.left {
							t.Errorf("%s: %d resources are left, not %d", at, n, s.left)
						}
						if began := r.Failure != profile.FailedProvisioning; l.jobs.times > 1 || began != (l.jobs.times == 1) {
							t.Errorf("%s: the program began %d times", at, l.jobs.times)
						}
						if r.Cluster.Status == profile.Orphaned != r.Lost() {
							t.Errorf("%s: lost %v", at, r.Lost())
						}
					})
				}
				if entries > 60 {
					entries = 60 // a loop proposes the same entries again and again
				}
			}
		})
	}
}

// TestOrphanIsTriedAgain checks that a cluster that could not be torn down is torn down on an order, after
// the cloud works again.
func TestOrphanIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.cloud.fail["delete"] = true
		id := l.start(profile.Profile{})
		l.lead()
		defer l.stop()
		if r := l.until(id, over); !r.Lost() {
			t.Fatalf("%+v", r)
		}
		l.cloud.mu.Lock()
		l.cloud.fail["delete"] = false
		l.cloud.mu.Unlock()
		if err := l.order(id, profile.Event{Kind: profile.Retry}); err != nil {
			t.Fatal(err)
		}
		r := l.until(id, func(r *profile.Run) bool { return r.Over() && !r.Lost() })
		if l.cloud.left() != 0 || r.Cluster.Status != profile.Orphaned {
			t.Errorf("%d are left: %+v", l.cloud.left(), r)
		}
	})
}

// TestStopAtEveryMoment checks that a stop at any moment ends the run and leaves no machine.
func TestStopAtEveryMoment(t *testing.T) {
	for ms := 0; ms < 2600; ms += 45 {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			id := l.start(profile.Profile{})
			l.lead()
			time.Sleep(time.Duration(ms) * time.Millisecond)
			err := l.order(id, profile.Event{Kind: profile.Stop})
			r := l.until(id, over)
			l.stop()
			if err == nil && r.Status != profile.Killed && r.Status != profile.Completed || l.cloud.left() != 0 {
				t.Errorf("stopped after %d ms: %v, %s, %s, %d left", ms, err, r.Status, r.Cluster.Status, l.cloud.left())
			}
		})
	}
}

// TestProvisionerGoes checks that a cluster whose provisioner is gone cannot be torn down and
// becomes an orphan, and that a run with a provisioner that no agent offers fails before anything
// is requested.
func TestProvisionerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		id := l.start(profile.Profile{KeepAlive: profile.KeepAlive{Failed: 60_000}})
		l.jobs.result = profile.Failed
		l.lead()
		defer l.stop()
		l.until(id, func(r *profile.Run) bool { return r.Cluster.Status == profile.Waiting })
		l.gone.Store(true)
		if r := l.until(id, over); r.Cluster.Status != profile.Orphaned || r.Status != profile.Failed || r.Failure != profile.FailedProgram {
			t.Errorf("%s %s %s", r.Status, r.Failure, r.Cluster.Status)
		}
		id = l.start(profile.Profile{})
		if r := l.until(id, over); r.Failure != profile.FailedProvisioning || r.Cluster.Status != profile.Deprovisioned {
			t.Errorf("%s %s", r.Failure, r.Cluster.Status)
		}
	})
}

// TestLimits checks that runs whose nodes are still up count towards the limit, and that a run above the
// limit is recorded as rejected.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.jobs.result = profile.Failed
		two := 2
		p := profile.Profile{KeepAlive: profile.KeepAlive{Failed: 60_000}, Limits: profile.Limits{Runs: &two}}
		first, second := l.start(p), l.start(p)
		l.lead()
		defer l.stop()
		waits := func(r *profile.Run) bool { return r.Cluster.Status == profile.Waiting }
		l.until(first, waits)
		l.until(second, waits)
		a := l.tryStart()
		r := l.run(a.Subject)
		if a.Err == nil || r.Status != profile.Rejected || !r.Over() {
			t.Errorf("%v: %s", a.Err, r.Status)
		}
		if err := l.order(first, profile.Event{Kind: profile.TearDown}); err != nil {
			t.Fatal(err)
		}
		l.until(first, over)
		if a := l.tryStart(); a.Err != nil {
			t.Error(a.Err)
		}
		// The tenant has a limit of its own; the profile's was not reached.
		l.put("preferences", "", map[string]string{profile.RunsKey: "2"})
		l.put("profile", "p", profile.Profile{Provisioner: profile.Provisioner{Name: "cloud"}, KeepAlive: p.KeepAlive})
		if a := l.tryStart(); !errors.Is(a.Err, problem.TooMany) {
			t.Error(a.Err)
		}
		u := l.m.View().ProfileUsage("t", profile.Ref{Scope: profile.User, Name: "p"}, time.Now().UnixMilli())
		if u.Rejected != 2 || u.Failed != 2 || u.Runs != 5 {
			t.Errorf("%+v", u)
		}
	})
}

// TestOldRunsGoThoughNoTermLasts: runs whose retention is over are removed although every term is
// short.
func TestOldRunsGoThoughNoTermLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		id := l.start(profile.Profile{})
		l.lead()
		l.until(id, over)
		l.stop()
		time.Sleep(31 * 24 * time.Hour)
		for range 5 {
			l.lead()
			time.Sleep(3 * time.Second)
			l.stop()
		}
		if _, ok := l.m.View().Run("t", id); ok {
			t.Error("the run is still there")
		}
	})
}
