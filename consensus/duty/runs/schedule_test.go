package runs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// TestSchedules checks that each run begins once when it is due, also when the leader changes; that
// runs that were due without a leader follow the rule for catching up; and that runs that are due
// while an earlier one runs follow the rule for concurrency.
func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		concurrency, catchup string
		takes                time.Duration
		away                 time.Duration // the time without a leader, in the middle of an hour
		runs, skipped        int
	}{
		{profile.Skip, profile.CatchLatest, time.Second, 0, 6, 0},
		{profile.Skip, profile.CatchLatest, time.Second, 25 * time.Minute, 6 - 2, 2},
		{profile.Skip, profile.CatchNone, time.Second, 25 * time.Minute, 6 - 2, 2},
		{profile.Allow, profile.CatchAll, time.Second, 25 * time.Minute, 6, 0},
		{profile.Skip, profile.CatchLatest, 15 * time.Minute, 0, 3, 3},
		{profile.Allow, profile.CatchLatest, 15 * time.Minute, 0, 6, 0},
		{profile.Replace, profile.CatchLatest, 15 * time.Minute, 0, 6, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			l.jobs.takes = c.takes
			l.put("profile", "p", profile.Profile{Provisioner: profile.Provisioner{Name: "cloud"}})
			l.put("program", "job", profile.Program{Steps: []profile.Step{{Name: "run", On: profile.OnEach, Script: "true"}}})
			s := profile.Schedule{Program: "job", Cron: "*/10 * * * *", Concurrency: c.concurrency, CatchUp: c.catchup,
				Properties: map[string]string{profile.ProfileKey: "p"}}
			s.Complete()
			l.put("schedule", "s", s)
			l.lead()
			time.Sleep(15 * time.Minute)
			l.stop()
			time.Sleep(c.away)
			l.lead()
			time.Sleep(50*time.Minute - c.away) // sixty-five minutes since midnight
			l.stop()
			l.lead() // another leader begins nothing twice
			synctest.Wait()
			got := l.m.View().Runs("t")
			have, _ := l.m.View().Schedule("t", "s")
			if len(got) != c.runs || int(have.Skipped) != c.skipped {
				t.Errorf("%+v: %d runs, %d left out (%s)", c, len(got), have.Skipped, have.Message)
			}
			due := map[int64]bool{}
			for _, r := range got {
				if due[r.Due] || r.Schedule != "s" {
					t.Errorf("%+v: two runs for %d", c, r.Due)
				}
				due[r.Due] = true
			}
			time.Sleep(time.Hour) // so that nothing is left of the last ones
			l.stop()
		})
	}
}

// TestQueue checks that a run that is due during another one begins after it, and that only the latest such
// run waits.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.jobs.takes = 25 * time.Minute
		l.put("profile", "p", profile.Profile{Provisioner: profile.Provisioner{Name: "cloud"}})
		l.put("program", "job", profile.Program{Steps: []profile.Step{{Name: "run", On: profile.OnEach, Script: "true"}}})
		s := profile.Schedule{Program: "job", Cron: "*/10 * * * *", Concurrency: profile.Queue,
			Properties: map[string]string{profile.ProfileKey: "p"}}
		s.Complete()
		l.put("schedule", "s", s)
		l.lead()
		defer l.stop()
		time.Sleep(75 * time.Minute) // begun at 10, 35 and after 60; 20 gave way to 30, 40 and 50 to 60; 70 waits
		got := l.m.View().Runs("t")
		var due []int64
		for _, r := range got {
			due = append([]int64{r.Due / 60_000 % 60}, due...)
		}
		have, _ := l.m.View().Schedule("t", "s")
		if len(due) != 3 || due[0] != 10 || due[1] != 30 || due[2] != 0 || have.Waits/60_000%60 != 10 || have.Skipped != 3 {
			t.Errorf("due at %v, waits %d: %s", due, have.Waits/60_000%60, have.Message)
		}
	})
}

// TestReplace checks that a run that is due stops the running one and begins after its end, so that
// there are never two of them. If several runs are allowed at a time, the oldest is stopped.
func TestReplace(t *testing.T) {
	for _, most := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			l.jobs.takes, l.jobs.stops = time.Hour, 3*time.Minute
			l.put("profile", "p", profile.Profile{Provisioner: profile.Provisioner{Name: "cloud"}})
			l.put("program", "job", profile.Program{Steps: []profile.Step{{Name: "run", On: profile.OnEach, Script: "true"}}})
			s := profile.Schedule{Program: "job", Cron: "*/10 * * * *", Concurrency: profile.Replace, MaxRuns: most,
				Properties: map[string]string{profile.ProfileKey: "p"}}
			s.Complete()
			l.put("schedule", "s", s)
			l.lead()
			for range 36 * 60 {
				time.Sleep(time.Second)
				if going := l.m.View().ScheduledRuns("t", "s"); len(going) > most {
					t.Fatalf("%d runs at a time: %s and %s", len(going), going[0].ID, going[1].ID)
				}
			}
			l.stop()
			got := l.m.View().Runs("t") // those of 10, 20 and 30, the latest first
			if len(got) != 3 {
				t.Fatalf("%d runs", len(got))
			}
			for i, r := range got {
				want := profile.Running
				if i >= most {
					want = profile.Killed
				}
				if r.Status != want || r.Due/60_000%60 != int64(30-10*i) {
					t.Errorf("the run of minute %d is %s, not %s: %s", r.Due/60_000%60, r.Status, want, r.Message)
				}
				if begin := r.Created/60_000%60 - r.Due/60_000%60; begin != map[bool]int64{true: 3}[i < 3-most] {
					t.Errorf("the run of minute %d began %d minutes later", r.Due/60_000%60, begin)
				}
			}
		})
	}
}

func (l *lab) put(kind, name string, v any) {
	l.t.Helper()
	p, err := logtest.PutSetting(kind, name, "put", v)
	if err != nil {
		l.t.Fatal(err)
	}
	if a := l.apply(&pb.Command{Tenant: "t", Actor: "me", Change: setting(p)}); a[0].Err != nil {
		l.t.Fatal(a[0].Err)
	}
}
