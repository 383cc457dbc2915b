package orchestrate

import (
	"errors"
	"slices"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/planner"
	"github.com/coopr/coopr/engine/solver"
)

// retryOf returns the operation that tries another layout after op has ended, if one
// is to be tried (docs/spec/planner.md, "Transactions" 10): after the rollback of a
// failed operation, or instead of deleting a cluster whose creation failed.
func retryOf(v *state.View, op *model.Operation) (operation.Request, bool) {
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
			req.Provider = &s.State.Provider // with the fields that its request gave
		}
		return req, ok
	}
	return operation.Request{}, false
}

// mustDelete reports whether a create ended in such a way that its cluster has to be
// deleted.
func mustDelete(op *model.Operation) bool {
	return op.Type == model.OpCreate && !op.Done && op.OnFailure == "delete" && (op.Status == model.OpFailed || op.Status == model.OpAborted)
}

// gone returns the nodes of a cluster whose machines no longer exist, by id.
func gone(v *state.View, cl *model.Cluster) map[string]bool {
	out := map[string]bool{}
	for id, h := range v.ClusterHealth(cl.Tenant, cl.ID) {
		if h.Machine == model.MachineGone {
			out[id] = true
		}
	}
	return out
}

// metGone reports whether an operation is a rollback that failed on a machine of which it became
// known only afterwards that it is gone. The next rollback leaves that node out.
func metGone(v *state.View, op *model.Operation) bool {
	s, ok := v.Plan(op.ID)
	cl, known := v.Cluster(op.Tenant, op.Cluster)
	if op.Type != model.OpRollback || op.Status != model.OpFailed || !ok || !known {
		return false
	}
	gone := gone(v, cl)
	for u := range s.Graph.Len() {
		id := s.Graph.NodeID(u)
		if s.Status(uint32(u)) == model.TaskFailed && gone[id] && !slices.Contains(op.Skipped, id) {
			return true
		}
	}
	return false
}

// hopeless reports whether planning the same again would fail in the same way.
func hopeless(err error) bool {
	return errors.As(err, new(model.Faults)) || errors.As(err, new(*planner.CycleError)) ||
		errors.As(err, new(*solver.Unsolvable)) || errors.Is(err, solver.ErrBudget)
}
