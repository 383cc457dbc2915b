package profile

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
)

func newRun() *Run {
	r := New(NewID(1_700_000_000_000, 7), "t", Program{Name: "Word Count!", Steps: []Step{{Name: "run"}}}, 1_700_000_000_000)
	p := NativeProfile()
	r.Of(&p, Levels{})
	return r
}

// after applies events, each a second after the last; it fails the test where one is refused.
func after(t *testing.T, r *Run, events ...Event) *Run {
	t.Helper()
	for i, e := range events {
		next, err := r.Apply(e, r.Created+int64(i+1)*1000)
		if err != nil {
			t.Fatalf("event %d, %s, of a run that is %s and %s: %v", i, e.Kind, r.Status, r.Cluster.Status, err)
		}
		r = next
	}
	return r
}

var (
	ask   = Event{Kind: Asking}
	gave  = Event{Kind: Returned, Cluster: &RunCluster{Name: "x"}, ID: "00000001", Operation: "00000001-001"}
	up    = Event{Kind: Saw, Seen: SeenRunning}
	ready = Event{Kind: Ready, Cluster: &RunCluster{Name: "x", Nodes: []RunNode{{ID: "1"}, {ID: "2"}}}}
	begun = Event{Kind: Begun, Operation: "00000001-002"}
	asked = Event{Kind: Requested}
	gone  = Event{Kind: Saw, Seen: SeenNotExists}
)

func ends(s Status) Event { return Event{Kind: ProgramIs, Status: s} }

func TestID(t *testing.T) {
	a, b := NewID(1_700_000_000_000, 7), NewID(1_700_000_000_001, 3)
	if a >= b || len(a) != 16 {
		t.Error(a, b)
	}
	if got := ClusterName("Word Count!", a); got != "run-word-count-"+a {
		t.Error(got)
	}
	if got := ClusterName("a-very-long-name-of-a-program", a); len(got) > 51 {
		t.Error(got)
	}
}

// TestLife follows a run from its beginning to its end, and checks for each outcome whether the nodes are
// kept.
func TestLife(t *testing.T) {
	r := after(t, newRun(), gave, up, ready)
	if r.Status != Starting || r.Cluster.Status != Provisioned || *r.Cluster.NumNodes != 2 || r.Cluster.ID != "00000001" ||
		r.ProvisionOperation != "00000001-001" {
		t.Fatalf("%+v", r)
	}
	r = after(t, r, begun)
	for _, c := range []struct {
		end  Status
		keep KeepAlive
		halt *Halt
		want ClusterStatus
		till int64
	}{
		{Completed, KeepAlive{60_000, 60_000}, nil, Deprovisioning, 0},
		{Failed, KeepAlive{}, nil, Deprovisioning, 0},
		{Failed, KeepAlive{Failed: 60_000}, nil, Waiting, 61_000},
		{Killed, KeepAlive{Killed: 60_000}, &Halt{Status: Killed}, Deprovisioning, 0},
		{Killed, KeepAlive{Killed: 60_000}, &Halt{Status: Killed, Keep: true}, Waiting, 61_000},
		{Killed, KeepAlive{}, &Halt{Status: Killed, Keep: true}, Waiting, 0},
	} {
		x := r.clone()
		x.KeepAlive, x.Halt = c.keep, c.halt
		got := after(t, x, ends(c.end))
		if c.till > 0 {
			c.till += r.Created
		}
		if got.Status != c.end || got.Cluster.Status != c.want || got.Cluster.ExpiresAt != c.till {
			t.Errorf("%+v: %s %s %d", c, got.Status, got.Cluster.Status, got.Cluster.ExpiresAt-r.Created)
		}
	}
	r.Program.Steps[0].Files, r.Program.Steps[0].Script = map[string]string{"f": "text"}, "true"
	over := after(t, r, ends(Completed), asked, gone)
	if s := over.Program.Steps[0]; s.Files != nil || s.Script == "" || r.Program.Steps[0].Files == nil {
		t.Error("files of a program that has ended are kept, or those of one that has not are not")
	}
	if !over.Over() || over.Cluster.Status != Deprovisioned || over.Cluster.End == nil || over.Cluster.Down == 0 || over.Up() {
		t.Errorf("%+v", over)
	}
}

// TestKept checks that kept nodes expire, can be kept for longer, and can be torn down by an order.
// A run whose cluster is not waiting accepts none of these orders.
func TestKept(t *testing.T) {
	r := newRun()
	r.KeepAlive.Failed = 60_000
	r = after(t, r, gave, up, ready, begun, ends(Failed))
	at := r.Cluster.ExpiresAt
	if act, _ := r.Next(at - 1); act != Nothing {
		t.Error(act)
	}
	if act, _ := r.Next(at); act != Expire {
		t.Error(act)
	}
	if _, err := r.Apply(Event{Kind: Expired}, at-1); !errors.Is(err, ErrIgnored) {
		t.Error(err)
	}
	longer, err := r.Apply(Event{Kind: Extend, At: at + 5000}, at-1)
	if err != nil || longer.Cluster.ExpiresAt != at+5000 {
		t.Error(err)
	}
	if _, err := longer.Apply(Event{Kind: Expired}, at); !errors.Is(err, ErrIgnored) {
		t.Error("it expired in spite of", err)
	}
	forever, err := r.Apply(Event{Kind: Extend}, at-1)
	if err != nil || forever.Cluster.ExpiresAt != 0 {
		t.Error(err)
	}
	if act, again := forever.Next(at * 2); act != Nothing || again != 0 {
		t.Error(act, again)
	}
	if x := after(t, forever, Event{Kind: TearDown}); x.Cluster.Status != Deprovisioning {
		t.Error(x.Cluster.Status)
	}
	if x, err := longer.Apply(Event{Kind: Expired}, at+5000); err != nil || x.Cluster.Status != Deprovisioning {
		t.Error(err)
	}
	refused := new(OrderError)
	for _, k := range []Kind{TearDown, Extend, Retry, Purge} {
		if _, err := newRun().Apply(Event{Kind: k, Reason: "x"}, 0); !errors.As(err, &refused) {
			t.Errorf("%s: %v", k, err)
		}
	}
	if _, err := r.Apply(Event{Kind: Stop}, at-1); !errors.As(err, &refused) {
		t.Error("what is over was stopped", err)
	}
	if _, err := r.Apply(Event{Kind: Extend, At: 1}, at-1); !errors.As(err, &refused) {
		t.Error("into the past", err)
	}
}

// TestStopWhileProvisioning checks that a stop ends the provisioning in each of its states, and that
// the cluster is torn down, whatever the provisioner answers afterwards.
func TestStopWhileProvisioning(t *testing.T) {
	for i, events := range [][]Event{{}, {gave}, {gave, up}, {gave, {Kind: Saw, Seen: SeenFailed}}, {gave, {Kind: Saw, Seen: SeenDeleting}}} {
		r := after(t, after(t, newRun(), events...), Event{Kind: Stop, Actor: "me", Keep: true})
		if r.Status != Killed || r.Cluster.Status != Deprovisioning || r.Task.Type != Deprovision || r.Task.Status != RequestingDelete {
			t.Errorf("%d: %s %s %+v", i, r.Status, r.Cluster.Status, r.Task)
		}
		for _, late := range []Event{gave, up, ready} {
			if x, err := r.Apply(late, 1); err == nil && (x.Status != Killed || x.Task.Type != Deprovision || x.Task.Status != RequestingDelete) {
				t.Errorf("%d: a late %s: %s %+v", i, late.Kind, x.Status, x.Task)
			}
		}
	}
	r := after(t, newRun(), gave, up, ready, begun, Event{Kind: Stop, Actor: "me"})
	if r.Status != Stopping {
		t.Error(r.Status)
	}
	if act, _ := r.Next(0); act != Abort {
		t.Error(act)
	}
	if r = after(t, r, ends(Killed)); r.Status != Killed || r.Message != "stopped by me" || r.Cluster.Status != Deprovisioning {
		t.Errorf("%+v", r)
	}
}

// TestFailures checks that a run records whether its provisioning or its program has failed.
func TestFailures(t *testing.T) {
	before := after(t, newRun(), Event{Kind: CallFailed, Before: true, Error: "no such provisioner"})
	if before.Status != Failed || before.Failure != FailedProvisioning || before.Cluster.Status != Deprovisioned || !before.Over() {
		t.Errorf("before any request: %+v", before)
	}
	if r := after(t, newRun(), ask, Event{Kind: CallFailed, Before: true, Error: "no secret any more"}); r.Cluster.Status != Deprovisioning {
		t.Errorf("after a request that may have been made: %+v", r)
	}
	r := after(t, newRun(), ask, gave, Event{Kind: CallFailed, Error: "x"})
	if r.Status != Failed || r.Failure != FailedProvisioning || r.Cluster.Status != Deprovisioning {
		t.Errorf("after a request: %+v", r)
	}
	// A request whose answer nobody saw counts as one that may have made something.
	if r := after(t, newRun(), Event{Kind: CallFailed, Error: "lost"}); r.Cluster.Status != Deprovisioning {
		t.Errorf("without an answer: %+v", r)
	}
	if r := after(t, newRun(), gave, up, ready, begun, ends(Failed)); r.Failure != FailedProgram {
		t.Errorf("%+v", r)
	}
	late := r.Created + int64(r.Timeout)
	if act, _ := newRun().Next(late); act != GiveUp {
		t.Error(act)
	}
	if x, err := newRun().Apply(Event{Kind: Overdue}, late); err != nil || x.Status != Failed || x.Cluster.Status != Deprovisioning {
		t.Error(err)
	}
}

// TestForce checks that an order with a reason ends a run that cannot be ended otherwise, and that
// the deletion of an orphan is tried again or the orphan is removed from the list.
func TestForce(t *testing.T) {
	r := after(t, newRun(), gave, up, ready, begun, ends(Completed), asked)
	refused := new(OrderError)
	if _, err := r.Apply(Event{Kind: Force, To: Deprovisioned}, 1); !errors.As(err, &refused) {
		t.Error("without a reason", err)
	}
	if x := after(t, r, Event{Kind: Force, To: Deprovisioned, Reason: "by hand", Actor: "me"}); !x.Over() || x.Status != Completed ||
		x.Message != "taken for DEPROVISIONED by me: by hand" {
		t.Errorf("%+v", x)
	}
	o := after(t, r, Event{Kind: Saw, Seen: SeenOrphaned})
	if o.Cluster.Status != Orphaned || !o.Lost() || o.Up() || !o.Over() {
		t.Errorf("%+v", o)
	}
	again := after(t, o, Event{Kind: Retry})
	if act, _ := again.Next(again.Orphan.Retry.Created); act != Delete || again.Over() {
		t.Error(act)
	}
	if x := after(t, again, asked, gone); x.Lost() || !x.Over() || x.Cluster.Status != Orphaned {
		t.Errorf("%+v", x.Orphan)
	}
	if x := after(t, o, Event{Kind: Purge, Reason: "the account is closed", Actor: "me"}); x.Lost() {
		t.Errorf("%+v", x.Orphan)
	}
	if _, err := o.Apply(Event{Kind: Force, To: Deprovisioned, Reason: "x"}, 1); !errors.As(err, &refused) {
		t.Error(err)
	}
}

// TestAnyHistory checks that with any events in any order, a run makes only transitions of the
// tables, is torn down at most once, and does not change after its end.
func TestAnyHistory(t *testing.T) {
	all := []Event{
		ask, gave, {Kind: Returned}, up, gone, {Kind: Saw, Seen: SeenFailed}, {Kind: Saw, Seen: SeenDeleting}, {Kind: Saw, Seen: SeenCreating},
		{Kind: Saw, Seen: SeenOrphaned},
		ready, asked, {Kind: CallFailed, Error: "x", Retryable: true}, {Kind: CallFailed, Error: "x"},
		{Kind: CallFailed, Error: "x", Before: true}, {Kind: Overdue}, begun,
		ends(Running), ends(Suspended), ends(Resuming), ends(Completed), ends(Failed), ends(Killed), {Kind: TimedOut}, {Kind: Expired},
		{Kind: Stop}, {Kind: Stop, Keep: true}, {Kind: TearDown}, {Kind: Extend}, {Kind: Retry}, {Kind: Purge, Reason: "x"},
		{Kind: Force, To: Deprovisioned, Reason: "x"}, {Kind: Force, To: Orphaned, Reason: "x"},
	}
	rapid.Check(t, func(t *rapid.T) {
		r := newRun()
		r.KeepAlive = KeepAlive{Failed: model.Millis(rapid.IntRange(0, 2).Draw(t, "failed")) * 30_000,
			Killed: model.Millis(rapid.IntRange(0, 1).Draw(t, "killed")) * 30_000}
		now, tasks := r.Created, 0
		for range rapid.IntRange(1, 40).Draw(t, "n") {
			now += int64(rapid.IntRange(0, 60_000).Draw(t, "pause"))
			e := rapid.SampledFrom(all).Draw(t, "event")
			next, err := r.Apply(e, now)
			if err != nil {
				continue
			}
			switch {
			case !r.Status.May(next.Status), !r.Cluster.Status.May(next.Cluster.Status) && e.Kind != Force:
				t.Fatalf("%s: %s, %s to %s, %s", e.Kind, r.Status, r.Cluster.Status, next.Status, next.Cluster.Status)
			case r.Task.Type != next.Task.Type:
				tasks++
			case next.Status.Ended() != (next.Ended > 0), next.Cluster.Status.Ended() != (next.Cluster.End != nil):
				t.Fatalf("%s: ends that do not fit: %+v", e.Kind, next)
			case next.Cluster.Status == Orphaned && next.Orphan == nil:
				t.Fatalf("%s: an orphan without a reason", e.Kind)
			}
			if !next.Over() {
				if act, again := next.Next(now); act == Nothing && again == 0 && !(next.Cluster.Status == Waiting && next.Cluster.ExpiresAt == 0) {
					t.Fatalf("after %s nothing will ever happen to %s, %s, %+v", e.Kind, next.Status, next.Cluster.Status, next.Task)
				}
			}
			r = next
		}
		if tasks > 1 {
			t.Fatalf("%d tasks tear it down", tasks)
		}
	})
}

// TestExits: the exit code of a run is that of what failed, else of what ended last with
// another one than 0.
func TestExits(t *testing.T) {
	r := newRun()
	r = r.Exited(exitOf("run", "1", 0), true)
	r = r.Exited(exitOf("run", "2", 3), false)
	r = r.Exited(exitOf("run", "3", 4), false)
	if *r.ExitCode != 3 || len(r.Exits) != 2 {
		t.Errorf("%d %v", *r.ExitCode, r.Exits)
	}
}

// exitOf is short for an Exit.
func exitOf(step, node string, code int) Exit { return Exit{Step: step, Node: node, Code: code} }
