package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/lint"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/planner"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
)

// Clusters starts operations on clusters.
type Clusters struct {
	Supervisor Supervisor
}

// Create starts a new cluster, or previews it.
func (c *Clusters) Create(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (api.Started, error) {
	m, l, err := leader(c.Supervisor)
	if err == nil {
		err = append(model.CheckSealedRefs("providerFields", req.ProviderFields), model.CheckSealedRefs("config", req.Config)...).Err()
	}
	if err != nil {
		return api.Started{}, err
	}
	warnings := lint.LiteralsIn("config", req.Config)
	if req.Config, err = withSealed(ctx, m, l, who, req.Config, nil, dryRun); err != nil {
		return api.Started{}, err
	}
	p, ans, err := l.Orchestrator.Create(ctx, who, req, dryRun)
	if err != nil {
		return api.Started{}, err
	}
	return warned(started(p, ans), warnings), nil
}

// withSealed returns a configuration in which references to encrypted values stand in place of those to secrets: those of the stored
// configuration where their values are the same, so that it does not change. With preview nothing is encrypted.
func withSealed(ctx context.Context, m *member.Member, l *member.Leadership, who model.Caller, config, stored map[string]any,
	preview bool) (map[string]any, error) {
	v := m.Machine.View()
	out, err := v.Resolve(m.Box, who, config)
	if err != nil {
		return nil, fmt.Errorf("config.%w", err)
	}
	out = m.Box.Keep(v.SealedView, who.Tenant, out, stored, false)
	if !preview {
		return l.Keys.Sealer.SealHidden(ctx, who.Tenant, out)
	}
	return model.MapFields(out, func(v any) (any, error) {
		if _, hidden := v.(model.Hidden); hidden {
			return model.Redacted, nil
		}
		return v, nil
	})
}

// warned adds warnings to an answer.
func warned(st api.Started, warnings model.Faults) api.Started {
	st.Written.Warnings = append(st.Written.Warnings, warnings...)
	return st
}

// Operate starts an operation on a cluster, or previews it.
func (c *Clusters) Operate(ctx context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error) {
	m, l, err := leader(c.Supervisor)
	if err == nil {
		err = model.CheckSealedRefs("providerFields", req.ProviderFields).Err()
	}
	if err != nil {
		return api.Started{}, err
	}
	if !req.DryRun {
		if p, ans, ok, err := orchestrate.Repeated(m.Machine.View(), who); ok {
			if err != nil {
				return api.Started{}, err
			}
			return started(p, ans), nil
		}
	}
	warnings := lint.LiteralsIn("config", req.Config)
	var stored map[string]any
	if cl, ok := m.Machine.View().Cluster(who.Tenant, cluster); ok {
		stored = cl.Config
	}
	if req.Config, err = withSealed(ctx, m, l, who, req.Config, stored, req.DryRun); err != nil {
		return api.Started{}, err
	}
	r := operation.Request{
		Type: req.Type, Services: req.Services, Config: req.Config, ConfigMode: req.ConfigMode,
		Restart: req.Restart == nil || *req.Restart, Graceful: req.Graceful,
		Nodes: int(req.Change.Nodes), Victims: req.Change.NodeNames, Comparator: req.Change.Comparator,
		HardwareType: req.Change.HardwareType, ImageType: req.Change.ImageType, To: int(req.Change.To),
		OnFailure: req.Change.OnFailure, Retries: int(req.Change.ResolveOnFailure), Forced: req.Change.Forced,
		ProviderFields: req.ProviderFields, Rollout: req.Rollout,
	}
	var p *operation.Prepared
	var ans state.Answer
	switch {
	case req.Type.Concurrent():
		return c.operateConcurrently(ctx, who, cluster, req)
	case req.DryRun:
		p, err = l.Orchestrator.Preview(ctx, who, cluster, r)
	default:
		p, ans, err = l.Orchestrator.Operate(ctx, who, cluster, r)
	}
	if err != nil {
		return api.Started{}, err
	}
	return warned(started(p, ans), warnings), nil
}

// operateConcurrently starts an operation that runs concurrently with other operations on
// its cluster.
func (c *Clusters) operateConcurrently(ctx context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error) {
	m, l, err := leader(c.Supervisor)
	if err != nil {
		return api.Started{}, err
	}
	v := m.Machine.View()
	cl, ok := v.Cluster(who.Tenant, cluster)
	if !ok {
		return api.Started{}, problem.New(problem.NotFound, "there is no cluster %q", cluster)
	}
	now := operation.Input{Cluster: cl, Nodes: v.PresentNodes(cl)}
	if nodes := operation.Named(req.Change.NodeNames, now); req.Type == model.OpRecover && len(nodes) == 1 && !req.DryRun {
		u := operation.Unit{Node: nodes[0].ID, Services: req.Services}
		if len(u.Services) == 0 {
			u.Services = nodes[0].Staying()
		}
		if st, done, err := c.relaunch(ctx, l.Orchestrator, who, v, cl, u); done || err != nil {
			return st, err
		}
	}
	units, err := operation.Units(req.Type, now, v.ClusterHealth(cl.Tenant, cl.ID), req.Change.NodeNames, req.Services)
	if err != nil {
		return api.Started{}, err
	}
	var p *operation.Prepared
	var ans state.Answer
	if req.DryRun {
		p, err = l.Orchestrator.PreviewConcurrent(who, cl.ID, req.Type, units)
	} else {
		p, ans, err = l.Orchestrator.StartConcurrent(ctx, who, cl.ID, req.Type, units)
	}
	if err != nil {
		return api.Started{}, err
	}
	return started(p, ans), nil
}

// relaunch restarts services by an operation that is at work on their node: the step that launches them is reset, so that it launches
// them anew, and an operation that restarts all of them or replaces the node is left alone. It reports false if there is none.
func (c *Clusters) relaunch(ctx context.Context, o *orchestrate.Orchestrator, who model.Caller, v *state.View, cl *model.Cluster,
	u operation.Unit) (out api.Started, done bool, err error) {
	for _, op := range v.ActiveOperations() {
		s, kept := v.Plan(op.ID)
		if op.Cluster != cl.ID || op.Tenant != cl.Tenant || !kept || op.Type == model.OpRun {
			continue
		}
		at := uint32(plan.NoStep)
		for _, w := range v.AtWork(op, s) {
			if s.Graph.Nodes[w.Node] == u.Node && w.Step != plan.NoStep &&
				slices.ContainsFunc(u.Services, func(name string) bool { return launches(s, plan.Step(w.Step), u.Node, name) }) {
				at = w.Step
			}
		}
		again := replaces(op, s, u.Node)
		if op.Type == model.OpRecover && launches(s, plan.Whole(), u.Node, u.Services...) {
			if over := launched(s, u.Node); over == plan.NoStep {
				again = true
			} else { // it has restarted this node, and is at work on others
				at = over
			}
		}
		if !again && at == plan.NoStep {
			continue
		}
		if _, err := o.PrepareConcurrent(who, cl.ID, model.OpRecover, []operation.Unit{u}); err != nil {
			return out, false, err // the user may not, or there is nothing to restart
		}
		out = api.Started{Operation: *op, Cluster: *cl, Written: api.Written{Index: v.Index()}}
		if !again {
			t, _ := v.PlanTree(op.Tenant, op.ID, time.Now().UnixMilli())
			order := tree.Order{Command: "restart"}
			order.Phase, order.Step = t.IDs(at)
			var already *tree.Refusal
			out.Written, err = write(ctx, c.Supervisor, who, logformat.OrderPlan(op.ID, order))
			if errors.As(err, &already) && already.Code == tree.CodeAlready {
				err = nil
			}
		}
		return out, true, err
	}
	return out, false, nil
}

// replaces reports whether an operation replaces a node, and has not done so yet.
func replaces(op *model.Operation, s *plan.State, node string) bool {
	on := s.Graph.On(node)
	return op.Type == model.OpReplaceNode && slices.ContainsFunc(on, func(v uint32) bool { return s.Graph.Action[v] == model.Delete }) &&
		slices.ContainsFunc(on, func(v uint32) bool { return !s.Status(v).Ended() })
}

// launched returns the step of a plan that has started a service on a node, or plan.NoStep while something is left to do there.
func launched(s *plan.State, node string) uint32 {
	at := uint32(plan.NoStep)
	for _, v := range s.Graph.On(node) {
		if s.Status(v) != model.TaskSucceeded {
			return plan.NoStep
		}
		if s.Graph.Action[v] == model.Start {
			at = s.Graph.StepOf(v)
		}
	}
	return at
}

// launches reports whether a part of a plan starts all of these services on a node.
func launches(s *plan.State, p plan.Part, node string, services ...string) bool {
	starts := map[string]bool{}
	for v := range s.Graph.In(p) {
		if s.Graph.Action[v] == model.Start && s.Graph.NodeID(int(v)) == node {
			starts[s.Graph.ServiceName(int(v))] = true
		}
	}
	return !slices.ContainsFunc(services, func(name string) bool { return !starts[name] })
}

// Label sets and removes labels of a cluster.
func (c *Clusters) Label(ctx context.Context, who model.Caller, cluster string, set map[string]string, remove []string) (api.Written,
	error) {
	return write(ctx, c.Supervisor, who, logformat.Label(cluster, set, remove))
}

// Resolve marks a failed cluster as repaired.
func (c *Clusters) Resolve(ctx context.Context, who model.Caller, cluster, reason string) (api.Written, error) {
	return write(ctx, c.Supervisor, who, logformat.Control(cluster, "resolve", reason))
}

// started describes an operation and its effects.
func started(p *operation.Prepared, ans state.Answer) api.Started {
	out := api.Started{Operation: p.Operation, Cluster: p.Cluster, Written: written(ans)}
	out.Preview.Nodes = p.Nodes
	if p.Graph != nil {
		out.Preview.Tasks = p.Graph.Tasks() - len(p.Done)
		out.Preview.Stages = stages(p.Graph)
	}
	if p.Version > 0 {
		out.Preview.Changes, out.Preview.Warnings = nodeChanges(p), skipped(p)
	}
	if a := p.Answer; a != nil {
		out.Preview.Layout = a.Layout
		out.Preview.Cost = costPerHour(a.Cost)
		for _, c := range a.Tight {
			out.Preview.Tight = append(out.Preview.Tight, c.Words)
		}
	}
	return out
}

// nodeChanges returns the change that an operation makes to each node.
func nodeChanges(p *operation.Prepared) []api.NodeChange {
	var out []api.NodeChange
	for _, n := range p.Write {
		c := api.NodeChange{Node: n.Hostname, What: "changed", Remove: n.Leaving}
		actions := p.Does(n.ID)
		switch {
		case slices.Contains(p.Operation.Skipped, n.ID):
			continue // listed below
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
	for _, n := range p.Nodes {
		if slices.Contains(p.Operation.Skipped, n.ID) {
			out = append(out, api.NodeChange{Node: n.Hostname, What: "skipped"})
		}
	}
	return out
}

// skipped returns a warning that names the nodes that an operation leaves out.
func skipped(p *operation.Prepared) []string {
	var names []string
	for i := range p.Nodes {
		if slices.Contains(p.Operation.Skipped, p.Nodes[i].ID) {
			names = append(names, p.Nodes[i].ShortName())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no machine, so nothing is done there: %s; `coopr node replace %s NODE` makes a new one", words.And(names),
		p.Cluster.Name)}
}

// costPerHour returns a cost as a number, or nil if it is not known.
func costPerHour(c *solver.Cost) *float64 {
	if c == nil {
		return nil
	}
	f, err := strconv.ParseFloat(c.PerHour, 64)
	if err != nil {
		return nil
	}
	return &f
}

// stages counts the tasks of each stage of a plan by action and service.
func stages(g *plan.Graph) []map[string]int {
	var out []map[string]int
	for _, level := range planner.Stages(g) {
		counts := map[string]int{}
		for _, v := range level {
			if g.Action[v] == model.Barrier {
				continue
			}
			name := strings.ToUpper(g.ActionKey(int(v)))
			if s := g.ServiceName(v); s != "" {
				name += " " + s
			}
			counts[name]++
		}
		if len(counts) > 0 {
			out = append(out, counts)
		}
	}
	return out
}
