package profile

import (
	"fmt"
	"testing"
)

// lim are limits that nothing reaches.
var lim = taskLimits{timeout: DefaultTimeout}

// TestProvisionTable checks every row of the table of PROVISION (docs/spec/profiles.md §3), and
// that every other event changes nothing in any state.
func TestProvisionTable(t *testing.T) {
	type row struct {
		from  TaskStatus
		event string
		to    TaskStatus
		what  notice
	}
	rows := []row{
		{RequestingCreate, "cluster", PollingCreate, quiet},
		{RequestingCreate, "null", TaskFailed, failed},
		{PollingCreate, "CREATING", PollingCreate, quiet},
		{PollingCreate, "RUNNING", Initializing, quiet},
		{PollingCreate, "NOT_EXISTS", RequestingCreate, quiet},
		{PollingCreate, "FAILED", RequestingDelete, quiet},
		{PollingCreate, "DELETING", PollingDelete, quiet},
		{PollingCreate, "ORPHANED", TaskFailed, failed},
		{RequestingDelete, "done", PollingDelete, quiet},
		{PollingDelete, "DELETING", PollingDelete, quiet},
		{PollingDelete, "NOT_EXISTS", RequestingCreate, quiet},
		{PollingDelete, "NOT_EXISTS late", TaskFailed, failed},
		{PollingDelete, "CREATING", PollingCreate, quiet},
		{PollingDelete, "RUNNING", Initializing, quiet},
		{PollingDelete, "FAILED", RequestingDelete, quiet},
		{PollingDelete, "ORPHANED", TaskFailed, failed},
		{Initializing, "ok", Created, provisioned},
	}
	states := []TaskStatus{RequestingCreate, PollingCreate, Initializing, Created, RequestingDelete, PollingDelete, TaskFailed, TaskCancelled}
	table(t, Provision, states, func(s TaskStatus, e string) (TaskStatus, notice) {
		for _, r := range rows {
			if r.from == s && r.event == e {
				return r.to, r.what
			}
		}
		if e == "NOT_EXISTS late" && s == PollingCreate {
			return TaskFailed, failed // the same limit holds: a cluster that vanishes is not made for ever
		}
		return s, quiet
	})
}

// TestDeprovisionTable is like TestProvisionTable, for DEPROVISION.
func TestDeprovisionTable(t *testing.T) {
	states := []TaskStatus{RequestingDelete, PollingDelete, Deleted, TaskOrphaned, TaskCancelled, TaskFailed}
	table(t, Deprovision, states, func(s TaskStatus, e string) (TaskStatus, notice) {
		switch {
		case s == RequestingDelete && e == "done":
			return PollingDelete, quiet
		case s == PollingDelete:
			switch e {
			case "NOT_EXISTS", "NOT_EXISTS late":
				return Deleted, deprovisioned
			case "RUNNING":
				return RequestingDelete, quiet
			case "CREATING", "FAILED", "ORPHANED":
				return TaskOrphaned, orphaned
			}
		}
		return s, quiet
	})
}

func table(t *testing.T, typ TaskType, states []TaskStatus, want func(TaskStatus, string) (TaskStatus, notice)) {
	events := []string{"cluster", "null", "done", "ok", "CREATING", "RUNNING", "FAILED", "DELETING", "NOT_EXISTS", "NOT_EXISTS late",
		"ORPHANED"}
	for _, s := range states {
		for _, e := range events {
			task := RunTask{Type: typ, Status: s, Created: 1000}
			var got RunTask
			var what notice
			switch e {
			case "cluster":
				got, what = task.Returned(true)
			case "null":
				got, what = task.Returned(false)
			case "done":
				got, what = task.Requested()
			case "ok":
				got, what = task.Initialized()
			case "NOT_EXISTS late":
				got, what = task.Saw(SeenNotExists, "", 1000+int64(DefaultTimeout), lim)
			default:
				got, what = task.Saw(Seen(e), "", 1001, lim)
			}
			status, notice := want(s, e)
			if got.Status != status || what != notice {
				t.Errorf("%s in %s, %s: got %s (%d), want %s (%d)", typ, s, e, got.Status, what, status, notice)
			}
		}
	}
}

// TestRetries checks that after a retryable failure the task is tried again, with pauses that
// double from 100 ms to 20 s, until its time limit, which counts from the task's beginning. Any
// other failure ends the task.
func TestRetries(t *testing.T) {
	task := RunTask{Type: Provision, Status: RequestingCreate, Created: 0}
	var what notice
	now, last := int64(0), int64(0)
	tries := 0
	for what == quiet {
		task, what = task.Failed("down", true, now, lim)
		if what == quiet {
			if pause := task.RetryAt - now; pause < last || pause > 20_000 || tries == 0 && pause != 100 {
				t.Fatalf("try %d: a pause of %d ms after one of %d", tries, pause, last)
			} else {
				last = pause
			}
			now = task.RetryAt
			tries++
		}
	}
	if task.Status != TaskFailed || now < int64(DefaultTimeout) || now > int64(DefaultTimeout)+20_000 || last != 20_000 {
		t.Errorf("%+v at %d after %d tries", task, now, tries)
	}
	for typ, want := range map[TaskType]notice{Provision: failed, Deprovision: orphaned} {
		task := RunTask{Type: typ, Status: RequestingDelete}
		if task, what := task.Failed("no", false, 1, lim); task.Status != TaskFailed || what != want {
			t.Errorf("%s: %s %d", typ, task.Status, what)
		}
	}
	task = RunTask{Type: Provision, Status: RequestingCreate}
	few := lim
	few.retries = 2
	for i := range 3 {
		if task, what = task.Failed("down", true, 1, few); (what == failed) != (i == 2) {
			t.Errorf("try %d of 2: %d", i, what)
		}
	}
}

// TestClusterTable: a run's cluster goes from one status to another as the table says
// (docs/spec/profiles.md §2), and in no other way.
func TestClusterTable(t *testing.T) {
	allowed := map[string]bool{
		"PROVISIONING PROVISIONED": true, "PROVISIONING DEPROVISIONING": true, "PROVISIONING DEPROVISIONED": true, "PROVISIONING ORPHANED": true,
		"PROVISIONED WAITING": true, "PROVISIONED DEPROVISIONING": true,
		"WAITING DEPROVISIONING": true, "WAITING ORPHANED": true,
		"DEPROVISIONING DEPROVISIONED": true, "DEPROVISIONING ORPHANED": true,
	}
	for _, from := range ClusterStatuses {
		for _, to := range ClusterStatuses {
			if got, want := from.May(to), from == to || allowed[fmt.Sprintf("%s %s", from, to)]; got != want {
				t.Errorf("%s to %s: %v", from, to, got)
			}
		}
	}
	for _, s := range Statuses {
		for _, to := range Statuses {
			if s.Ended() && s != to && s.May(to) {
				t.Errorf("%s to %s after the end", s, to)
			}
		}
	}
}
