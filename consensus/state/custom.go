package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// CustomPlans returns the plans of the cluster's template that an operator starts, in the
// template's order. Each has its latest run, if there was one.
func (v *View) CustomPlans(tenant, cluster string) []Plan {
	cl, ok := v.Cluster(tenant, cluster)
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
func (v *View) CustomTree(tenant, cluster, name string, now int64) (*tree.View, bool) {
	cl, ok := v.Cluster(tenant, cluster)
	if !ok {
		return nil, false
	}
	nodes := v.Nodes(tenant, cl.ID)
	p, err := operation.Custom(model.Caller{Tenant: tenant}, name, operation.Input{Cluster: cl, Nodes: nodes}, cl.ID)
	if err != nil {
		return &tree.View{Tree: &tree.Tree{Name: name, Errors: strings.Split(err.Error(), "\n")}, Interrupted: true, Scope: cl.ID}, true
	}
	node := func(id string) *model.Node {
		if i := slices.IndexFunc(nodes, func(n *model.Node) bool { return n.ID == id }); i >= 0 {
			return nodes[i]
		}
		return nil
	}
	e := plan.NewState(p.Graph).Edit()
	if err := tree.Set(e, tree.Arm(look(&p.Operation, p.Tree, e.State(), now, node), true)); err != nil {
		return nil, false
	}
	return look(&p.Operation, p.Tree, e.Done(), now, node), true
}
