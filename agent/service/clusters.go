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
		ProviderFields: req.ProviderFields, Rollout: req.Rollout, NodeChoice: req.NodeChoice,
	}
	var p *operation.Prepared
	var ans state.Answer
	if req.Type == model.OpReplaceNode && r.Forced && !r.Queue {
		if st, open, err := recreate(ctx, l.Orchestrator, who, m.Machine.View(), cluster, req); open {
			return st, err
		}
	}
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
	health, names := v.ClusterHealth(cl.Tenant, cl.ID), req.Change.NodeNames
	var again []relaunch
	var units []operation.Unit
	if req.Type == model.OpRecover && !req.DryRun {
		if again, units, names, err = relaunches(l.Orchestrator, who, v, now, health, names, req.Services); err != nil {
			return api.Started{}, err
		}
	}
	if req.Type == model.OpPauseNode && len(req.Services) == 0 {
		if units, names, err = pauses(v, now, health, names); err != nil {
			return api.Started{}, err
		}
	}
	if len(names) > 0 || len(again)+len(units) == 0 {
		more, err := operation.Units(req.Type, now, health, names, req.Services)
		if err != nil {
			return api.Started{}, err
		}
		units = append(units, more...)
	}
	if req.DryRun || len(again) > 0 && len(units) > 0 { // an order that is refused has no effect
		p, err := l.Orchestrator.PreviewConcurrent(who, cl.ID, req.Type, units)
		switch {
		case err != nil:
			return api.Started{}, err
		case req.DryRun:
			return started(p, state.Answer{}), nil
		}
	}
	w, err := c.relaunch(ctx, who, v, again, len(units) > 0)
	switch {
	case err != nil:
		return api.Started{}, err
	case len(units) == 0 && len(again) > 0:
		return api.Started{Operation: *again[0].op, Cluster: *cl, Written: w}, nil
	}
	p, ans, err := l.Orchestrator.StartConcurrent(ctx, who, cl.ID, req.Type, units)
	if err != nil {
		return api.Started{}, err
	}
	return started(p, ans), nil
}

// pauses returns the units of an order to pause all services of nodes, where steps are at work that launch some of them, and the names of
// the other nodes. Such a service is paused, too, once its step has ended.
func pauses(v *state.View, now operation.Input, health map[string]*model.NodeHealth, names []string) (units []operation.Unit,
	others []string, err error) {
	for _, name := range names {
		var begun []string
		for _, n := range operation.Named([]string{name}, now) {
			begun = launching(v, now.Cluster, n)
		}
		if len(begun) == 0 {
			others = append(others, name)
			continue
		}
		if more, err := operation.Units(model.OpPauseNode, now, health, []string{name}, nil); err == nil {
			begun = append(without(more[0].Services, begun), begun...)
		}
		more, err := operation.Units(model.OpPauseNode, now, health, []string{name}, begun)
		if err != nil {
			return nil, nil, err
		}
		units = append(units, more...)
	}
	return units, others, nil
}

// launching returns the services of a node that steps at work there launch.
func launching(v *state.View, cl *model.Cluster, n *model.Node) (out []string) {
	for _, op := range v.ActiveOperations() {
		s, kept := v.Plan(op.ID)
		if op.Cluster != cl.ID || op.Tenant != cl.Tenant || !kept {
			continue
		}
		for _, w := range v.AtWork(op, s) {
			if s.Graph.Nodes[w.Node] == n.ID && w.Step != plan.NoStep {
				out = append(out, without(launches(s, plan.Step(w.Step), n.ID), out)...)
			}
		}
	}
	return without(out, without(out, n.Staying()))
}

// relaunch is an operation under way that restarts services of a node, and the step of its plan that has to begin again for that, or
// plan.NoStep.
type relaunch struct {
	op   *model.Operation
	step uint32
}

// relaunches returns how operations under way carry out an order to restart nodes, the units that are left for an operation of their own,
// and the names of the nodes on which no operation restarts anything. Without services the order is about all services of the nodes.
func relaunches(o *orchestrate.Orchestrator, who model.Caller, v *state.View, now operation.Input, health map[string]*model.NodeHealth,
	names, services []string) (again []relaunch, left []operation.Unit, others []string, err error) {
	others = names
	for _, n := range operation.Named(names, now) {
		u := operation.Unit{Node: n.ID, Services: services}
		if len(services) == 0 {
			u.Services = n.Staying()
		}
		by, rest := relaunchesOf(v, now.Cluster, u)
		if len(by) == 0 {
			continue
		}
		if _, err := o.PrepareConcurrent(who, now.Cluster.ID, model.OpRecover, []operation.Unit{u}); err != nil {
			return nil, nil, nil, err // the user may not, or there is nothing to restart
		}
		units, err := operation.Units(model.OpRecover, now, health, []string{n.ID}, services)
		if err != nil && len(services) > 0 {
			return nil, nil, nil, err
		}
		for _, unit := range units { // none if no service of the node was started yet
			if unit.Services = without(unit.Services, without(u.Services, rest)); len(unit.Services) > 0 {
				left = append(left, unit)
			}
		}
		again = append(again, by...)
		others = slices.DeleteFunc(slices.Clone(others), func(name string) bool {
			return slices.Contains(operation.Named([]string{name}, now), n)
		})
	}
	return again, left, others, nil
}

// relaunchesOf returns how operations under way restart services of a unit, and the services that none of them restarts: the step that is
// at work on launching a service begins again, and an operation that restarts a service or replaces the node is left alone.
func relaunchesOf(v *state.View, cl *model.Cluster, u operation.Unit) (again []relaunch, rest []string) {
	rest = slices.Clone(u.Services)
	for _, op := range v.ActiveOperations() {
		s, kept := v.Plan(op.ID)
		if op.Cluster != cl.ID || op.Tenant != cl.Tenant || !kept || op.Type == model.OpRun {
			continue
		}
		switch {
		case replaces(op, s, u.Node):
			return append(again, relaunch{op, plan.NoStep}), nil
		case op.Type == model.OpRecover:
			at := launched(s, u.Node)
			if at != plan.NoStep && len(without(launches(s, plan.Step(at), u.Node), u.Services)) > 0 {
				continue // it is done with the node, and its step would restart other services, too
			}
			if left := without(rest, launches(s, plan.Whole(), u.Node)); len(left) < len(rest) {
				again, rest = append(again, relaunch{op, at}), left
			}
		default:
			for _, w := range v.AtWork(op, s) {
				if s.Graph.Nodes[w.Node] != u.Node || w.Step == plan.NoStep {
					continue
				}
				if left := without(rest, launches(s, plan.Step(w.Step), u.Node)); len(left) < len(rest) {
					again, rest = append(again, relaunch{op, w.Step}), left
				}
			}
		}
	}
	return again, rest
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// relaunch lets the steps of operations under way begin again. With more, another command of the same request follows.
func (c *Clusters) relaunch(ctx context.Context, who model.Caller, v *state.View, again []relaunch, more bool) (api.Written, error) {
	out := api.Written{Index: v.Index()}
	for i, r := range again {
		if r.step == plan.NoStep {
			continue
		}
		t, _ := v.PlanTree(r.op.Tenant, r.op.ID, time.Now().UnixMilli())
		order := tree.Order{Command: "restart"}
		order.Phase, order.Step = t.IDs(r.step)
		by := who
		if by.Request != "" && (more || i+1 < len(again)) { // the request's answer is that of its last command
			by.Request += " restarts " + order.Step
		}
		w, err := write(ctx, c.Supervisor, by, logformat.OrderPlan(r.op.ID, order))
		var already *tree.Refusal
		switch {
		case errors.As(err, &already) && already.Code == tree.CodeAlready:
		case err != nil:
			return out, err
		default:
			out = w
		}
	}
	return out, nil
}

// replaces reports whether an operation replaces a node, and has not done so yet.
func replaces(op *model.Operation, s *plan.State, node string) bool {
	on := s.Graph.On(node)
	return op.Type.Replaces() && slices.ContainsFunc(on, func(v uint32) bool { return s.Graph.Action[v] == model.Delete }) &&
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

// launches returns the services that a part of a plan starts on a node.
func launches(s *plan.State, p plan.Part, node string) (out []string) {
	for v := range s.Graph.In(p) {
		if s.Graph.Action[v] == model.Start && s.Graph.NodeID(int(v)) == node {
			out = append(out, s.Graph.ServiceName(int(v)))
		}
	}
	return out
}

// Label sets and removes labels of a cluster.
func (c *Clusters) Label(ctx context.Context, who model.Caller, cluster string, set map[string]string, remove []string) (api.Written,
	error) {
	return write(ctx, c.Supervisor, who, logformat.Label(cluster, set, remove))
}

// ChangeLease has the lease of a cluster that ends at the time was end at the time to.
func (c *Clusters) ChangeLease(ctx context.Context, who model.Caller, cluster string, was, to int64) (api.Written, error) {
	m, _, err := leader(c.Supervisor)
	if err != nil {
		return api.Written{}, err
	}
	if !m.Machine.View().Understands(logformat.LeaseLevel) {
		return api.Written{}, problem.New(problem.Conflict, "some agents of the mesh are too old to change the lease of a cluster: upgrade "+
			"these agents (`coopr members -o wide` shows their versions)")
	}
	return write(ctx, c.Supervisor, who, logformat.Lease(cluster, was, to))
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
