package profile

// Act is an action on a run.
type Act string

// The actions. Those about the provisioner are calls to it.
const (
	Nothing    Act = ""
	Create     Act = "create"
	Poll       Act = "poll"       // the cluster's status
	Initialize Act = "initialize" // after its nodes were read
	Delete     Act = "delete"
	Begin      Act = "begin"   // the program
	Follow     Act = "follow"  // the program's plan
	Abort      Act = "abort"   // the program's plan, and follow it
	Expire     Act = "expire"  // the nodes were kept long enough
	GiveUp     Act = "give up" // a task that has exceeded its limit
	TimeOut    Act = "time out"
)

// Next returns what to do about a run now, and when to call it again if nothing else happens
// to the run (Unix milliseconds; 0: not at all).
func (r *Run) Next(now int64) (act Act, again int64) {
	if t := r.current(); t != nil {
		limit := int64(r.Timeout)
		if t.Type == Deprovision {
			limit = int64(r.DeprovisionTimeout)
		}
		end := t.Created + limit
		switch {
		case now >= end && !t.Status.nearEnd():
			return GiveUp, 0
		case t.RetryAt > now:
			return Nothing, min(t.RetryAt, end)
		}
		switch t.Status {
		case RequestingCreate:
			return Create, 0
		case PollingCreate, PollingDelete:
			return Poll, end
		case Initializing:
			return Initialize, 0
		case RequestingDelete:
			return Delete, 0
		}
		return Nothing, 0
	}
	switch {
	case r.Cluster.Status == Waiting && r.Cluster.ExpiresAt > 0:
		if now >= r.Cluster.ExpiresAt {
			return Expire, 0
		}
		return Nothing, r.Cluster.ExpiresAt
	case r.Cluster.Status != Provisioned || r.Status.Ended():
		return Nothing, 0
	case r.Halt != nil && r.Operation != "":
		return Abort, 0
	case r.Operation == "":
		return Begin, 0
	}
	if r.Program.Timeout > 0 {
		end := r.Started + int64(r.Program.Timeout)
		if now >= end {
			return TimeOut, 0
		}
		return Follow, end
	}
	return Follow, 0
}

// nearEnd reports whether a task in this status is so near its end that its time limit no
// longer counts, because the cluster exists.
func (s TaskStatus) nearEnd() bool { return s == Initializing }

// Current returns the current task, or nil.
func (r *Run) Current() *RunTask { return r.current() }
