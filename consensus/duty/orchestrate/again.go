package orchestrate

import (
	"errors"
	"slices"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
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

// metGone reports whether an operation is a rollback that failed on a machine of which it became
// known only afterwards that it is gone. The next rollback leaves that node out.
func metGone(v *state.View, op *model.Operation) bool {
	s, ok := v.Plan(op.ID)
	cl, known := v.Cluster(op.Tenant, op.Cluster)
	if op.Type != model.OpRollback || op.Status != model.OpFailed || !ok || !known {
		return false
	}
	gone := v.Gone(cl)
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

// lost returns the parameters of the latest replacement of a node by a plan of the template, which are about the node that was lost, if
// neither it nor an operation since has started this service there. Otherwise it returns nil.
func lost(v *state.View, cl *model.Cluster, node, service string) map[string]string {
	for _, op := range v.Operations(cl.Tenant, cl.ID) {
		s, kept := v.Plan(op.ID)
		if !kept {
			continue
		}
		starts, done := false, true
		for _, u := range s.Graph.On(node) {
			if s.Graph.ServiceName(int(u)) == service && !s.Inherited(u) {
				starts = starts || s.Graph.Action[u] == model.Start
				done = done && s.Status(u) == model.TaskSucceeded
			}
		}
		switch {
		case starts && done:
			return nil
		case starts && op.Type.Replaces() && op.Parameters[operation.OldHost] != "" && deletes(s.Graph, node):
			return op.Parameters
		}
	}
	return nil
}

// deletes reports whether a plan deletes the machine of a node.
func deletes(g *plan.Graph, node string) bool {
	return slices.ContainsFunc(g.On(node), func(u uint32) bool { return g.Action[u] == model.Delete })
}
