package orchestrate

import (
	"context"
	"errors"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
)

// Custom creates an operation from a plan of the cluster's template. The operation is held back
// until a user starts it.
func (o *Orchestrator) Custom(ctx context.Context, who model.Caller, cluster, name string) (*operation.Prepared, state.Answer, error) {
	who.Request = "" // the order that starts the operation carries it
	for try := 1; ; try++ {
		v := o.cfg.Machine.View()
		cl, ok := v.Cluster(who.Tenant, cluster)
		if !ok {
			return nil, state.Answer{}, problem.New(problem.NotFound, "there is no cluster %q", cluster)
		}
		p, err := operation.Custom(who, name, operation.Input{Cluster: cl, Nodes: v.Nodes(cl.Tenant, cl.ID)}, nextID(cl))
		if err == nil {
			err = o.permit(who, p)
		}
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
