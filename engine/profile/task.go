package profile

import "github.com/coopr/coopr/engine/model"

// TaskType is the purpose of a task on a run's cluster.
type TaskType string

// The tasks.
const (
	Provision   TaskType = "PROVISION"
	Deprovision TaskType = "DEPROVISION"
)

// TaskStatus is the status of such a task (docs/spec/profiles.md §3).
type TaskStatus string

// The statuses of a task.
const (
	RequestingCreate TaskStatus = "REQUESTING_CREATE"
	PollingCreate    TaskStatus = "POLLING_CREATE"
	Initializing     TaskStatus = "INITIALIZING"
	Created          TaskStatus = "CREATED"
	RequestingDelete TaskStatus = "REQUESTING_DELETE"
	PollingDelete    TaskStatus = "POLLING_DELETE"
	Deleted          TaskStatus = "DELETED"
	TaskFailed       TaskStatus = "FAILED"
	TaskOrphaned     TaskStatus = "ORPHANED"
	TaskCancelled    TaskStatus = "CANCELLED"
)

// Over reports whether the status is final.
func (s TaskStatus) Over() bool {
	switch s {
	case Created, Deleted, TaskFailed, TaskOrphaned, TaskCancelled:
		return true
	}
	return false
}

// Seen is a cluster's status as its provisioner reports it.
type Seen string

// The six statuses of a cluster.
const (
	SeenCreating  Seen = "CREATING"
	SeenRunning   Seen = "RUNNING"
	SeenFailed    Seen = "FAILED"
	SeenDeleting  Seen = "DELETING"
	SeenNotExists Seen = "NOT_EXISTS"
	SeenOrphaned  Seen = "ORPHANED"
)

// RunNode is a node of a run's cluster as its provisioner reports it.
type RunNode struct {
	ID string `json:"id"`
	// Created is in Unix milliseconds.
	Created    int64             `json:"createTime,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
}

// RunCluster is a provisioner's answer to the request for a cluster. Later calls pass it back.
type RunCluster struct {
	Name       string            `json:"name"`
	Status     Seen              `json:"status"`
	Nodes      []RunNode         `json:"nodes,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
}

// RunTask is the task to make or tear down a run's cluster. It is stored before each of its
// steps, so that any leader can continue it.
type RunTask struct {
	Type   TaskType   `json:"type"`
	Status TaskStatus `json:"status"`
	// Created is when it began, in Unix milliseconds. Its time limit counts from then on, under
	// any leader.
	Created int64 `json:"created"`
	// Failures counts the retryable failures in a row. The next attempt is due at RetryAt.
	Failures int    `json:"failures,omitempty"`
	RetryAt  int64  `json:"retryAt,omitempty"`
	Error    string `json:"error,omitempty"`
	// Rounds counts the failed clusters that were deleted to be made again. Why is the reason
	// of the last failure.
	Rounds int    `json:"rounds,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Limits of a task.
type taskLimits struct {
	timeout model.Millis
	retries int // 0: unlimited
}

// notice is the meaning of a task's step for its run.
type notice int

const (
	quiet notice = iota
	provisioned
	failed // error, deprovisioning
	deprovisioned
	orphaned
)

// Backoff returns the pause before another attempt after this many failures in a row, in
// milliseconds: 100 ms doubled, at most 20 s (docs/spec/profiles.md §3).
func Backoff(failures int) int64 {
	return min(int64(100)<<min(max(failures-1, 0), 10), 20_000)
}

// to returns the task with another status. The count of failures starts again.
func (t RunTask) to(s TaskStatus) RunTask {
	t.Status, t.Failures, t.RetryAt = s, 0, 0
	if s != TaskFailed && s != TaskOrphaned {
		t.Error = ""
	}
	return t
}

func (t RunTask) expired(now int64, l taskLimits) bool { return now-t.Created >= int64(l.timeout) }

func (t RunTask) fail(why string) (RunTask, notice) {
	t = t.to(TaskFailed)
	t.Error = why
	return t, failed
}

func (t RunTask) orphan(why string) (RunTask, notice) {
	t = t.to(TaskOrphaned)
	t.Error = why
	return t, orphaned
}

// Returned takes note of the provisioner's answer to the request for a cluster. If ok is false,
// it returned none.
func (t RunTask) Returned(ok bool) (RunTask, notice) {
	if t.Type != Provision || t.Status != RequestingCreate {
		return t, quiet
	}
	if !ok {
		return t.fail("the provisioner gave no cluster, which breaks its contract")
	}
	return t.to(PollingCreate), quiet
}

// Requested takes note that the provisioner accepted the request to delete.
func (t RunTask) Requested() (RunTask, notice) {
	if t.Status != RequestingDelete {
		return t, quiet
	}
	return t.to(PollingDelete), quiet
}

// because returns the reason why the last cluster failed.
func (t RunTask) because() string {
	if t.Why == "" {
		return ""
	}
	return ": " + t.Why
}

// Saw takes note of the status that the provisioner reported of a cluster. The argument why is
// its reason for a failure.
func (t RunTask) Saw(s Seen, why string, now int64, l taskLimits) (RunTask, notice) {
	if t.Type == Deprovision {
		return t.sawDeprovision(s)
	}
	if s == SeenFailed && (t.Status == PollingCreate || t.Status == PollingDelete) {
		t.Why = why
	}
	switch t.Status {
	case PollingCreate:
		switch s {
		case SeenRunning:
			return t.to(Initializing), quiet
		case SeenNotExists:
			if t.expired(now, l) {
				return t.fail("Timeout: the cluster vanishes whenever it is made")
			}
			return t.to(RequestingCreate), quiet
		case SeenFailed:
			t.Rounds++
			return t.to(RequestingDelete), quiet
		case SeenDeleting:
			return t.to(PollingDelete), quiet
		case SeenOrphaned:
			return t.fail("the provisioner has lost the cluster")
		}
	case PollingDelete:
		switch s {
		case SeenNotExists:
			switch {
			case t.expired(now, l):
				return t.fail("Timeout: the cluster could not be made in time" + t.because())
			case l.retries > 0 && t.Rounds > l.retries:
				return t.fail("the cluster failed too often" + t.because())
			}
			return t.to(RequestingCreate), quiet
		case SeenCreating:
			return t.to(PollingCreate), quiet
		case SeenRunning:
			return t.to(Initializing), quiet
		case SeenFailed:
			return t.to(RequestingDelete), quiet
		case SeenOrphaned:
			return t.fail("the provisioner has lost the cluster")
		}
	}
	return t.unchanged(), quiet
}

func (t RunTask) sawDeprovision(s Seen) (RunTask, notice) {
	if t.Status != PollingDelete {
		return t.unchanged(), quiet
	}
	switch s {
	case SeenNotExists:
		return t.to(Deleted), deprovisioned
	case SeenRunning:
		return t.to(RequestingDelete), quiet
	case SeenCreating, SeenFailed, SeenOrphaned:
		return t.orphan("while it was deleted its status became " + string(s))
	}
	return t.unchanged(), quiet
}

// unchanged handles a successful call that changes nothing.
func (t RunTask) unchanged() RunTask {
	if !t.Status.Over() {
		t.Failures, t.RetryAt, t.Error = 0, 0, ""
	}
	return t
}

// Initialized takes note that the cluster is ready for use.
func (t RunTask) Initialized() (RunTask, notice) {
	if t.Type != Provision || t.Status != Initializing {
		return t, quiet
	}
	return t.to(Created), provisioned
}

// Failed takes note of a call that failed. A retryable call is tried again, up to the task's limits.
func (t RunTask) Failed(why string, retryable bool, now int64, l taskLimits) (RunTask, notice) {
	if t.Status.Over() {
		return t, quiet
	}
	t.Failures++
	if retryable && !t.expired(now, l) && (l.retries == 0 || t.Failures <= l.retries) {
		t.RetryAt, t.Error = now+Backoff(t.Failures), why
		return t, quiet
	}
	if t.Type == Provision {
		return t.fail(why)
	}
	// The task failed; for the run the cluster is an orphan (PV-08, section 3).
	t = t.to(TaskFailed)
	t.Error = why
	return t, orphaned
}

// Overdue ends a task that has exceeded its time limit.
func (t RunTask) Overdue(now int64, l taskLimits) (RunTask, notice) {
	if t.Status.Over() || !t.expired(now, l) {
		return t, quiet
	}
	why := "Timeout: it took longer than " + l.timeout.String()
	if t.Error != "" {
		why += "; the last error: " + t.Error
	} else {
		why += t.because()
	}
	if t.Type == Provision {
		return t.fail(why)
	}
	return t.orphan(why)
}

// Cancel ends a running task.
func (t RunTask) Cancel() RunTask {
	if t.Status.Over() {
		return t
	}
	return t.to(TaskCancelled)
}
