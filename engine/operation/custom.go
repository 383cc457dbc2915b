package operation

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
)

// ErrNoPlan means that a cluster's template has no plan of its own with this name.
var ErrNoPlan = problem.New(problem.NotFound, "the cluster's template has no such plan")

// CustomPlans returns the names of the template's plans that an operator starts, in the order
// of the template.
func CustomPlans(cl *model.Cluster) []string {
	var out []string
	for _, p := range cl.Template.Plans {
		if p.Custom() {
			out = append(out, p.Name)
		}
	}
	return out
}

// Custom prepares a run of one of a template's own plans: a concurrent operation that consists
// of the steps of that plan (docs/spec/plans.md §4, §13). The plan is held until an operator
// starts it. It fails with ErrNoPlan, or with model.Faults if the plan does not fit the
// cluster.
func Custom(who model.Caller, name string, at Input, id string) (*Prepared, error) {
	cl := at.Cluster
	if !slices.Contains(CustomPlans(cl), name) {
		return nil, fmt.Errorf("%w: %q", ErrNoPlan, name)
	}
	p := &Prepared{Version: cl.Version, Cluster: *cl, Operation: model.Operation{
		ID: id, Tenant: cl.Tenant, Cluster: cl.ID, Type: model.OpPlan, Status: model.OpPaused, Actor: who.Actor, Request: who.Request,
		OnFailure: "leave", Plan: name,
	}}
	for _, n := range at.Nodes {
		p.Nodes = append(p.Nodes, *n)
	}
	t := cl.Template.Plans[slices.IndexFunc(cl.Template.Plans, func(t model.Plan) bool { return t.Name == name })]
	o, err := tree.Outlines(t, p.runnable())
	if err != nil {
		return nil, err
	}
	o.Name = name
	g, d, err := o.Graph()
	if err != nil {
		return nil, err
	}
	if p.Graph, err = d.Compile(g); err != nil {
		return nil, err
	}
	p.Tree = &d.Tree
	return p, nil
}

// runnable returns the nodes of each service and the actions, checks and those of its own included, that
// a plan's steps may name.
func (p *Prepared) runnable() map[string]tree.Instances {
	out := p.instances()
	for name, in := range out {
		if _, ok := p.Cluster.Definitions[name].Provisioner.Actions[model.Check.Key()]; ok && !slices.Contains(in.Tasks, model.Check.Key()) {
			in.Tasks = append(in.Tasks, model.Check.Key())
		}
		d := p.Cluster.Definitions[name]
		in.Tasks = append(in.Tasks, d.OwnActions()...)
		in.NotOnAgent = d.CannotRunOnAgent
		out[name] = in
	}
	return out
}

// WithParameters returns the input of a task with an operation's parameters. They become
// environment variables of the task.
func WithParameters(input []byte, parameters map[string]string) []byte {
	if len(parameters) == 0 || len(input) < 2 {
		return input
	}
	b, err := json.Marshal(parameters)
	if err != nil {
		return input // strings can always be encoded
	}
	return slices.Concat([]byte(`{"parameters":`), b, []byte(","), input[1:])
}

// WithIdentity returns the input of a task with its token.
func WithIdentity(input []byte, token string) []byte {
	if token == "" || len(input) < 2 {
		return input
	}
	return slices.Concat([]byte(`{"identity":"`+token+`",`), input[1:]) // a JWT needs no escapes
}
