package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// BeginPlan begins a run of a plan of a cluster's template.
func (b *backend) BeginPlan(ctx context.Context, who model.Caller, cluster, plan string) (string, api.Written, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return "", api.Written{}, problem.NoLeader
	}
	p, ans, err := l.Orchestrator.Custom(ctx, who, cluster, plan)
	if err != nil {
		return "", api.Written{}, err
	}
	return p.Operation.ID, api.Written{Index: ans.Index}, nil
}

// Explain says what the waiting steps of an operation's plan wait for. What
// workers have to do with is known by the leader only.
func (b *backend) Explain(ctx context.Context, tenant, operation string, steps int) (*tree.Explanation, error) {
	m := b.supervisor.Member()
	if m == nil {
		return nil, problem.NoLeader
	}
	v, now := m.Machine.View(), time.Now().UnixMilli()
	op, ok := v.Operation(tenant, operation)
	t, has := v.PlanTree(tenant, operation, now)
	s, kept := v.Plan(operation)
	if !ok || !has || !kept {
		return nil, problem.New(problem.NotFound, "the plan of operation %s is not kept any more", operation)
	}
	return t.Explain(s, steps, now, func(tasks []uint32) map[uint32]tree.Wait {
		out := map[uint32]tree.Wait{}
		if l, ok := m.Leadership(); ok {
			if why, err := l.Dispatcher.Why(ctx, operation, tasks); err == nil {
				out = why
			}
		}
		for _, u := range tasks {
			if p, ok := v.Elsewhere(op, s.Graph.NodeID(int(u))); ok {
				out[u] = tree.Wait{Kind: tree.WaitsPlan, What: p.Operation.ID, Text: fmt.Sprintf("plan %s (operation %s) is at work on its node", p.Name, p.Operation.ID)}
			}
		}
		return out
	}), nil
}
