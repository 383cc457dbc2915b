package orchestrate

import (
	"context"
	"errors"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
)

// stale is how many times an operation is planned, at most, if its cluster changes during each
// attempt to plan it.
const stale = 5

// StartConcurrent prepares and starts an operation that runs concurrently with the cluster's
// main operation.
func (o *Orchestrator) StartConcurrent(ctx context.Context, who model.Caller, cluster string, op model.OperationType,
	units []operation.Unit) (*operation.Prepared, state.Answer, error) {
	for try := 1; ; try++ {
		v := o.cfg.Machine.View()
		if p, ans, ok, err := Repeated(v, who); ok {
			return p, ans, err
		}
		p, err := o.PrepareConcurrent(who, cluster, op, units)
		if err != nil {
			return nil, state.Answer{}, err
		}
		ans, err := o.start(ctx, who, p)
		if errors.Is(err, problem.Stale) && try < stale {
			continue
		}
		return o.outcome(who, p, ans, err)
	}
}

// PrepareConcurrent prepares an operation that runs concurrently with the cluster's main
// operation.
func (o *Orchestrator) PrepareConcurrent(who model.Caller, cluster string, op model.OperationType,
	units []operation.Unit) (*operation.Prepared, error) {
	v := o.cfg.Machine.View()
	cl, ok := v.Cluster(who.Tenant, cluster)
	if !ok {
		return nil, problem.New(problem.NotFound, "there is no cluster %q", cluster)
	}
	p, err := operation.Concurrent(who, op, units, operation.Input{Cluster: cl, Nodes: v.PresentNodes(cl), Gone: v.Gone(cl)}, nextID(cl))
	if err == nil {
		err = o.permit(who, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// nextID returns the id of the cluster's next operation.
func nextID(cl *model.Cluster) string {
	return string(model.ClusterID(cl.ID).Operation(cl.Operations + 1))
}
