package agent

import (
	"context"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// beside starts an operation that runs beside others of its cluster.
func (b *backend) beside(ctx context.Context, l *member.Leadership, who model.Caller, cluster string, req api.Operate) (api.Started, error) {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return api.Started{}, problem.NoLeader
	}
	v := m.Machine.View()
	cl, ok := v.Cluster(who.Tenant, cluster)
	if !ok {
		return api.Started{}, problem.New(problem.NotFound, "there is no cluster %q", cluster)
	}
	units, err := operation.Units(req.Type, operation.Standing{Cluster: cl, Nodes: v.LiveNodes(cl)}, v.ClusterHealth(cl.Tenant, cl.ID), req.Change.NodeNames, req.Services)
	if err != nil {
		return api.Started{}, err
	}
	var p *operation.Prepared
	var ans state.Answer
	if req.DryRun {
		p, err = l.Orchestrator.PrepareBeside(who, cl.ID, req.Type, units)
	} else {
		p, ans, err = l.Orchestrator.Beside(ctx, who, cl.ID, req.Type, units)
	}
	if err != nil {
		return api.Started{}, err
	}
	return started(p, ans), nil
}
