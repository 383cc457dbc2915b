package state

import (
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Tally counts what the entries of a batch began and ended, for metrics. The state does not depend on it.
type Tally struct {
	Tasks      map[TaskEnd]int             // attempts whose end was recorded
	Operations map[OperationEnd]int        // operations that ended
	Recoveries map[model.OperationType]int // operations that the recovery controller started
	GivenUp    int                         // nodes on which recovery stopped trying
}

// TaskEnd is a way in which attempts end.
type TaskEnd struct {
	Action  model.Action
	Outcome string // "succeeded", "returned", or the outcome that the plugin reported
}

// OperationEnd is a way in which operations end.
type OperationEnd struct {
	Type   model.OperationType
	Status model.OperationStatus
}

// task counts the end of an attempt that a worker reported.
func (t *Tally) task(action model.Action, r *pb.Report, out *pb.Outputs) {
	end := TaskEnd{action, "succeeded"}
	switch {
	case r.Started:
		return
	case r.Returned:
		end.Outcome = "returned"
	case out != nil && out.Outcome != pb.Outcome_OUTCOME_SUCCEEDED && out.Outcome != pb.Outcome_OUTCOME_UNSPECIFIED:
		end.Outcome = outcomeName(out.Outcome)
	}
	if t.Tasks == nil {
		t.Tasks = map[TaskEnd]int{}
	}
	t.Tasks[end]++
}

// operation counts an operation if it ends now.
func (t *Tally) operation(op *model.Operation, now int64) {
	if !op.Status.Ended() || op.EndedAt != now {
		return
	}
	if t.Operations == nil {
		t.Operations = map[OperationEnd]int{}
	}
	t.Operations[OperationEnd{op.Type, op.Status}]++
}

// recovery counts the start of an operation of the recovery controller.
func (t *Tally) recovery(op *model.Operation) {
	if t.Recoveries == nil {
		t.Recoveries = map[model.OperationType]int{}
	}
	t.Recoveries[op.Type]++
}

// health counts a node on which recovery stopped trying. before is its health until now, or nil.
func (t *Tally) health(before, now *model.NodeHealth) {
	if now.Abandoned() && !before.Abandoned() {
		t.GivenUp++
	}
}
