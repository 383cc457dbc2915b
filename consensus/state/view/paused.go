package view

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// paused returns the progress of the pauses of a cluster's services, by node and service. It has only nodes with such services.
func (v PlanView) paused(tenant, cluster string) map[string]map[string]string {
	out := map[string]map[string]string{}
	table.Each(v.txn, table.Health, "cluster", func(h *model.NodeHealth) bool {
		if len(h.Paused) > 0 {
			out[h.Node] = h.Paused
		}
		return true
	}, tenant, cluster)
	return out
}

// lasting returns a function that reports whether an operation has paused services that have not been resumed since. It has to be called
// for the operations of a cluster in their order, the newest first.
func (v PlanView) lasting(tenant, cluster string) func(op *model.Operation) bool {
	paused, newer := v.paused(tenant, cluster), map[[2]string]bool{}
	return func(op *model.Operation) bool {
		if op.Type != model.OpPauseNode || op.Status != model.OpSucceeded || len(paused) == 0 {
			return false
		}
		s, ok := OperationView(v).Plan(op.ID)
		if !ok {
			return false
		}
		lasts := false
		for w := range s.Graph.Len() {
			at := [2]string{s.Graph.NodeID(w), s.Graph.ServiceName(w)}
			if paused[at[0]][at[1]] == model.Paused && !newer[at] {
				lasts, newer[at] = true, true
			}
		}
		return lasts
	}
}

// showPauses shows the steps on nodes whose services are all paused with the state of the pod, as the DC/OS SDK does. In the plan that
// paused them, they are STARTED until the services are resumed (docs/spec/plans.md §9).
func (v PlanView) showPauses(op *model.Operation, s *plan.State, t *tree.View) {
	for id, paused := range v.paused(op.Tenant, op.Cluster) {
		pod := podState(table.Get[model.Node](v.txn, table.Nodes, "id", op.Tenant, id), paused)
		for _, w := range s.Graph.On(id) {
			step := s.Graph.StepOf(w)
			if step == plan.NoStep {
				continue
			}
			c := &t.Steps[step]
			if op.Type == model.OpPauseNode && c.Status == tree.Complete && paused[s.Graph.ServiceName(int(w))] == model.Paused {
				c.Status = tree.Started
			}
			switch c.Status {
			case tree.Complete, tree.Started, tree.Starting:
				if pod != "" {
					t.Shown[step] = pod
				}
			}
		}
	}
}

// podState returns the state of a node whose services are all paused or about to be, or "".
func podState(n *model.Node, paused map[string]string) string {
	if n == nil {
		return ""
	}
	state := ""
	for _, service := range n.Staying() {
		switch {
		case paused[service] != model.Paused && paused[service] != model.Pausing:
			return ""
		case state == "" || paused[service] == model.Pausing:
			state = paused[service]
		}
	}
	return state
}
