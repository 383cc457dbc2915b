package view

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// PlanView reads plans as operators see them: by name, and as phases and steps.
type PlanView struct{ txn *memdb.Txn }

// Plan is one plan of a cluster.
type Plan struct {
	Name      string
	Operation *model.Operation
}

// Plans returns a cluster's plans in the order of their priority. First comes the plan deploy, which leads to the cluster's present
// target: that of its latest operation that is neither a program nor undone. While a rollback is under way or has failed, its plan is
// that one. The plans of later rollbacks and programs follow, under their own names. Recovery is next with its latest plan and all that are
// under way, or have paused services. The latest decommission is last, unless the first plan is newer.
func (v PlanView) Plans(tenant, cluster string) []Plan {
	ops := table.List[model.Operation](v.txn, table.Operations, "cluster", tenant, cluster)
	ops = slices.DeleteFunc(ops, func(op *model.Operation) bool {
		return op.Type == model.OpPlan || table.Get[table.PlanRow](v.txn, table.Plans, "id", op.ID) == nil
	})
	slices.SortFunc(ops, func(a, b *model.Operation) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	return plansOf(ops, v.lasting(tenant, cluster))
}

// DeployPlan is the name of the plan that leads to the cluster's target.
const DeployPlan = "deploy"

// plansOf returns the plans of a cluster's operations, which are sorted, the newest first. lasts reports whether a recovery that has ended
// has an effect that lasts.
func plansOf(ops []*model.Operation, lasts func(*model.Operation) bool) []Plan {
	var out, recovery, decommission []Plan
	var back *model.Operation // the latest rollback that has succeeded
	deploy := false
	for _, op := range ops {
		name := operation.PlanName(op)
		switch {
		case name == model.RecoveryPlan:
			if last := lasts(op); last || !op.Status.Ended() || len(recovery) == 0 {
				recovery = append(recovery, Plan{name, op})
			}
		case name == model.DecommissionPlan:
			if !deploy && len(decommission) == 0 {
				decommission = append(decommission, Plan{name, op})
			}
		case deploy, back != nil && op.Before >= back.To:
			// There is a newer one, or the rollback has undone it.
		case op.Type == model.OpRollback && op.Status == model.OpSucceeded:
			if out = append(out, Plan{name, op}); back == nil || op.To < back.To {
				back = op
			}
		case op.Type == model.OpRollback:
			out = append(out, Plan{name, op}, Plan{DeployPlan, op})
			deploy = true
		default:
			out = append(out, Plan{name, op})
			deploy = op.Type != model.OpRun
		}
	}
	if !deploy && back != nil { // the plan that led to the same target is not kept any more
		out = append(out, Plan{DeployPlan, back})
	}
	slices.Reverse(out)
	for i := range recovery {
		if i > 0 { // only the first has the plain name
			recovery[i].Name += ":" + recovery[i].Operation.ID
		}
	}
	return slices.Concat(out, recovery, decommission)
}

// PlanTree returns an operation's plan as phases and steps, as of now (Unix milliseconds).
func (v PlanView) PlanTree(tenant, id string, now int64) (*tree.View, bool) {
	op, ok := OperationView(v).Operation(tenant, id)
	row := table.Get[table.PlanRow](v.txn, table.Plans, "id", id)
	if !ok || row == nil {
		return nil, false
	}
	t := Tree(op, row.Tree, row.State, now, func(id string) *model.Node {
		return table.Get[model.Node](v.txn, table.Nodes, "id", op.Tenant, id)
	})
	v.showPauses(op, row.State, t)
	for _, p := range t.Overdue(now) {
		t.Failed = append(t.Failed, fmt.Sprintf("phase %s is at work for longer than it may: %s", t.Phases[p].Name,
			time.Duration(t.Phases[p].Timeout)*time.Millisecond))
	}
	return t, true
}

// Elsewhere returns the plan of another operation of the cluster that is at work on a node. node is
// the node's id.
func (v PlanView) Elsewhere(op *model.Operation, node string) (Plan, bool) {
	for _, other := range OperationView(v).ActiveOperations() {
		if other.ID == op.ID || other.Cluster != op.Cluster || other.Tenant != op.Tenant {
			continue
		}
		if s, ok := OperationView(v).Plan(other.ID); ok {
			if _, held := s.Holds(node, ""); held {
				return Plan{operation.PlanName(other), other}, true
			}
		}
	}
	return Plan{}, false
}

// Tree returns the view of a plan. Nodes have the first part of their host names as names.
func Tree(op *model.Operation, t *tree.Tree, s *plan.State, now int64, node func(id string) *model.Node) *tree.View {
	if t == nil {
		t = tree.Plain(operation.PlanName(op))
	}
	v := tree.ViewOf(t, s, now)
	v.Scope = op.ID
	v.Continues = op.Type != model.OpPlan
	if op.Status == model.OpPaused && !v.Interrupted { // the operation was paused, and not its plan
		v.Interrupted = true
		for i := range v.Steps {
			v.Steps[i].GoesOn = false
		}
	}
	v.Node = func(id string) string {
		if n := node(id); n != nil && n.Hostname != "" {
			name, _, _ := strings.Cut(n.Hostname, ".")
			return name
		}
		return id
	}
	switch op.Status {
	case model.OpAborting:
		v.Broken = op.SupersededBy == "" // otherwise its tasks end well
	case model.OpFailed, model.OpAborted, model.OpRollingBack, model.OpRolledBack, model.OpSuperseded:
		v.Broken = true
	}
	if v.Broken && len(v.Failed) == 0 && op.Message != "" {
		v.Failed = []string{op.Message}
	}
	return v
}

// CustomPlans returns the plans of the cluster's template that an operator starts, in the
// template's order. Each has its latest run, if there was one.
func (v PlanView) CustomPlans(tenant, cluster string) []Plan {
	cl, ok := ClusterView(v).Cluster(tenant, cluster)
	if !ok {
		return nil
	}
	var runs []*model.Operation
	for _, op := range table.List[model.Operation](v.txn, table.Operations, "cluster", tenant, cl.ID) {
		if op.Type == model.OpPlan && table.Get[table.PlanRow](v.txn, table.Plans, "id", op.ID) != nil {
			runs = append(runs, op)
		}
	}
	slices.SortFunc(runs, func(a, b *model.Operation) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(b.ID, a.ID))
	})
	var out []Plan
	for _, name := range operation.CustomPlans(cl) {
		p := Plan{Name: name}
		if i := slices.IndexFunc(runs, func(op *model.Operation) bool { return op.Plan == name }); i >= 0 {
			p.Operation = runs[i]
		}
		out = append(out, p)
	}
	return out
}

// CustomTree returns the initial view of a plan that has not run yet. The view of a plan that does
// not fit the cluster has errors.
func (v PlanView) CustomTree(tenant, cluster, name string, now int64) (*tree.View, bool) {
	cl, ok := ClusterView(v).Cluster(tenant, cluster)
	if !ok {
		return nil, false
	}
	nodes := ClusterView(v).Nodes(tenant, cl.ID)
	p, err := operation.Custom(model.Caller{Tenant: tenant}, name, operation.Input{Cluster: cl, Nodes: nodes}, cl.ID)
	if err != nil {
		return &tree.View{Tree: &tree.Tree{Name: name, Errors: lines(err)}, Interrupted: true, Scope: cl.ID}, true
	}
	node := func(id string) *model.Node {
		if i := slices.IndexFunc(nodes, func(n *model.Node) bool { return n.ID == id }); i >= 0 {
			return nodes[i]
		}
		return nil
	}
	e := plan.NewState(p.Graph).Edit()
	if err := tree.Set(e, tree.Arm(Tree(&p.Operation, p.Tree, e.State(), now, node), true)); err != nil {
		return nil, false
	}
	return Tree(&p.Operation, p.Tree, e.Done(), now, node), true
}

// lines returns the faults of an error, or the error alone, as texts.
func lines(err error) []string {
	var faults model.Faults
	if !errors.As(err, &faults) {
		return []string{err.Error()}
	}
	out := make([]string, len(faults))
	for i, f := range faults {
		out[i] = f.Error()
	}
	return out
}
