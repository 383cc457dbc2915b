package runs

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// TestPV: the original's cases PV-01 to PV-13 (docs/spec/profiles.md §14), with a provisioner
// that fails on purpose. The tasks of these cases are the tasks of a run here. PV-14 is below,
// PV-15 to PV-18 are in engine/profile.
func TestPV(t *testing.T) {
	created := func(r *profile.Run) bool { return r.Task.Type == profile.Provision && r.Task.Status == profile.Created }
	failed := func(r *profile.Run) bool { return r.Failure == profile.FailedProvisioning }
	deleted := func(r *profile.Run) bool { return r.Task.Status == profile.Deleted }
	slow := func(l *lab) { l.jobs.takes = time.Hour }
	for _, c := range []struct {
		id   string
		set  func(*lab)
		want func(*profile.Run) bool
		then func(t *testing.T, l *lab, id string)
	}{
		{"PV-01 no errors", slow, created, stopped(deleted)},
		{"PV-02 retryable failures", func(l *lab) { slow(l); l.cloud.everyN = 2 }, created, stopped(deleted)},
		{"PV-03 create fails", func(l *lab) { l.cloud.fail["create"] = true }, failed, nil},
		{"PV-04 get fails", func(l *lab) { l.cloud.fail["get"] = true }, failed, nil},
		{"PV-05 init fails", func(l *lab) { l.cloud.fail["init"] = true }, failed, nil},
		{"PV-06 first FAILED", func(l *lab) { slow(l); l.cloud.first = profile.SeenFailed; l.cloud.everyN = 3 }, created, nil},
		{"PV-06 first DELETING", func(l *lab) { slow(l); l.cloud.first = profile.SeenDeleting; l.cloud.everyN = 3 }, created, nil},
		{"PV-06 first NOT_EXISTS", func(l *lab) { slow(l); l.cloud.first = profile.SeenNotExists; l.cloud.everyN = 3 }, created, nil},
		{"PV-07 create fails, then all is gone", func(l *lab) { l.cloud.fail["create"] = true }, over, func(t *testing.T, l *lab, id string) {
			if r := l.run(id); r.Current() != nil || l.cloud.left() != 0 {
				t.Errorf("%+v", r.Task)
			}
		}},
		{"PV-08 delete fails", func(l *lab) { l.cloud.fail["delete"] = true }, over, func(t *testing.T, l *lab, id string) {
			if r := l.run(id); r.Task.Type != profile.Deprovision || r.Task.Status != profile.TaskFailed || r.Cluster.Up == 0 {
				t.Errorf("%+v", r.Task)
			}
		}},
		{"PV-09 a stored task goes on", func(l *lab) { slow(l); l.cloud.takes = time.Minute },
			func(r *profile.Run) bool { return r.Task.Status == profile.PollingCreate }, func(t *testing.T, l *lab, id string) {
				l.stop()
				l.lead()
				l.until(id, created)
			}},
		{"PV-10 cancel while it provisions", func(l *lab) { l.cloud.takes = time.Minute },
			func(r *profile.Run) bool { return r.Task.Status == profile.PollingCreate }, stopped(func(r *profile.Run) bool {
				return r.Status == profile.Killed && r.Task.Type == profile.Deprovision
			})},
		{"PV-11 cancel while it deprovisions", func(l *lab) { l.cloud.takes = time.Minute },
			func(r *profile.Run) bool { return r.Task.Status == profile.PollingDelete }, func(t *testing.T, l *lab, id string) {
				if err := l.order(id, profile.Event{Kind: profile.Force, To: profile.Orphaned, Reason: "no time to wait"}); err != nil {
					t.Fatal(err)
				}
				if r := l.run(id); r.Task.Status != profile.TaskCancelled || r.Cluster.Status != profile.Orphaned {
					t.Errorf("%+v", r.Task)
				}
			}},
		{"PV-12 get status in spite of failures", func(l *lab) { slow(l); l.cloud.first = profile.SeenRunning; l.cloud.everyN = 2 },
			created, nil},
		{"PV-13 get status fails", func(l *lab) { l.cloud.first = profile.SeenRunning; l.cloud.fail["get"] = true }, failed, nil},
	} {
		t.Run(c.id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				c.set(l)
				id := l.start(profile.Profile{})
				l.lead()
				defer func() { l.stop() }()
				l.until(id, c.want)
				if c.then != nil {
					c.then(t, l, id)
				}
			})
		})
	}
}

// TestPV14 checks that each available provisioner is listed exactly once and no other one is
// listed, and that runs find the same provisioners.
func TestPV14(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.apply(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Agent: "1", Record: &record.Agent{Id: "1"},
			Types: []*record.PluginType{
				{Name: "cloud", Label: "The cloud", Class: "provider"}, {Name: "shell", Class: "automator"},
			}}}})
		v := l.m.View()
		var names []string
		for _, s := range v.Provisioners("t") {
			names = append(names, s.Name+": "+s.Label)
			if s.Description == "" && s.Name != "cloud" {
				t.Errorf("%s says nothing of itself", s.Name)
			}
		}
		if !slices.Equal(names, []string{"cloud: The cloud", "cluster: Cluster", "native: Native"}) {
			t.Errorf("%q", names)
		}
		c := &Clusters{Machine: l.m}
		for name, want := range map[string]bool{"cloud": true, "native": true, "cluster": true, "shell": false, "unknown": false} {
			if p, spec, ok := c.Provisioner(v, &profile.Run{Tenant: "t", Provisioner: name}); ok != want || (p != nil) != want ||
				(spec.Name == name) != want {
				t.Errorf("%s: %v %v", name, spec.Name, ok)
			}
		}
	})
}

// stopped ends a run and waits for the expected result.
func stopped(want func(*profile.Run) bool) func(*testing.T, *lab, string) {
	return func(t *testing.T, l *lab, id string) {
		if err := l.order(id, profile.Event{Kind: profile.Stop}); err != nil {
			t.Fatal(err)
		}
		l.until(id, want)
	}
}
