package tree

import "fmt"

// Status is where an element of a plan stands (docs/spec/plans.md §1).
type Status uint8

// The statuses. A step is never stored as Waiting: it is shown so.
const (
	Pending Status = iota
	Prepared
	Starting
	Started
	Complete
	InProgress
	Waiting
	Delayed
	Error
)

var statusNames = [...]string{"PENDING", "PREPARED", "STARTING", "STARTED", "COMPLETE", "IN_PROGRESS", "WAITING", "DELAYED", "ERROR"}

// String gives the status as the API writes it: "IN_PROGRESS".
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("STATUS(%d)", uint8(s))
}

// ParseStatus reads a status as the API writes it.
func ParseStatus(text string) (Status, error) {
	for i, n := range statusNames {
		if n == text {
			return Status(i), nil
		}
	}
	return 0, fmt.Errorf("unknown status %q: it must be one of %v", text, statusNames)
}

// Running says whether the element is worked on.
func (s Status) Running() bool {
	return s == Prepared || s == Starting || s == Started || s == InProgress
}

// Shown gives the status that a step is displayed with.
func (s Status) Shown(interrupted bool) Status {
	if interrupted && (s == Pending || s == Prepared) {
		return Waiting
	}
	return s
}

// OfTasks gives a step's status from those of tasks that are launched together:
// the least of them. prepared says that the step without tasks was looked at
// already; old is kept where the tasks say nothing (§2, "Step status").
func OfTasks(tasks []Status, prepared, errors bool, old Status) Status {
	if errors {
		return Error
	}
	if len(tasks) == 0 {
		if prepared {
			return Prepared
		}
		return Pending
	}
	var has [len(statusNames)]int
	for _, t := range tasks {
		has[t]++
	}
	for _, s := range []Status{Error, Delayed, Pending, Prepared, Starting, Started} {
		if has[s] > 0 {
			return s
		}
	}
	if has[Complete] == len(tasks) {
		return Complete
	}
	return old
}

// Goal is what a task has to reach (§7).
type Goal uint8

// The goals: to keep running, to finish for each target, to finish once.
const (
	GoalRunning Goal = iota
	GoalFinish
	GoalOnce
)

// AfterTask gives the status of a step's task once its state is told as an
// executor names it ("TASK_RUNNING", less "TASK_"). ready says that its readiness check has
// passed, or that there is none; backoff that failures are waited for. known is
// false for a state that says nothing; calm says that delays begin anew (§2,
// "Step transitions").
func AfterTask(state string, goal Goal, ready, backoff bool) (s Status, calm, known bool) {
	switch state {
	case "ERROR", "FAILED":
		if backoff {
			return Delayed, false, true
		}
		return Pending, false, true
	case "KILLED", "KILLING", "LOST", "GONE", "DROPPED", "UNREACHABLE":
		return Pending, false, true
	case "GONE_BY_OPERATOR":
		return Pending, true, true
	case "STAGING", "STARTING":
		return Starting, false, true
	case "RUNNING":
		if goal == GoalRunning && ready {
			return Complete, true, true
		}
		return Started, false, true
	case "FINISHED":
		if goal == GoalRunning {
			return Pending, false, true
		}
		return Complete, false, true
	}
	return 0, false, false
}
