package apitest

import (
	"context"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// planned is one plan of a cluster. Like all parts of a state it is never modified.
type planned struct {
	cluster string
	view    *tree.View
}

// PutPlan adds a test's plan to a cluster of the tenant acme, as an operation without
// tasks. It replaces the cluster's plan of the same name.
func (s *Store) PutPlan(cluster string, v *tree.View) {
	_, err := s.change(model.Caller{Tenant: "acme"}, func(st *state) ([]model.Event, error) {
		op := "plan-" + v.Name
		i := slices.IndexFunc(st.plans, func(p planned) bool { return p.cluster == cluster && p.view.Name == v.Name })
		if i >= 0 {
			op = st.plans[i].view.Scope
		}
		v.Scope = op
		st.setPlan(planned{cluster, v})
		return []model.Event{{Type: "operation.order", Cluster: cluster, Operation: op}}, nil
	})
	if err != nil {
		panic(err)
	}
}

// DropPlans removes all plans of a cluster.
func (s *Store) DropPlans(cluster string) {
	_, err := s.change(model.Caller{Tenant: "acme"}, func(st *state) ([]model.Event, error) {
		st.plans = slices.DeleteFunc(slices.Clone(st.plans), func(p planned) bool { return p.cluster == cluster })
		return nil, nil
	})
	if err != nil {
		panic(err)
	}
}

// setPlan replaces the plan of the same operation, or the cluster's plan of the same
// name. If there is neither, it appends the plan.
func (s *state) setPlan(p planned) {
	s.plans = slices.Clone(s.plans)
	for i, have := range s.plans {
		if have.view.Scope == p.view.Scope || have.cluster == p.cluster && have.view.Name == p.view.Name {
			s.plans[i] = p
			return
		}
	}
	s.plans = append(s.plans, p)
}

// planOf returns the plan of an operation's tasks, with a step for each task. Consecutive
// tasks of one service are a parallel phase; the phases are serial.
func planOf(op string, cluster string, tasks []model.Task) planned {
	t := &tree.Tree{Name: "deploy", Strategy: tree.Strategy{Kind: tree.Serial}}
	v := &tree.View{Tree: t, Scope: op}
	for i, task := range tasks {
		name := task.Service
		if name == "" {
			name = tree.NodesPhase
		}
		if n := len(t.Phases); n == 0 || t.Phases[n-1].Name != name {
			t.Phases = append(t.Phases, tree.Phase{Name: name, Strategy: tree.Strategy{Kind: tree.Parallel}, First: uint32(i)})
		}
		t.Phases[len(t.Phases)-1].End = uint32(i + 1)
	}
	v.Held, v.Steps = make([]bool, len(t.Phases)), make([]tree.Child, len(tasks))
	v.StepName = func(step uint32) string {
		return fmt.Sprintf("%s:[%s]", tasks[step].Hostname, tasks[step].Action.Key())
	}
	return planned{cluster, v}
}

// follow returns the plan with the statuses of its tasks as those of its steps.
func (p planned) follow(tasks []model.Task) planned {
	v := *p.view
	v.Steps, v.Failed = slices.Clone(v.Steps), nil
	for i, t := range tasks {
		s := tree.Pending
		switch t.Status {
		case model.TaskLeased:
			s = tree.Starting
		case model.TaskRunning:
			s = tree.Started
		case model.TaskSucceeded:
			s = tree.Complete
		case model.TaskFailed:
			s = tree.Error
			v.Failed = append(v.Failed, t.ID+": "+t.Message)
		default:
		}
		v.Steps[i].Status = s.Shown(v.Steps[i].Interrupted)
	}
	return planned{p.cluster, &v}
}

// Plans returns a cluster's plans.
func (v view) Plans(_, cluster string) []api.Plan {
	var out []api.Plan
	for _, p := range v.plans {
		if p.cluster == cluster {
			out = append(out, api.Plan{Name: p.view.Name, Operation: p.view.Scope})
		}
	}
	return out
}

// CustomTree returns nothing: tests add plans with PutPlan.
func (v view) CustomTree(_, _, _ string) (*tree.View, bool) { return nil, false }

// PlanTree returns an operation's plan.
func (v view) PlanTree(_, operation string) (*tree.View, bool) {
	for _, p := range v.plans {
		if p.view.Scope == operation {
			return p.view, true
		}
	}
	return nil, false
}

// Explain explains closed gates only, because the test mesh has no graphs.
func (a *Agent) Explain(ctx context.Context, tenant, operation string, steps int) (*tree.Explanation, error) {
	v, err := a.View(ctx, api.Default, 0)
	if err != nil {
		return nil, err
	}
	t, ok := v.PlanTree(tenant, operation)
	if !ok {
		return nil, problem.New(problem.NotFound, "operation %s has no plan", operation)
	}
	return t.Explain(nil, steps, Epoch, nil), nil
}

// BeginPlan fails always: tests add plans with PutPlan.
func (a *Agent) BeginPlan(_ context.Context, _ model.Caller, cluster, plan string) (string, api.Written, error) {
	return "", api.Written{}, problem.New(problem.NotFound, "cluster %s has no plan %s", cluster, plan)
}

// OrderPlan applies an order to an operation's plan.
func (a *Agent) OrderPlan(_ context.Context, who model.Caller, operation string, o tree.Order) (api.Written, error) {
	return a.write(who, func(st *state) ([]model.Event, error) {
		i := slices.IndexFunc(st.plans, func(p planned) bool { return p.view.Scope == operation })
		if i < 0 {
			return nil, problem.New(problem.NotFound, "operation %s has no plan", operation)
		}
		p := st.plans[i]
		r := tree.Give([]*tree.View{p.view}, o)
		if r.Code != tree.CodeOK {
			return nil, &tree.Refusal{Code: r.Code, Message: r.Message}
		}
		st.setPlan(planned{p.cluster, apply(*p.view, r)})
		return []model.Event{{Type: "operation.order", Cluster: p.cluster, Operation: operation, Status: o.Command}}, nil
	})
}

// apply returns a plan as it is after an order with result r.
func apply(v tree.View, r tree.Result) *tree.View {
	v.Held, v.Steps = slices.Clone(v.Held), slices.Clone(v.Steps)
	each := func(part plan.Part, do func(c *tree.Child)) {
		for i, p := range v.Phases {
			for s := p.First; s < p.End; s++ {
				if part == plan.Whole() || part == plan.Phase(uint32(i)) || part == plan.Step(s) {
					do(&v.Steps[s])
				}
			}
		}
	}
	for _, g := range r.Gates {
		if g.Part == plan.Whole() {
			v.Interrupted = g.Shut
		}
		for i := range v.Held {
			if g.Part == plan.Phase(uint32(i)) {
				v.Held[i] = g.Shut
			}
		}
		for s := range v.Steps {
			switch c := &v.Steps[s]; {
			case g.Part != plan.Step(uint32(s)):
			case g.Gate == plan.GateCanary:
				c.Behind = g.Shut
			default:
				c.Interrupted = g.Shut
			}
		}
	}
	for _, part := range r.Complete {
		each(part, func(c *tree.Child) { c.Status = tree.Complete })
	}
	for _, part := range r.Restart {
		each(part, func(c *tree.Child) { c.Status = tree.Pending })
	}
	for s := range v.Steps {
		c := &v.Steps[s]
		if c.Status == tree.Waiting {
			c.Status = tree.Pending
		}
		c.Status = c.Status.Shown(c.Interrupted)
	}
	return &v
}

// SetStates sets the states of the services of a node.
func (s *Store) SetStates(node string, states map[string]string) {
	_, err := s.change(model.Caller{}, func(st *state) ([]model.Event, error) {
		for cluster, nodes := range st.Nodes {
			if i := slices.IndexFunc(nodes, func(n *model.Node) bool { return n.ID == node }); i >= 0 {
				n := *nodes[i]
				n.States = states
				nodes = slices.Clone(nodes)
				nodes[i], st.Nodes[cluster] = &n, nodes
			}
		}
		return nil, nil
	})
	if err != nil {
		panic(err)
	}
}
