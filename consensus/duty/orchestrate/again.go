package orchestrate

import (
	"errors"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/planner"
	"github.com/coopr/coopr/engine/solver"
)

// again gives the operation that follows this one's end where another layout is
// to be tried (docs/spec/planner.md, "Transactions" 10): after the rollback of the one
// that failed, or in the place of the deletion of a cluster that never was.
func again(v *state.View, op *model.Operation) (operation.Request, bool) {
	switch {
	case op.Type == model.OpCreate && op.Status == model.OpFailed && mustDelete(op):
		return operation.Again(op)
	case op.Type == model.OpRollback && op.Status == model.OpSucceeded:
		failed, ok := v.Operation(op.Tenant, op.Follows)
		if !ok || failed.Status != model.OpRolledBack {
			return operation.Request{}, false
		}
		req, ok := operation.Again(failed)
		if s, found := v.Snapshot(op.Tenant, op.Cluster, failed.Before+1); found && s.Operation == failed.ID {
			req.Provider = &s.State.Provider // with the fields that were given for it
		}
		return req, ok
	}
	return operation.Request{}, false
}

// mustDelete says that a create has ended so that its cluster is to go.
func mustDelete(op *model.Operation) bool {
	return op.Type == model.OpCreate && !op.Done && op.OnFailure == "delete" && (op.Status == model.OpFailed || op.Status == model.OpAborted)
}

// hopeless says that planning the same again would fail again.
func hopeless(err error) bool {
	return errors.As(err, new(model.Faults)) || errors.As(err, new(*planner.CycleError)) ||
		errors.As(err, new(*solver.Unsolvable)) || errors.Is(err, solver.ErrBudget)
}
