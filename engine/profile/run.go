package profile

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Status is the status of a run's program.
type Status string

// The statuses of a program (docs/spec/profiles.md §2).
const (
	Pending   Status = "PENDING"
	Starting  Status = "STARTING"
	Running   Status = "RUNNING"
	Suspended Status = "SUSPENDED"
	Resuming  Status = "RESUMING"
	Stopping  Status = "STOPPING"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Killed    Status = "KILLED"
	Rejected  Status = "REJECTED"
)

// Statuses lists all statuses.
var Statuses = []Status{Pending, Starting, Running, Suspended, Resuming, Stopping, Completed, Failed, Killed, Rejected}

// Ended reports whether the program is over.
func (s Status) Ended() bool {
	switch s {
	case Completed, Failed, Killed, Rejected:
		return true
	}
	return false
}

// programTo has the allowed transitions of a program. Staying in the same status is always
// allowed.
var programTo = map[Status][]Status{
	Pending:   {Starting, Failed, Killed, Rejected},
	Starting:  {Running, Suspended, Stopping, Completed, Failed, Killed},
	Running:   {Suspended, Stopping, Completed, Failed, Killed},
	Suspended: {Resuming, Stopping, Completed, Failed, Killed},
	Resuming:  {Running, Suspended, Stopping, Completed, Failed, Killed},
	Stopping:  {Completed, Failed, Killed},
}

// May reports whether a program may go from one status to another.
func (s Status) May(to Status) bool { return s == to || slices.Contains(programTo[s], to) }

// ClusterStatus is the status of a run's cluster.
type ClusterStatus string

// The statuses of a run's cluster (docs/spec/profiles.md §2).
const (
	Provisioning   ClusterStatus = "PROVISIONING"
	Provisioned    ClusterStatus = "PROVISIONED"
	Waiting        ClusterStatus = "WAITING"
	Deprovisioning ClusterStatus = "DEPROVISIONING"
	Deprovisioned  ClusterStatus = "DEPROVISIONED"
	Orphaned       ClusterStatus = "ORPHANED"
)

// ClusterStatuses lists all statuses.
var ClusterStatuses = []ClusterStatus{Provisioning, Provisioned, Waiting, Deprovisioning, Deprovisioned, Orphaned}

// Ended reports whether the status is final.
func (s ClusterStatus) Ended() bool { return s == Deprovisioned || s == Orphaned }

// clusterTo has the allowed transitions of a cluster. Staying in the same status is always
// allowed.
var clusterTo = map[ClusterStatus][]ClusterStatus{
	Provisioning:   {Provisioned, Deprovisioning, Deprovisioned, Orphaned},
	Provisioned:    {Waiting, Deprovisioning},
	Waiting:        {Deprovisioning, Orphaned},
	Deprovisioning: {Deprovisioned, Orphaned},
}

// May reports whether a run's cluster may go from one status to another.
func (s ClusterStatus) May(to ClusterStatus) bool {
	return s == to || slices.Contains(clusterTo[s], to)
}

// ClusterState is a run's cluster.
type ClusterState struct {
	Status ClusterStatus `json:"status"`
	// Name is known before the first request is made, so that whatever was made can be found by
	// it, even if no request was answered.
	Name string `json:"name,omitempty"`
	// ID is the cluster's id, if it is a cluster of this mesh.
	ID string `json:"id,omitempty"`
	// NumNodes is nil until the cluster is provisioned.
	NumNodes *int      `json:"numNodes"`
	Nodes    []RunNode `json:"nodes,omitempty"`
	// ExpiresAt is when a kept cluster is torn down, in Unix milliseconds; 0: not
	// automatically.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
	// End is in Unix seconds, and nil before the end.
	End *int64 `json:"end"`
	// Requested is when the cluster was first requested. It is stored before that, so nothing
	// can exist until then. Up and Down are when nodes first and last existed. All are Unix
	// milliseconds.
	Requested int64 `json:"requested,omitempty"`
	Up        int64 `json:"up,omitempty"`
	Down      int64 `json:"down,omitempty"`
	// Given is the provisioner's answer, for its next calls.
	Given *RunCluster `json:"given,omitempty"`
}

// RunOrphan describes a cluster that could not be torn down.
type RunOrphan struct {
	Since  int64  `json:"since"`
	Reason string `json:"reason"`
	// Retry is another attempt to tear it down.
	Retry *RunTask `json:"retry,omitempty"`
	// ClearedAt is when it was seen to be gone or removed from the list, in Unix milliseconds;
	// 0: it is on the list. Cleared records which of the two it was, by whom, and why.
	ClearedAt int64  `json:"clearedAt,omitempty"`
	Cleared   string `json:"cleared,omitempty"`
}

// Halt is an order to stop a program.
type Halt struct {
	// Keep keeps the nodes.
	Keep   bool   `json:"keepalive,omitempty"`
	Actor  string `json:"actor"`
	Reason string `json:"reason,omitempty"`
	// Status is the final status of the program.
	Status Status `json:"status"`
	At     int64  `json:"at"`
}

// Exit is the end of a program on a node.
type Exit struct {
	Step string `json:"step"`
	Node string `json:"node"`
	Code int    `json:"code"`
}

// Failure is the part of a run that failed.
type Failure string

// The failures of a run.
const (
	FailedProvisioning Failure = "provisioning"
	FailedProgram      Failure = "program"
)

// Run is one run of a program on a cluster of its own. It has copies of everything that it
// depends on, from the time of the request.
type Run struct {
	ID      string  `json:"id"`
	Tenant  string  `json:"tenant"`
	Program Program `json:"program"`
	// Profile is the profile's name with its scope. Its rules and the final properties are
	// copied below.
	Profile     string       `json:"profile"`
	Provisioner string       `json:"provisioner"`
	Properties  []Property   `json:"properties,omitempty"`
	KeepAlive   KeepAlive    `json:"keepalive,omitzero"`
	Timeout     model.Millis `json:"timeout"`
	// DeprovisionTimeout and Retries are those of the profile.
	DeprovisionTimeout model.Millis `json:"deprovisionTimeout"`
	Retries            int          `json:"retries,omitempty"`
	// Ignored are the overrides of locked properties.
	Ignored []string `json:"ignoredOverrides,omitempty"`
	// Runtime are the runtime arguments, Arguments those of the command line.
	Runtime   map[string]string `json:"runtime,omitempty"`
	Arguments []string          `json:"arguments,omitempty"`
	Schedule  string            `json:"schedule,omitempty"`
	// Due is when the schedule intended it to begin, in Unix milliseconds.
	Due   int64  `json:"due,omitempty"`
	Actor string `json:"actor"`

	Status   Status  `json:"status"`
	Message  string  `json:"message,omitempty"`
	Failure  Failure `json:"failure,omitempty"`
	ExitCode *int    `json:"exitCode,omitempty"`
	// Exits are the steps that ended with another code than 0, at most maxExits.
	Exits []Exit `json:"exits,omitempty"`
	Halt  *Halt  `json:"halt,omitempty"`

	Cluster ClusterState `json:"cluster"`
	Task    *RunTask     `json:"task,omitempty"`
	Orphan  *RunOrphan   `json:"orphan,omitempty"`
	// ProvisionOperation, Operation and DeprovisionOperation are the ids of the plans.
	ProvisionOperation   string `json:"provisionOperation,omitempty"`
	Operation            string `json:"operation,omitempty"`
	DeprovisionOperation string `json:"deprovisionOperation,omitempty"`

	// Times are Unix milliseconds; 0: not yet.
	Created int64 `json:"created"`
	Started int64 `json:"started,omitempty"`
	Ended   int64 `json:"ended,omitempty"`
	// Version is the index of the log entry that last changed the record. Events that are based
	// on an older version are ignored.
	Version uint64 `json:"version"`
}

const maxExits = 16

// alphabet is sorted, so that ids are in the order of their times.
var alphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewID returns the id of a run that is requested at a time in Unix milliseconds.
func NewID(now int64, random uint32) string {
	var b [10]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now)<<16)
	binary.BigEndian.PutUint32(b[6:], random)
	return alphabet.EncodeToString(b[:])
}

// ClusterName returns the name of a run's cluster. It depends on the run only.
func ClusterName(program, run string) string {
	name := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, program), "-")
	if len(name) > 20 {
		name = strings.TrimRight(name[:20], "-")
	}
	if name == "" {
		return "run-" + run
	}
	return "run-" + name + "-" + run
}

// New returns a run at its beginning, before the provisioner is asked. The caller sets further
// fields.
func New(id, tenant string, program Program, now int64) *Run {
	return &Run{
		ID: id, Tenant: tenant, Program: program, Status: Pending, Created: now,
		Cluster: ClusterState{Status: Provisioning, Name: ClusterName(program.Name, id)},
		Task:    &RunTask{Type: Provision, Status: RequestingCreate, Created: now},
	}
}

// Of copies the rules of its profile to a run.
func (r *Run) Of(p *Profile, l Levels) {
	r.Profile, r.Provisioner, r.KeepAlive, r.Retries = p.Ref().String(), p.Provisioner.Name, p.KeepAlive, p.Retries
	r.Timeout, r.DeprovisionTimeout = p.Timeout, p.DeprovisionTimeout
	if r.Timeout == 0 {
		r.Timeout = DefaultTimeout
	}
	if r.DeprovisionTimeout == 0 {
		r.DeprovisionTimeout = DefaultDeprovision
	}
	r.Properties, r.Ignored = p.Final(l)
}

// Reject ends a run that cannot begin, because a limit is reached.
func (r *Run) Reject(why string) {
	r.Status, r.Message, r.Ended = Rejected, why, r.Created
	r.Cluster.Status, r.Cluster.End, r.Task = Deprovisioned, new(int64), nil
	*r.Cluster.End = r.Created / 1000
}

// Over reports whether the run and its cluster have ended for good.
func (r *Run) Over() bool { return r.Status.Ended() && r.Cluster.Status.Ended() && r.current() == nil }

// Active reports whether the program has not ended.
func (r *Run) Active() bool { return !r.Status.Ended() }

// Up reports whether nodes of the run may exist, so that it counts for limits.
func (r *Run) Up() bool { return !r.Cluster.Status.Ended() }

// Lost reports whether the run is on the list of orphans.
func (r *Run) Lost() bool { return r.Orphan != nil && r.Orphan.ClearedAt == 0 }

// current returns the current task, or nil.
func (r *Run) current() *RunTask {
	if r.Orphan != nil && r.Orphan.Retry != nil && !r.Orphan.Retry.Status.Over() {
		return r.Orphan.Retry
	}
	if r.Task != nil && !r.Task.Status.Over() {
		return r.Task
	}
	return nil
}

// Nodes returns the number of nodes that the run has or had, or one if that is unknown.
func (r *Run) Nodes() int {
	if r.Cluster.NumNodes == nil || *r.Cluster.NumNodes == 0 {
		return 1
	}
	return *r.Cluster.NumNodes
}

// Fits checks that a provisioner can make the run's cluster, before it is asked: it knows the
// properties and meets the requirements.
func (r *Run) Fits(spec Spec, values map[string]string) error {
	if fs := spec.Validate(values); len(fs) > 0 {
		return fs
	}
	if unmet := Unmet(spec.Capabilities, r.Program.Requires); len(unmet) > 0 {
		return errors.New("the provisioner " + spec.Name + " does not have what the program requires: " + missing(unmet))
	}
	return nil
}
