package operation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// ProgramStep is a step of a program, with the fields of a plan's step.
type ProgramStep struct {
	Name string
	// One is true if the step runs on the first node only, and not on each.
	One bool
}

// ProgramAutomator is the automator type that runs programs.
const ProgramAutomator = "shell"

// Program prepares a run of a program on a cluster (docs/spec/profiles.md): a concurrent
// operation with a phase for each step. A step begins when the previous step has finished on
// all nodes. A failed step ends the program.
func Program(who model.Caller, name string, steps []ProgramStep, at Input, id string) (*Prepared, error) {
	cl := at.Cluster
	if cl.Status == model.ClusterTerminated || len(at.Nodes) == 0 {
		return nil, fmt.Errorf("%w: cluster %s is %s and has %d nodes", ErrState, cl.Name, cl.Status, len(at.Nodes))
	}
	p := &Prepared{Version: cl.Version, Cluster: *cl, Operation: model.Operation{
		ID: id, Tenant: cl.Tenant, Cluster: cl.ID, Type: model.OpRun, Status: model.OpRunning, Actor: who.Actor, Request: who.Request,
		OnFailure: "leave", Plan: name,
	}}
	nodes := slices.SortedFunc(slices.Values(at.Nodes), func(a, b *model.Node) int { return cmp.Compare(a.Number, b.Number) })
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		p.Nodes = append(p.Nodes, *n)
		ids[i] = n.ID
	}
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
	}
	b := plan.NewBuilder(ids, names)
	var before []uint32
	for i, s := range steps {
		last := len(ids)
		if s.One {
			last = 1
		}
		if len(before) > 1 && last > 1 {
			all := b.Barrier()
			for _, v := range before {
				b.Edge(v, all)
			}
			before = []uint32{all}
		}
		var now []uint32
		for n := range last {
			v := b.Task(model.Run, n, i)
			for _, w := range before {
				b.Edge(w, v)
			}
			now = append(now, v)
		}
		before = now
	}
	g, err := b.Build()
	if err != nil {
		return nil, err
	}
	d := tree.Default(g, name)
	if p.Graph, err = d.Compile(g); err != nil {
		return nil, err
	}
	p.Tree = &d.Tree
	return p, nil
}

// Named sets the name under which the operation's plan is shown.
func (p *Prepared) Named(plan string) *Prepared {
	if p.Operation.Plan = plan; p.Tree != nil {
		p.Tree.Name = plan
	}
	return p
}
