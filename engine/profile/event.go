package profile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// Event is an event of a run, or an order about it. Kind determines which of the other fields
// count.
type Event struct {
	Kind Kind `json:"kind"`
	// RunCluster belongs to Returned, Saw and Ready; nil if there is none.
	Cluster *RunCluster `json:"cluster,omitempty"`
	Seen    Seen        `json:"seen,omitempty"`
	// Error and Retryable belong to CallFailed. Before is true if the failure happened before
	// anything was requested.
	Error     string `json:"error,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
	Before    bool   `json:"before,omitempty"`
	// Operation is the id of the plan's operation. ID is the cluster's in this mesh.
	Operation string `json:"operation,omitempty"`
	ID        string `json:"id,omitempty"`
	// Status belongs to ProgramIs.
	Status  Status `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	// Actor, Keep, At and Reason belong to orders.
	Actor  string        `json:"actor,omitempty"`
	Keep   bool          `json:"keepalive,omitempty"`
	At     int64         `json:"at,omitempty"`
	Reason string        `json:"reason,omitempty"`
	To     ClusterStatus `json:"to,omitempty"`
}

// Kind is the kind of an event.
type Kind string

// The kinds of events: answers of the provisioner, changes of the program, the passing of times, and orders.
const (
	Asking     Kind = "asking"      // the first request for a cluster is about to be made
	Returned   Kind = "returned"    // the answer to a request for a cluster, which may be none
	Saw        Kind = "saw"         // the status of a cluster
	Ready      Kind = "ready"       // the cluster is initialized; its nodes
	Requested  Kind = "requested"   // the request to delete was accepted
	CallFailed Kind = "failed"      // a call to the provisioner failed
	Overdue    Kind = "overdue"     // a task has exceeded its time limit
	ProgramIs  Kind = "program"     // the program's status has changed
	Begun      Kind = "begun"       // a plan has begun
	Expired    Kind = "expired"     // the time to keep the nodes has ended
	TimedOut   Kind = "timed out"   // the program has exceeded its time limit
	Stop       Kind = "stop"        // order: stop the program
	TearDown   Kind = "deprovision" // order: tear down a kept cluster
	Extend     Kind = "extend"      // order: keep it until At, or, with 0, until it is torn down by an order
	Force      Kind = "force"       // order: set the status of the cluster to To, whatever it is
	Retry      Kind = "retry"       // order: try again to tear down an orphan
	Purge      Kind = "purge"       // order: remove an orphan from the list
)

// Orders lists the kinds of events that users cause by an order.
var Orders = []Kind{Stop, TearDown, Extend, Force, Retry, Purge}

// ErrIgnored means that an event changes nothing, because it is late or repeated.
var ErrIgnored = errors.New("it changes nothing")

// OrderError means that an order does not fit the state of the run.
type OrderError struct{ Message string }

// Error returns the message.
func (e *OrderError) Error() string { return e.Message }

func refuse(format string, args ...any) error { return &OrderError{fmt.Sprintf(format, args...)} }

// Apply returns the run after an event at a time in Unix milliseconds. The run itself is not
// changed. It fails with ErrIgnored if the event changes nothing, and with an *OrderError if
// an order cannot be carried out.
func (r *Run) Apply(e Event, now int64) (*Run, error) {
	next := r.clone()
	if err := next.apply(e, now); err != nil {
		return nil, err
	}
	if !r.Status.May(next.Status) || !r.Cluster.Status.May(next.Cluster.Status) && e.Kind != Force {
		return nil, fmt.Errorf(
			"%w: run %s cannot go from %s, %s to %s, %s",
			ErrIgnored,
			r.ID,
			r.Status,
			r.Cluster.Status,
			next.Status,
			next.Cluster.Status,
		)
	}
	if next.Status.Ended() && !r.Status.Ended() {
		next.Program = next.Program.WithoutFiles(true) // they are not needed any more
	}
	return next, nil
}

// clone copies the parts that apply changes.
func (r *Run) clone() *Run {
	out := *r
	if r.Task != nil {
		t := *r.Task
		out.Task = &t
	}
	if r.Orphan != nil {
		o := *r.Orphan
		if o.Retry != nil {
			t := *o.Retry
			o.Retry = &t
		}
		out.Orphan = &o
	}
	out.Exits = slices.Clone(r.Exits)
	return &out
}

func (r *Run) apply(e Event, now int64) error {
	switch e.Kind {
	case Returned, Saw, Ready, Requested, CallFailed, Overdue:
		return r.step(e, now)
	case Asking:
		if r.Cluster.Requested > 0 || r.Task == nil || r.Task.Status != RequestingCreate {
			return ErrIgnored
		}
		r.Cluster.Requested = now
		return nil
	case Begun:
		return r.begun(e, now)
	case ProgramIs:
		return r.programIs(e, now)
	case TimedOut:
		if r.Status.Ended() || r.Halt != nil {
			return ErrIgnored
		}
		r.Halt = &Halt{Status: Failed, Actor: model.Self, Reason: fmt.Sprintf("the program took longer than %s", r.Program.Timeout), At: now}
		r.Status = Stopping
		return nil
	case Expired:
		if r.Cluster.Status != Waiting || r.Cluster.ExpiresAt == 0 || now < r.Cluster.ExpiresAt {
			return ErrIgnored
		}
		r.deprovision(now)
		return nil
	}
	return r.order(e, now)
}

// step advances the current task.
func (r *Run) step(e Event, now int64) error {
	t := r.current()
	if t == nil {
		return ErrIgnored
	}
	retry := r.Orphan != nil && t == r.Orphan.Retry
	was := *t
	l := taskLimits{timeout: r.Timeout, retries: r.Retries}
	if t.Type == Deprovision {
		l.timeout, l.retries = r.DeprovisionTimeout, 0
	}
	var what notice
	switch e.Kind {
	case Returned:
		if *t, what = t.Returned(e.Cluster != nil); e.Cluster != nil {
			r.Cluster.Given, r.Cluster.ID = e.Cluster, e.ID
			if e.Operation != "" {
				r.ProvisionOperation = e.Operation
			}
		}
	case Requested:
		if *t, what = t.Requested(); e.Operation != "" {
			r.DeprovisionOperation = e.Operation
		}
	case Saw:
		*t, what = t.Saw(e.Seen, e.Message, now, l)
	case Ready:
		if *t, what = t.Initialized(); what == provisioned && e.Cluster != nil {
			r.Cluster.Given = e.Cluster
		}
	case CallFailed:
		*t, what = t.Failed(e.Error, e.Retryable, now, l)
	case Overdue:
		*t, what = t.Overdue(now, l)
	}
	if what == quiet && *t == was && e.Kind != Returned {
		return ErrIgnored
	}
	if retry {
		return r.retried(what, t.Error, now)
	}
	r.noticed(what, t.Error, e.Before && r.Cluster.Requested == 0 && r.Cluster.Given == nil, now)
	return nil
}

// noticed handles the notice of a task. With before, nothing can have been made.
func (r *Run) noticed(what notice, why string, before bool, now int64) {
	switch what {
	case provisioned:
		n := len(r.Cluster.Given.Nodes)
		r.Cluster.Status, r.Cluster.Up = Provisioned, now
		r.Cluster.NumNodes, r.Cluster.Nodes = &n, r.Cluster.Given.Nodes
		r.Status = Starting
	case failed:
		if !r.Status.Ended() {
			r.Status, r.Failure, r.Ended = Failed, FailedProvisioning, now
			r.Message = "its cluster could not be made: " + why
		}
		if before {
			r.gone(now)
			return
		}
		r.deprovision(now)
	case deprovisioned:
		r.gone(now)
	case orphaned:
		r.lose(why, now)
	}
}

// retried handles the notice of another attempt to tear down an orphan.
func (r *Run) retried(what notice, why string, now int64) error {
	switch what {
	case deprovisioned:
		r.Orphan.ClearedAt, r.Orphan.Cleared = now, "torn down by another try"
		r.Cluster.Down = now
	case orphaned, failed:
		r.Orphan.Reason = why
	}
	return nil
}

// gone records that no node of the run exists.
func (r *Run) gone(now int64) {
	r.finish(Deprovisioned, now)
}

func (r *Run) lose(why string, now int64) {
	r.Orphan = &RunOrphan{Since: now, Reason: why}
	r.finish(Orphaned, now)
}

func (r *Run) finish(s ClusterStatus, now int64) {
	end := now / 1000
	r.Cluster.Status, r.Cluster.End, r.Cluster.ExpiresAt = s, &end, 0
	if r.Cluster.Up > 0 && r.Cluster.Down == 0 {
		r.Cluster.Down = now
	}
}

// deprovision begins to tear down the cluster, once.
func (r *Run) deprovision(now int64) {
	if r.Task != nil && r.Task.Type == Deprovision {
		return
	}
	r.Cluster.Status, r.Cluster.ExpiresAt = Deprovisioning, 0
	r.Task = &RunTask{Type: Deprovision, Status: RequestingDelete, Created: now}
}

// begun records the plan of a program.
func (r *Run) begun(e Event, now int64) error {
	if r.Status != Starting && r.Status != Stopping || r.Operation != "" {
		return ErrIgnored
	}
	r.Operation, r.Started = e.Operation, now
	if r.Status == Starting {
		r.Status = Running
	}
	return nil
}

func (r *Run) programIs(e Event, now int64) error {
	if r.Status.Ended() || e.Status == r.Status || !r.Status.May(e.Status) {
		return ErrIgnored
	}
	if !e.Status.Ended() {
		r.Status, r.Message = e.Status, e.Message
		return nil
	}
	r.end(e.Status, e.Message, now)
	return nil
}

// end ends the program and decides what happens to the nodes.
func (r *Run) end(s Status, why string, now int64) {
	if r.Halt != nil && s != Completed {
		s, why = r.Halt.Status, r.Halt.Reason
	}
	r.Status, r.Message, r.Ended = s, why, now
	if s == Failed && r.Failure == "" {
		r.Failure = FailedProgram
	}
	keep := model.Millis(0)
	switch {
	case s == Failed:
		keep = r.KeepAlive.Failed
	case s == Killed && r.Halt != nil && r.Halt.Keep:
		if keep = r.KeepAlive.Killed; keep == 0 {
			keep = -1 // until an order tears it down
		}
	}
	if keep == 0 || r.Cluster.Status != Provisioned {
		r.deprovision(now)
		return
	}
	r.Cluster.Status, r.Cluster.ExpiresAt = Waiting, 0
	if keep > 0 {
		r.Cluster.ExpiresAt = now + int64(keep)
	}
}

// order carries out an order.
func (r *Run) order(e Event, now int64) error {
	switch e.Kind {
	case Stop:
		return r.stop(e, now)
	case TearDown:
		if r.Cluster.Status != Waiting {
			return refuse(
				"run %s: its cluster is %s, and only one that is %s can be torn down by order; stop the run first",
				r.ID,
				r.Cluster.Status,
				Waiting,
			)
		}
		r.deprovision(now)
	case Extend:
		switch {
		case r.Cluster.Status != Waiting:
			return refuse("run %s: its cluster is %s, and only one that is %s can be kept for longer", r.ID, r.Cluster.Status, Waiting)
		case e.At != 0 && e.At < now:
			return refuse("run %s: the time until which its cluster is to be kept is over already", r.ID)
		}
		r.Cluster.ExpiresAt = e.At
	case Force:
		return r.force(e, now)
	case Retry:
		switch {
		case !r.Lost():
			return refuse("run %s is not an orphan: there is nothing to try again", r.ID)
		case r.Orphan.Retry != nil && !r.Orphan.Retry.Status.Over():
			return ErrIgnored
		}
		r.Orphan.Retry = &RunTask{Type: Deprovision, Status: RequestingDelete, Created: now}
	case Purge:
		switch {
		case !r.Lost():
			return refuse("run %s is not an orphan: there is nothing to take off the list", r.ID)
		case e.Reason == "":
			return refuse("run %s: the reason is missing: state why nothing of its cluster is left", r.ID)
		}
		if t := r.Orphan.Retry; t != nil {
			*t = t.Cancel()
		}
		r.Orphan.ClearedAt, r.Orphan.Cleared = now, "taken off the list by "+e.Actor+": "+e.Reason
	default:
		return fmt.Errorf("%w: there is no event %q", ErrIgnored, e.Kind)
	}
	return nil
}

func (r *Run) stop(e Event, now int64) error {
	if r.Status.Ended() || r.Halt != nil {
		return refuse("run %s is %s: it cannot be stopped", r.ID, r.Status)
	}
	r.Halt = &Halt{Keep: e.Keep, Actor: e.Actor, Reason: "stopped by " + e.Actor, Status: Killed, At: now}
	if e.Reason != "" {
		r.Halt.Reason += ": " + e.Reason
	}
	if r.Status != Pending {
		r.Status = Stopping
		return nil
	}
	// Nothing runs yet: provisioning is given up, and its result is torn down.
	*r.Task = r.Task.Cancel()
	r.end(Killed, r.Halt.Reason, now)
	return nil
}

// force sets the status of a cluster as an operator states it (scenario 8).
func (r *Run) force(e Event, now int64) error {
	switch {
	case e.Reason == "":
		return refuse("run %s: the reason is missing: state what was done", r.ID)
	case e.To != Deprovisioned && e.To != Orphaned:
		return refuse("run %s: a cluster can be forced to be %s or %s, not %q", r.ID, Deprovisioned, Orphaned, e.To)
	case r.Cluster.Status.Ended():
		return refuse("run %s: its cluster is %s already", r.ID, r.Cluster.Status)
	}
	if r.Task != nil {
		*r.Task = r.Task.Cancel()
	}
	why := fmt.Sprintf("taken for %s by %s: %s", e.To, e.Actor, e.Reason)
	if !r.Status.Ended() {
		r.Status, r.Message, r.Ended = Killed, why, now
	} else if r.Message == "" {
		r.Message = why
	} else {
		r.Message += "; " + why
	}
	if e.To == Orphaned {
		r.lose(why, now)
	} else {
		r.gone(now)
	}
	return nil
}

// Exited records how a step ended on a node.
func (r *Run) Exited(x Exit, ok bool) *Run {
	next := r.clone()
	if next.ExitCode == nil || *next.ExitCode == 0 || !ok && !next.failedExit() {
		code := x.Code
		next.ExitCode = &code
	}
	if x.Code != 0 && len(next.Exits) < maxExits {
		next.Exits = append(next.Exits, x)
	}
	return next
}

// failedExit reports whether the known exit code is that of a failure.
func (r *Run) failedExit() bool {
	return slices.ContainsFunc(r.Exits, func(x Exit) bool {
		s, ok := r.Program.Step(x.Step)
		return ok && r.ExitCode != nil && x.Code == *r.ExitCode && !slices.Contains(s.ExitCodes, x.Code)
	})
}
