package agent

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/recovery"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	decide "github.com/coopr/coopr/engine/recovery"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
)

// backend is the agent as its API sees it.
type backend struct{ *Agent }

var _ server.Backend = (*backend)(nil)

// Serves says whether this agent answers a request itself.
func (b *backend) Serves(stale bool) bool {
	if _, _, ok := b.supervisor.Leader(); ok {
		return true
	}
	m := b.supervisor.Member()
	return stale && m != nil && m.Group.Member()
}

// LeaderTransport reaches the leader's API over the peer network.
func (b *backend) LeaderTransport() server.Transport { return toLeader{b.Agent} }

type toLeader struct{ a *Agent }

// RoundTripToLeader sends one request to whoever leads.
func (t toLeader) RoundTripToLeader(ctx context.Context, method, uri string, header map[string][]string, body io.Reader) (int, map[string][]string, io.ReadCloser, error) {
	find, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, addr, err := t.a.locator.AwaitLeader(find)
	if err != nil {
		return 0, nil, nil, problem.Wrap(problem.NoLeader, err)
	}
	if id == t.a.id {
		// We have just been elected: our own duties may not run yet.
		return 0, nil, nil, problem.New(problem.NoLeader, "this agent is becoming it")
	}
	under, cancel := t.a.locator.WhileLeads(ctx, id)
	req, err := http.NewRequestWithContext(under, method, "http://"+addr+uri, body)
	if err != nil {
		cancel()
		return 0, nil, nil, err
	}
	req.Header = header
	res, err := t.a.net.forward.RoundTrip(req)
	if err != nil {
		moved := errors.Is(context.Cause(under), member.ErrMoved)
		cancel()
		switch {
		case ctx.Err() != nil:
			return 0, nil, nil, ctx.Err()
		case errors.Is(err, errNotReached):
			return 0, nil, nil, problem.New(problem.NoLeader, "agent %s at %s: %w", id, addr, err)
		case moved:
			err = member.ErrMoved
		}
		// It may have had the request, and have done what it asked.
		return 0, nil, nil, fmt.Errorf("agent %s at %s: %w", id, addr, err)
	}
	return res.StatusCode, res.Header, &underLeader{res.Body, cancel}, nil
}

// underLeader is an answer that ends with its leader's reign.
type underLeader struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close ends the request.
func (u *underLeader) Close() error {
	u.cancel()
	return u.ReadCloser.Close()
}

// Authenticate says whose token it is.
func (b *backend) Authenticate(_ context.Context, token string) (model.Caller, error) {
	if b.token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(b.token)) == 1 {
		actor := "root"
		if b.cfg.Dev {
			actor = "dev"
		}
		return model.Caller{Tenant: member.FirstTenant, Actor: actor, Role: model.RoleSuperadmin}, nil
	}
	if m := b.supervisor.Member(); m != nil && token != "" {
		sum := sha256.Sum256([]byte(token))
		if t, ok := m.Machine.View().TokenByHash(hex.EncodeToString(sum[:])); ok {
			return model.Caller{Tenant: t.Tenant, Actor: t.Actor, Role: t.Role}, nil
		}
	}
	return model.Caller{}, problem.Unauthorized
}

// View reads the state.
func (b *backend) View(ctx context.Context, c api.Consistency, after uint64) (server.View, error) {
	m := b.supervisor.Member()
	if m == nil {
		return nil, problem.NoLeader
	}
	if c != api.Stale {
		if err := m.Fresh(ctx, c == api.Default); err != nil {
			return nil, err
		}
	}
	if after > 0 {
		m.Machine.WaitNewer(ctx, after)
	}
	return view{m.Machine.View()}, nil
}

// view adds what the API wants to see beyond the tables.
type view struct{ *state.View }

func (v view) Links(c *model.Cluster) []model.Link {
	return operation.Links(c, v.Nodes(c.Tenant, c.ID))
}

// Nodes gives nodes with their health, and why nothing is done about it now.
func (v view) Nodes(tenant, cluster string) []*model.Node {
	nodes := v.View.Nodes(tenant, cluster)
	why := map[string]map[string]string{} // by cluster
	for i, n := range nodes {
		if why[n.Cluster] == nil {
			why[n.Cluster] = v.waits(n.Tenant, n.Cluster)
		}
		nodes[i] = v.withHealth(n, why[n.Cluster])
	}
	return nodes
}

// Node gives a node with its health.
func (v view) Node(tenant, id string) (*model.Node, bool) {
	n, ok := v.View.Node(tenant, id)
	if ok {
		n = v.withHealth(n, v.waits(n.Tenant, n.Cluster))
	}
	return n, ok
}

func (v view) withHealth(n *model.Node, why map[string]string) *model.Node {
	h := v.Health(n.Tenant, n.ID)
	if h == nil {
		return n
	}
	out, shown := *n, *h
	shown.Waits = why[n.ID]
	out.Health = &shown
	return &out
}

// waits says why recovery does nothing about a cluster's failing nodes now, by node.
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

// Plans gives a cluster's plans.
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

// CustomTree gives a plan of the template that was not run yet.
func (v view) CustomTree(tenant, cluster, plan string) (*tree.View, bool) {
	return v.View.CustomTree(tenant, cluster, plan, time.Now().UnixMilli())
}

// PlanTree gives a plan as it is now.
func (v view) PlanTree(tenant, operation string) (*tree.View, bool) {
	return v.View.PlanTree(tenant, operation, time.Now().UnixMilli())
}

// Events gives the changes after an index.
func (b *backend) Events(ctx context.Context, tenant string, after uint64, fn func([]model.Event) error) error {
	m := b.supervisor.Member()
	if m == nil {
		return problem.NoLeader
	}
	if err := fn(nil); err != nil { // the reader is connected
		return err
	}
	// A member that is shut down gives no more events: its readers ask anew.
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
