package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// propose commits one command for a caller.
func (b *backend) propose(ctx context.Context, who model.Caller, c *pb.Command) (api.Written, error) {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return api.Written{}, problem.NoLeader
	}
	c.Tenant, c.Actor, c.RequestId = who.Tenant, who.Actor, who.Request
	answers, err := m.Propose(ctx, c)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return api.Written{}, err
	}
	return api.Written{Index: answers[0].Index, Repeated: answers[0].Repeated}, nil
}

// PutDefinitions lints and writes definitions, all or none.
func (b *backend) PutDefinitions(ctx context.Context, who model.Caller, defs []model.StoredDefinition, createOnly bool) (api.Written, error) {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return api.Written{}, problem.NoLeader
	}
	list := make([]model.Definition, len(defs))
	put := &pb.PutDefinitions{CreateOnly: createOnly}
	for i, d := range defs {
		var err error
		if list[i], err = model.Restore(d.Kind, d.Body); err != nil {
			return api.Written{}, err
		}
		put.Definitions = append(put.Definitions, &pb.Definition{Kind: string(d.Kind), Name: d.Name, Body: d.Body})
	}
	faults, warnings := model.Lint(list, orchestrate.Lookup(m.Machine.View(), who.Tenant), checkMacros)
	judged, unasked := b.judgeActions(ctx, list, faults)
	faults, warnings = append(faults, judged...), append(warnings, unasked...)
	if len(faults) > 0 {
		return api.Written{Warnings: warnings}, faults
	}
	w, err := b.propose(ctx, who, &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: put}})
	w.Warnings = warnings
	return w, err
}

// checkMacros says whether the macros of a text are written as they should be.
func checkMacros(text string) error { return macro.Check(text) }

// DeleteDefinition deletes a definition, or one version of it.
func (b *backend) DeleteDefinition(ctx context.Context, who model.Caller, kind model.Kind, name string, version int) (api.Written, error) {
	return b.propose(ctx, who, &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
		Delete: []*pb.DefinitionVersion{{Kind: string(kind), Name: name, Version: int32(version)}},
	}}})
}

// PutTenant writes a tenant.
func (b *backend) PutTenant(ctx context.Context, who model.Caller, t model.Tenant, createOnly bool) (api.Written, error) {
	put, err := logformat.PutTenant(&t, createOnly)
	if err != nil {
		return api.Written{}, err
	}
	return b.propose(ctx, who, &pb.Command{Change: put})
}

// DeleteTenant deletes a tenant that has no clusters.
func (b *backend) DeleteTenant(ctx context.Context, who model.Caller, name string) (api.Written, error) {
	return b.propose(ctx, who, &pb.Command{Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: name}}})
}

// CreateToken makes a token and keeps its hash.
func (b *backend) CreateToken(ctx context.Context, who model.Caller, t model.Token) (string, api.Written, error) {
	secret := "coopr-" + rand.Text()
	sum := sha256.Sum256([]byte(secret))
	if t.ID == "" {
		t.ID = rand.Text()[:8]
	}
	w, err := b.propose(ctx, who, &pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Hash: sum[:], Actor: t.Actor, Tenant: t.Tenant, Role: string(t.Role), Id: t.ID,
	}}})
	if w.Repeated {
		return "", w, problem.New(problem.Conflict, "this request was done before, and a token is shown only once: revoke it and make another")
	}
	return secret, w, err
}

// DeleteToken revokes a token.
func (b *backend) DeleteToken(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	return b.propose(ctx, who, &pb.Command{Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: id}}})
}

// CreateCluster starts a new cluster, or previews it.
func (b *backend) CreateCluster(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (api.Started, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return api.Started{}, problem.NoLeader
	}
	p, ans, err := l.Orchestrator.Create(ctx, who, req, dryRun)
	if err != nil {
		return api.Started{}, err
	}
	return started(p, ans), nil
}

// Operate starts an operation on a cluster, or previews it.
func (b *backend) Operate(ctx context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return api.Started{}, problem.NoLeader
	}
	r := operation.Request{
		Type: req.Type, Services: req.Services, Config: req.Config, ConfigMode: req.ConfigMode,
		Restart: req.Restart == nil || *req.Restart, Graceful: req.Graceful,
		Nodes: int(req.Change.Nodes), Victims: req.Change.NodeNames, Comparator: req.Change.Comparator,
		HardwareType: req.Change.HardwareType, ImageType: req.Change.ImageType, To: int(req.Change.To),
		OnFailure: req.Change.OnFailure, Retries: int(req.Change.ResolveOnFailure), Forced: req.Change.Forced, ProviderFields: req.ProviderFields, Rollout: req.Rollout,
	}
	if req.Type.Beside() {
		return b.beside(ctx, l, who, cluster, req)
	}
	if req.DryRun {
		p, err := l.Orchestrator.Prepare(ctx, who, cluster, r)
		if err != nil {
			return api.Started{}, err
		}
		return started(p, state.Answer{}), nil
	}
	p, ans, err := l.Orchestrator.Operate(ctx, who, cluster, r)
	if err != nil {
		return api.Started{}, err
	}
	return started(p, ans), nil
}

// started tells of an operation and what it will do.
func started(p *operation.Prepared, ans state.Answer) api.Started {
	out := api.Started{Operation: p.Operation, Cluster: p.Cluster, Written: api.Written{Index: ans.Index, Repeated: ans.Repeated}}
	out.Preview.Nodes = p.Nodes
	if p.Graph != nil {
		out.Preview.Tasks = p.Graph.Tasks()
		out.Preview.Stages = stages(p.Graph)
	}
	if p.Version > 0 {
		out.Preview.Changes = changes(p)
	}
	if a := p.Answer; a != nil {
		out.Preview.Layout = a.Layout
		out.Preview.Cost = perHour(a.Cost)
		for _, c := range a.Tight {
			out.Preview.Tight = append(out.Preview.Tight, c.Words)
		}
	}
	return out
}

// changes tells what becomes of the nodes.
func changes(p *operation.Prepared) []api.NodeChange {
	var out []api.NodeChange
	for _, n := range p.Write {
		c := api.NodeChange{Node: n.Hostname, What: "changed", Remove: n.Leaving}
		actions := p.Does(n.ID)
		switch {
		case n.Leaves:
			c.What = "removed"
		case actions[model.Delete]:
			c.What = "replaced"
		case actions[model.Create]:
			c.What, c.Add = "new", n.Services
		case len(n.Services) == len(n.States) && len(n.Leaving) == 0:
			continue // only its record changes
		default:
			for _, s := range n.Services {
				if n.States[s] == "" && !slices.Contains(n.Leaving, s) {
					c.Add = append(c.Add, s)
				}
			}
		}
		out = append(out, c)
	}
	return out
}

func perHour(c *solver.Cost) *float64 {
	if c == nil {
		return nil
	}
	f, err := strconv.ParseFloat(c.PerHour, 64)
	if err != nil {
		return nil
	}
	return &f
}

// stages counts each level of the plan by action and service.
func stages(g *plan.Graph) []map[string]int {
	var out []map[string]int
	for _, level := range planner.Stages(g) {
		m := map[string]int{}
		for _, v := range level {
			if g.Action[v] == model.Barrier {
				continue
			}
			name := g.Action[v].String()
			if s := g.ServiceName(v); s != "" {
				name += " " + s
			}
			m[name]++
		}
		if len(m) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// Resolve says that a person has put a cluster in order.
func (b *backend) Resolve(ctx context.Context, who model.Caller, cluster, reason string) (api.Written, error) {
	return b.propose(ctx, who, logformat.Control(cluster, "resolve", reason))
}

// Order gives an operation an order.
func (b *backend) Order(ctx context.Context, who model.Caller, op, order, reason string) (api.Written, error) {
	return b.propose(ctx, who, logformat.Control(op, order, reason))
}

// OrderPlan gives an order about an operation's plan.
func (b *backend) OrderPlan(ctx context.Context, who model.Caller, op string, o tree.Order) (api.Written, error) {
	return b.propose(ctx, who, &pb.Command{Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{
		Operation: op, Order: logformat.PlanOrders.Number(o.Command), Phase: o.Phase, Step: o.Step, Parameters: o.Params,
	}}})
}
