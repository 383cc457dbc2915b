package profile

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Status is where the program of a run stands.
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

// Statuses lists them.
var Statuses = []Status{Pending, Starting, Running, Suspended, Resuming, Stopping, Completed, Failed, Killed, Rejected}

// Ended reports whether the program is over.
func (s Status) Ended() bool {
	switch s {
	case Completed, Failed, Killed, Rejected:
		return true
	}
	return false
}

// programTo has the transitions of a program; to the same status is always allowed.
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

// ClusterStatus is where the cluster of a run stands.
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

// ClusterStatuses lists them.
var ClusterStatuses = []ClusterStatus{Provisioning, Provisioned, Waiting, Deprovisioning, Deprovisioned, Orphaned}

// Ended reports whether the status is final.
func (s ClusterStatus) Ended() bool { return s == Deprovisioned || s == Orphaned }

// clusterTo has the transitions of a cluster; to the same status is always allowed.
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
	// Name is known before the first request is made: by it whatever was made is
	// found, whether or not a request was answered.
	Name string `json:"name,omitempty"`
	// ID is the cluster's in this mesh, where it is one of ours.
	ID string `json:"id,omitempty"`
	// NumNodes is nil until the cluster is provisioned.
	NumNodes *int      `json:"numNodes"`
	Nodes    []RunNode `json:"nodes,omitempty"`
	// ExpiresAt is when a cluster that waits is torn down, Unix milliseconds; 0: not by
	// itself.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
	// End is in Unix seconds, and nil before the end.
	End *int64 `json:"end"`
	// Requested is when it was first asked for, written before it was: until then nothing
	// can be there. Up and Down are when nodes were there first and last. Unix milliseconds.
	Requested int64 `json:"requested,omitempty"`
	Up        int64 `json:"up,omitempty"`
	Down      int64 `json:"down,omitempty"`
	// Given is what the provisioner gave, for its next calls.
	Given *RunCluster `json:"given,omitempty"`
}

// RunOrphan is what is known of a cluster that could not be torn down.
type RunOrphan struct {
	Since  int64  `json:"since"`
	Reason string `json:"reason"`
	// Retry is another try to tear it down.
	Retry *RunTask `json:"retry,omitempty"`
	// ClearedAt is when it was seen to be gone, or was taken off the list, and Cleared
	// says which, by whom, and why. Unix milliseconds; 0: it is on the list.
	ClearedAt int64  `json:"clearedAt,omitempty"`
	Cleared   string `json:"cleared,omitempty"`
}

// Halt is an order to stop a program.
type Halt struct {
	// Keep keeps the nodes.
	Keep   bool   `json:"keepalive,omitempty"`
	Actor  string `json:"actor"`
	Reason string `json:"reason,omitempty"`
	// Status is what the program will have ended with.
	Status Status `json:"status"`
	At     int64  `json:"at"`
}

// Exit is how a program ended on a node.
type Exit struct {
	Step string `json:"step"`
	Node string `json:"node"`
	Code int    `json:"code"`
}

// Failure tells apart what failed.
type Failure string

// The failures of a run.
const (
	FailedProvisioning Failure = "provisioning"
	FailedProgram      Failure = "program"
)

// Run is one run of a program on a cluster of its own. All that it depends on is a
// copy of when it was asked for.
type Run struct {
	ID      string  `json:"id"`
	Tenant  string  `json:"tenant"`
	Program Program `json:"program"`
	// Profile is the profile's name with its scope; its rules and the final properties
	// are frozen here.
	Profile     string       `json:"profile"`
	Provisioner string       `json:"provisioner"`
	Properties  []Property   `json:"properties,omitempty"`
	KeepAlive   KeepAlive    `json:"keepalive,omitzero"`
	Timeout     model.Millis `json:"timeout"`
	// DeprovisionTimeout and Retries are the profile's.
	DeprovisionTimeout model.Millis `json:"deprovisionTimeout"`
	Retries            int          `json:"retries,omitempty"`
	// Ignored are the overrides of locked properties.
	Ignored []string `json:"ignoredOverrides,omitempty"`
	// Runtime are the runtime arguments, Arguments those of the command line.
	Runtime   map[string]string `json:"runtime,omitempty"`
	Arguments []string          `json:"arguments,omitempty"`
	Schedule  string            `json:"schedule,omitempty"`
	// Due is when the schedule meant it to begin, Unix milliseconds.
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
	// Version is the index of the entry that last changed the record. An event that
	// was made from an older one is ignored.
	Version uint64 `json:"version"`
}

const maxExits = 16

// alphabet is in order, so that ids are in the order of their times.
var alphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewID returns the id of a run that is asked for at a time (Unix milliseconds).
func NewID(now int64, random uint32) string {
	var b [10]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now)<<16)
	binary.BigEndian.PutUint32(b[6:], random)
	return alphabet.EncodeToString(b[:])
}

// ClusterName returns the name of a run's cluster: it follows from the run alone.
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

// New returns a run at its beginning: the provisioner is about to be asked. It is complete but
// for what the caller fills in.
func New(id, tenant string, program Program, now int64) *Run {
	return &Run{
		ID: id, Tenant: tenant, Program: program, Status: Pending, Created: now,
		Cluster: ClusterState{Status: Provisioning, Name: ClusterName(program.Name, id)},
		Task:    &RunTask{Type: Provision, Status: RequestingCreate, Created: now},
	}
}

// Of copies to a run what its profile says.
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

// Reject makes a run that begins one that does not: there is no room for it.
func (r *Run) Reject(why string) {
	r.Status, r.Message, r.Ended = Rejected, why, r.Created
	r.Cluster.Status, r.Cluster.End, r.Task = Deprovisioned, new(int64), nil
	*r.Cluster.End = r.Created / 1000
}

// Over reports whether nothing will come of the run any more.
func (r *Run) Over() bool { return r.Status.Ended() && r.Cluster.Status.Ended() && r.current() == nil }

// Active reports whether the program is not over yet.
func (r *Run) Active() bool { return !r.Status.Ended() }

// Up reports whether nodes of the run may exist, so that it counts for limits.
func (r *Run) Up() bool { return !r.Cluster.Status.Ended() }

// Lost reports whether the run is on the list of orphans.
func (r *Run) Lost() bool { return r.Orphan != nil && r.Orphan.ClearedAt == 0 }

// current returns the task that is being carried out, or nil.
func (r *Run) current() *RunTask {
	if r.Orphan != nil && r.Orphan.Retry != nil && !r.Orphan.Retry.Status.Over() {
		return r.Orphan.Retry
	}
	if r.Task != nil && !r.Task.Status.Over() {
		return r.Task
	}
	return nil
}

// Nodes returns how many nodes the run has or had; one where that is not known.
func (r *Run) Nodes() int {
	if r.Cluster.NumNodes == nil || *r.Cluster.NumNodes == 0 {
		return 1
	}
	return *r.Cluster.NumNodes
}

// Fits returns what stands in the way of making the run's cluster by a provisioner, before it
// is asked: properties that it does not take, and requirements that it does not meet.
func (r *Run) Fits(spec Spec, values map[string]string) error {
	if fs := spec.Validate(values); len(fs) > 0 {
		return fs
	}
	if unmet := Unmet(spec.Capabilities, r.Program.Requires); len(unmet) > 0 {
		return errors.New("the provisioner " + spec.Name + " does not have what the program requires: " + missing(unmet))
	}
	return nil
}
