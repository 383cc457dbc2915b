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

// planned is one plan of a cluster; like all of a state it never changes.
type planned struct {
	cluster string
	view    *tree.View
}

// PutPlan gives a cluster of the tenant acme a plan of a test's own, as an
// operation that has no tasks. The plan of the same name makes room for it.
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

// DropPlans leaves a cluster without plans.
func (s *Store) DropPlans(cluster string) {
	_, err := s.change(model.Caller{Tenant: "acme"}, func(st *state) ([]model.Event, error) {
		st.plans = slices.DeleteFunc(slices.Clone(st.plans), func(p planned) bool { return p.cluster == cluster })
		return nil, nil
	})
	if err != nil {
		panic(err)
	}
}

// setPlan writes a plan in the place of that of the same operation, else of the
// same name, else behind the others.
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

// planOf gives the plan of an operation's tasks: a phase for each service, a step
// for each task, each begun when its like before it is done.
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

// follow gives the plan with its steps where its tasks are.
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

// Plans gives the cluster's.
func (v view) Plans(_, cluster string) []api.Plan {
	var out []api.Plan
	for _, p := range v.plans {
		if p.cluster == cluster {
			out = append(out, api.Plan{Name: p.view.Name, Operation: p.view.Scope})
		}
	}
	return out
}

// CustomTree gives none: tests put their plans in place.
func (v view) CustomTree(_, _, _ string) (*tree.View, bool) { return nil, false }

// PlanTree gives an operation's plan.
func (v view) PlanTree(_, operation string) (*tree.View, bool) {
	for _, p := range v.plans {
		if p.view.Scope == operation {
			return p.view, true
		}
	}
	return nil, false
}

// Explain tells of gates only: there are no graphs here.
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

// BeginPlan begins nothing: tests put their plans in place.
func (a *Agent) BeginPlan(_ context.Context, _ model.Caller, cluster, plan string) (string, api.Written, error) {
	return "", api.Written{}, problem.New(problem.NotFound, "cluster %s has no plan %s", cluster, plan)
}

// OrderPlan takes an order and does what it comes to.
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

// apply gives a view after an order.
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

// SetStates says how the services of a node are.
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
