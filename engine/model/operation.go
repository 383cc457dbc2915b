package model

// OperationType is the type of an operation on a cluster.
type OperationType string

// The operations (docs/spec/planner.md, "Operations").
const (
	OpCreate    OperationType = "create"
	OpDelete    OperationType = "delete"
	OpStart     OperationType = "start"
	OpStop      OperationType = "stop"
	OpRestart   OperationType = "restart"
	OpConfigure OperationType = "configure"

	OpGrow           OperationType = "grow"
	OpShrink         OperationType = "shrink"
	OpAddServices    OperationType = "add-services"
	OpRemoveServices OperationType = "remove-services"
	OpUpgrade        OperationType = "upgrade"
	OpReplaceNode    OperationType = "replace-node"
	OpSyncTemplate   OperationType = "sync-template"
	OpRollback       OperationType = "rollback"

	// OpRecover restarts services of nodes. OpPauseNode stops them until OpResumeNode starts
	// them again (docs/spec/plans.md §8, §9).
	OpRecover    OperationType = "recover"
	OpPauseNode  OperationType = "pause-node"
	OpResumeNode OperationType = "resume-node"
	// OpRecreateNode replaces the machines of nodes while another operation of the cluster, which is not at work on them, is open.
	// The new machines get the services that the former ones had, in the same versions.
	OpRecreateNode OperationType = "recreate-node"
	// OpPlan runs one of the template's own plans, which an operator starts
	// (docs/spec/plans.md §4).
	OpPlan OperationType = "plan"
	// OpRun runs a program on the cluster that was made for it (docs/spec/profiles.md).
	OpRun OperationType = "run"
)

// Concurrent reports whether operations of this type run concurrently with others of their
// cluster. They do not change its layout, configuration or status.
func (t OperationType) Concurrent() bool {
	return t == OpRecover || t == OpPauseNode || t == OpResumeNode || t == OpPlan || t == OpRun || t == OpRecreateNode
}

// Replaces reports whether operations of this type replace the machines of nodes.
func (t OperationType) Replaces() bool { return t == OpReplaceNode || t == OpRecreateNode }

// DecommissionPlan is the name of the plan that removes nodes.
const DecommissionPlan = "decommission"

// RecoveryPlan is the name of the plan of automatic recovery.
const RecoveryPlan = "recovery"

// OperationStatus is the status of an operation (docs/architecture.md, "An operation").
type OperationStatus string

// The statuses of an operation.
const (
	OpAccepted    OperationStatus = "accepted"
	OpRunning     OperationStatus = "running"
	OpPaused      OperationStatus = "paused"
	OpAborting    OperationStatus = "aborting"
	OpRollingBack OperationStatus = "rolling-back"
	OpSucceeded   OperationStatus = "succeeded"
	OpFailed      OperationStatus = "failed"
	OpAborted     OperationStatus = "aborted"
	OpRolledBack  OperationStatus = "rolled-back"
	OpSuperseded  OperationStatus = "superseded"
)

// Ended reports whether the status is final.
func (s OperationStatus) Ended() bool {
	switch s {
	case OpSucceeded, OpFailed, OpAborted, OpRolledBack, OpSuperseded:
		return true
	}
	return false
}

// Operation is one operation on a cluster, from request to end.
type Operation struct {
	ID      string          `json:"id"`
	Tenant  string          `json:"tenant"`
	Cluster string          `json:"cluster"`
	Type    OperationType   `json:"type"`
	Status  OperationStatus `json:"status"`
	Message string          `json:"message,omitempty"`
	Actor   string          `json:"actor"`
	Request string          `json:"request,omitempty"`
	// Services limit the operation, or, if it is of the type recreate-node, have an address of its nodes in their configuration.
	Services []string `json:"services,omitempty"`
	// Config is the configuration that the operation applies (configure).
	Config map[string]any `json:"config,omitempty"`
	// Priority orders the tasks of operations: higher goes first, 0 is the default.
	Priority int `json:"priority,omitempty"`
	// Plan is the name under which the operation's plan is shown; "": that of its type.
	Plan string `json:"plan,omitempty"`
	// Follows is the operation that this one undoes, cleans up after or tries again.
	Follows string `json:"follows,omitempty"`
	// OnFailure is what happens when a task is out of attempts: "rollback", "pause", "leave", or "delete" (create).
	OnFailure string `json:"onFailure,omitempty"`
	// Retry describes how the operation is tried again if it fails for good; nil: it is not.
	Retry *Retry `json:"retry,omitempty"`
	// Before is the number of the cluster's snapshot that was taken before the operation; 0:
	// the cluster was new. An operation that superseded another one has that one's.
	Before int `json:"before,omitempty"`
	// Done is true if the operation has succeeded once and continues because an operator
	// restarted a part of it. Its result stays, whatever happens to that part.
	Done bool `json:"done,omitempty"`
	// Undo is true if the operation is to be rolled back once none of its tasks runs any more.
	Undo bool `json:"undo,omitempty"`
	// Parameters are the values that an operator passed when starting the plan.
	Parameters map[string]string `json:"parameters,omitempty"`
	// To is the number of the snapshot that a rollback returns to.
	To int `json:"to,omitempty"`
	// Resources is the number of the set of plugin resources that it was planned with; 0: none.
	Resources uint64 `json:"resources,omitempty"`
	// Skipped are the ids of the nodes that the operation leaves out because their machines are
	// gone. They are left to recovery, or to a person.
	Skipped []string `json:"skipped,omitempty"`
	// Restored is true if the operation had not ended in the archive from which the state was restored, or follows such
	// an operation: its tasks may have been done after the archive was written.
	Restored bool `json:"restored,omitempty"`
	// SupersededBy is the id of the operation that takes this one's place once the tasks that run have ended.
	SupersededBy string `json:"supersededBy,omitempty"`
	// Times are Unix milliseconds; zero: not yet.
	CreatedAt int64 `json:"createTime"`
	EndedAt   int64 `json:"endTime,omitempty"`
	// Version is the index of the log entry that last changed the operation's record.
	Version uint64 `json:"version"`
}

// Retry describes how a failed operation is tried again with another layout
// (docs/spec/planner.md, "Transactions" 10).
type Retry struct {
	// Left is the number of layouts that may still be tried.
	Left int `json:"left"`
	// Tried are the layouts of the whole cluster that have been tried, this operation's last.
	Tried []Layout `json:"tried,omitempty"`
	// Nodes, HardwareType, ImageType and Comparator are those of the request.
	Nodes        int    `json:"nodes,omitempty"`
	HardwareType string `json:"hardwaretype,omitempty"`
	ImageType    string `json:"imagetype,omitempty"`
	Comparator   string `json:"comparator,omitempty"`
	Rollout
}

// MostRetries is the highest number of layouts to try after the first.
const MostRetries = 10

// TaskStatus is the status of a task of a plan (docs/architecture.md, "A task").
type TaskStatus uint8

// The statuses of a task.
const (
	TaskBlocked TaskStatus = iota
	TaskReady
	TaskLeased
	TaskRunning
	TaskSucceeded
	TaskFailed
	TaskCancelled
	TaskUncertain
)

var taskStatusNames = [...]string{"blocked", "ready", "leased", "running", "succeeded", "failed", "cancelled", "uncertain"}

// TaskStatuses is the number of statuses.
const TaskStatuses = len(taskStatusNames)

// String returns the status in lower case.
func (s TaskStatus) String() string {
	if int(s) < len(taskStatusNames) {
		return taskStatusNames[s]
	}
	return "unknown"
}

// MarshalText writes the status in lower case.
func (s TaskStatus) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the status in lower case.
func (s *TaskStatus) UnmarshalText(b []byte) error {
	for i, n := range taskStatusNames {
		if n == string(b) {
			*s = TaskStatus(i)
			return nil
		}
	}
	return &Fault{Message: "unknown task status " + string(b)}
}

// Ended reports whether the status is final.
func (s TaskStatus) Ended() bool { return s == TaskSucceeded || s == TaskFailed || s == TaskCancelled }

// Held reports whether a worker holds the task's lease.
func (s TaskStatus) Held() bool { return s == TaskLeased || s == TaskRunning }
