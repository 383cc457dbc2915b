package runs

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
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

// TestSuspendedSchedules checks that a schedule is suspended, with one event, when its user is gone or may not start its runs any more, and that
// it goes on for the user who writes it again.
func TestSuspendedSchedules(t *testing.T) {
	for name, c := range map[string]struct {
		lose  *pb.Command
		level uint32
		want  string
	}{
		"gone": {&pb.Command{Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "mine"}}}, logformat.SuspendLevel, `called "me" any more`},
		"reads only": {&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
			Hash: []byte("other"), Actor: "me", Tenant: "t", Role: "read", Id: "other"}}}, logformat.SuspendLevel, "may not execute program job"},
		"older agents": {&pb.Command{Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "mine"}}}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				if c.level > 0 {
					l.apply(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: c.level}}})
				}
				var events []model.Event
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					_ = l.m.Follow(ctx, "t", 0, func(all []model.Event) error {
						for _, e := range all {
							if e.Type == "schedule.suspended" {
								events = append(events, e) // read after synctest.Wait
							}
						}
						return nil
					})
				}()
				synctest.Wait()
				l.put("profile", "p", profile.Profile{Provisioner: profile.Provisioner{Name: "cloud"}})
				l.put("program", "job", profile.Program{Steps: []profile.Step{{Name: "run", On: profile.OnEach, Script: "true"}}})
				s := profile.Schedule{Program: "job", Cron: "*/10 * * * *", Properties: map[string]string{profile.ProfileKey: "p"}}
				s.Complete()
				l.put("schedule", "s", s)
				l.lead()
				time.Sleep(15 * time.Minute)
				if n := len(l.m.View().Runs("t")); n != 1 {
					t.Fatalf("%d runs began", n)
				}
				if c.lose.GetPutToken() != nil {
					l.apply(&pb.Command{Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "mine"}}})
				}
				l.apply(c.lose)
				time.Sleep(time.Hour)
				synctest.Wait()
				have, _ := l.m.View().Schedule("t", "s")
				suspended := c.level > 0
				if n := len(l.m.View().Runs("t")); n != 1 {
					t.Errorf("%d runs began", n)
				}
				if got := have.Status == profile.SuspendedSchedule; got != suspended || suspended && have.Skipped != 1 {
					t.Errorf("the schedule is %s, and left out %d runs", have.Status, have.Skipped)
				}
				if suspended && (len(events) != 1 || events[0].Subject != "s" || !strings.Contains(events[0].Message, c.want)) || !suspended && len(events) > 0 {
					t.Errorf("events: %+v", events)
				}
				l.apply(&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
					Hash: []byte("again"), Actor: "me", Tenant: "t", Role: "user", Id: "again"}}})
				l.put("schedule", "s", s)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if have, _ := l.m.View().Schedule("t", "s"); have.Status != profile.Enabled || len(l.m.View().Runs("t")) != 2 {
					t.Errorf("written again, it is %s with %d runs: %s", have.Status, len(l.m.View().Runs("t")), have.Message)
				}
				time.Sleep(time.Hour)
				l.stop()
			})
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
