package service

import (
	"context"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/recovery"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	decide "github.com/coopr/coopr/engine/recovery"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/rest"
)

// State reads this agent's copy of the replicated state.
type State struct {
	Supervisor Supervisor
}

// View returns the state at one moment, as fresh as c asks for. With another after than 0 it
// waits until the state is newer than that index or ctx ends.
func (s *State) View(ctx context.Context, c api.Consistency, after uint64) (rest.View, error) {
	m, err := voter(s.Supervisor)
	if err != nil {
		return nil, err
	}
	if c != api.Stale {
		if err := m.Fresh(ctx, c == api.Default); err != nil {
			return nil, err
		}
	}
	if after > 0 {
		m.Machine.WaitNewer(ctx, after)
	}
	return view{View: m.Machine.View(), member: m}, nil
}

// Follow calls fn with the changes after an index until ctx ends or fn fails. It calls fn
// without events first.
func (s *State) Follow(ctx context.Context, tenant string, after uint64, fn func([]model.Event) error) error {
	m, err := voter(s.Supervisor)
	if err != nil {
		return err
	}
	if err := fn(nil); err != nil {
		return err
	}
	// A member that was shut down applies no more changes. Its readers connect again.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.Group.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	return m.Machine.Follow(ctx, tenant, after, fn)
}

// RefuseCopies writes that a request was refused. In a mesh with voters that do not know how, nothing is written.
func (s *State) RefuseCopies(ctx context.Context, who model.Caller, code problem.Code) (done bool, err error) {
	m, _, err := leader(s.Supervisor)
	if err != nil || !m.Machine.View().Understands(logformat.RefuseLevel) {
		return false, err
	}
	a, err := propose(ctx, s.Supervisor, who, &pb.Command{Change: &pb.Command_RefuseCopies{
		RefuseCopies: &pb.RefuseCopies{Code: string(code)},
	}})
	return a.Repeated, err
}

// view is a view of the state with the values that the API computes from it.
type view struct {
	*state.View
	member *member.Member // nil if the age does not matter
}

// Age returns how long ago this agent last heard from the leader. It is 0 if this agent leads.
func (v view) Age() (age time.Duration, ok bool) {
	if v.member.Group.IsLeader() {
		return 0, true
	}
	at := v.member.Group.Stats().LastContact
	return time.Since(at), !at.IsZero()
}

// Answered returns the result of a write that was carried out with the caller's request id.
func (v view) Answered(who model.Caller) (api.Written, bool) {
	r, ok := v.View.Answered(who)
	if !ok {
		return api.Written{}, false
	}
	return written(state.Answer{Index: r.Index, Repeated: true, Effect: r.Effect}), true
}

// Links returns a cluster's links whose macros can be expanded.
func (v view) Links(c *model.Cluster) []model.Link {
	return operation.Links(c, v.Nodes(c.Tenant, c.ID))
}

// Nodes returns nodes with their health and the reason why recovery leaves them alone now.
func (v view) Nodes(tenant, cluster string) []*model.Node {
	nodes := v.View.Nodes(tenant, cluster)
	waits := map[string]map[string]string{} // by cluster
	for i, n := range nodes {
		if waits[n.Cluster] == nil {
			waits[n.Cluster] = v.waits(n.Tenant, n.Cluster)
		}
		nodes[i] = v.withHealth(n, waits[n.Cluster])
	}
	return nodes
}

// Node returns a node with its health.
func (v view) Node(tenant, id string) (*model.Node, bool) {
	n, ok := v.View.Node(tenant, id)
	if ok {
		n = v.withHealth(n, v.waits(n.Tenant, n.Cluster))
	}
	return n, ok
}

func (v view) withHealth(n *model.Node, waits map[string]string) *model.Node {
	h := v.Health(n.Tenant, n.ID)
	if h == nil {
		return n
	}
	out, shown := *n, *h
	shown.Waits = waits[n.ID]
	out.Health = &shown
	return &out
}

// waits returns why recovery leaves the failing nodes of a cluster alone now, by node.
func (v view) waits(tenant, cluster string) map[string]string {
	out := map[string]string{}
	if cl, ok := v.Cluster(tenant, cluster); ok {
		if s, ok := recovery.Snapshot(v.View, cl, time.Now().UnixMilli()); ok {
			for _, w := range decide.Decide(s).Waits {
				out[w.Node] = w.Why
			}
		}
	}
	return out
}

// Plans returns a cluster's plans. Every cluster has a recovery plan, before the one that
// decommissions it.
func (v view) Plans(tenant, cluster string) []api.Plan {
	var out []api.Plan
	recovers := false
	for _, p := range v.View.Plans(tenant, cluster) {
		recovers = recovers || p.Name == model.RecoveryPlan
		if p.Name == model.DecommissionPlan && !recovers {
			out, recovers = append(out, api.Plan{Name: model.RecoveryPlan}), true
		}
		out = append(out, api.Plan{Name: p.Name, Operation: p.Operation.ID})
	}
	if !recovers {
		out = append(out, api.Plan{Name: model.RecoveryPlan})
	}
	for _, p := range v.View.CustomPlans(tenant, cluster) {
		c := api.Plan{Name: p.Name, Custom: true}
		if p.Operation != nil {
			c.Operation, c.Over = p.Operation.ID, p.Operation.Status.Ended()
		}
		out = append(out, c)
	}
	return out
}

// CustomTree returns a plan of a cluster's template that was not run yet.
func (v view) CustomTree(tenant, cluster, plan string) (*tree.View, bool) {
	return v.View.CustomTree(tenant, cluster, plan, time.Now().UnixMilli())
}

// PlanTree returns the plan of an operation as it is now.
func (v view) PlanTree(tenant, operation string) (*tree.View, bool) {
	return v.View.PlanTree(tenant, operation, time.Now().UnixMilli())
}
