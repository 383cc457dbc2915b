package service

import (
	"context"
	"errors"
	"slices"

	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// recreate carries out an order to replace nodes while another operation of their cluster is open, and reports whether one is. Nodes
// that an operation is about to replace already are left to it.
func recreate(ctx context.Context, o *orchestrate.Orchestrator, who model.Caller, v *state.View, cluster string, req api.Operate) (
	st api.Started, open bool, err error) {
	cl, ok := v.Cluster(who.Tenant, cluster)
	if !ok {
		return api.Started{}, false, nil
	}
	if main, ok := v.Operation(cl.Tenant, cl.Operation); !ok || main.Status.Ended() {
		return api.Started{}, false, nil
	}
	units, err := operation.Whole(operation.Input{Cluster: cl, Nodes: v.PresentNodes(cl)}, req.Change.NodeNames)
	if err != nil {
		return api.Started{}, true, err
	}
	var by *model.Operation
	units = slices.DeleteFunc(units, func(u operation.Unit) bool {
		for _, op := range v.ActiveOperations() {
			if s, kept := v.Plan(op.ID); kept && op.Cluster == cl.ID && op.Tenant == cl.Tenant && replaces(op, s, u.Node) {
				by = op
				return true
			}
		}
		return false
	})
	switch {
	case len(units) == 0 && by != nil:
		return api.Started{Operation: *by, Cluster: *cl, Written: api.Written{Index: v.Index()}}, true, nil
	case req.DryRun:
		p, err := o.PreviewConcurrent(who, cl.ID, model.OpRecreateNode, units)
		if err != nil {
			return api.Started{}, true, err
		}
		return started(p, state.Answer{}), true, nil
	}
	p, ans, err := o.StartConcurrent(ctx, who, cl.ID, model.OpRecreateNode, units)
	switch {
	case errors.Is(err, problem.Stale):
		return api.Started{}, false, nil // it has ended meanwhile
	case err != nil:
		return api.Started{}, true, err
	}
	return started(p, ans), true, nil
}
