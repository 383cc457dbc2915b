package tree

import "fmt"

// Status is the status of an element of a plan (docs/spec/plans.md §1).
type Status uint8

// The statuses. A step is never stored as Waiting, only shown so.
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

// String returns the status as in the API: "IN_PROGRESS".
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("STATUS(%d)", uint8(s))
}

// ParseStatus parses a status as in the API.
func ParseStatus(text string) (Status, error) {
	for i, n := range statusNames {
		if n == text {
			return Status(i), nil
		}
	}
	return 0, fmt.Errorf("unknown status %q: it must be one of %v", text, statusNames)
}

// Running reports whether work on the element is going on.
func (s Status) Running() bool {
	return s == Prepared || s == Starting || s == Started || s == InProgress
}

// Shown returns the status that a step is displayed with.
func (s Status) Shown(interrupted bool) Status {
	if interrupted && (s == Pending || s == Prepared) {
		return Waiting
	}
	return s
}
