package view

import (
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
)

// MayRecreate returns an error unless machines of a cluster may be replaced while its main operation is open.
func (v OperationView) MayRecreate(cl *model.Cluster) error {
	main := table.Get[model.Operation](v.txn, table.Operations, "id", cl.Operation)
	switch {
	case !understands(v.txn, logformat.OrdersLevel):
		return problem.New(problem.Conflict, "cluster %s: nodes cannot be replaced while an operation is open before all agents are updated "+
			"(feature level %d)", cl.Name, logformat.OrdersLevel)
	case main == nil || main.Status.Ended():
		return problem.New(problem.Stale, "operation %s of cluster %s has ended while the replacement was planned; run the command again",
			cl.Operation, cl.Name)
	case main.Status == model.OpAborting, main.Status == model.OpRollingBack, main.Type == model.OpRollback:
		return problem.New(problem.Conflict, "operation %s (%s) of cluster %s is %s: wait for it, then replace the node", main.ID, main.Type,
			cl.Name, main.Status)
	}
	return nil
}

// Gone returns the nodes of a cluster whose machines are gone, by id. A machine that an open operation has made again is there, although
// the health of its node shows that at the end of the operation only.
func (v OperationView) Gone(cl *model.Cluster) map[string]bool {
	out := map[string]bool{}
	for _, h := range table.List[model.NodeHealth](v.txn, table.Health, "cluster", cl.Tenant, cl.ID) {
		if h.Machine == model.MachineGone {
			out[h.Node] = true
		}
	}
	if len(out) == 0 {
		return out
	}
	for _, op := range v.ActiveOperations() {
		s, ok := v.Plan(op.ID)
		if !ok || op.Tenant != cl.Tenant || op.Cluster != cl.ID {
			continue
		}
		for u, action := range s.Graph.Action {
			if action == model.Create && s.Status(uint32(u)) == model.TaskSucceeded {
				delete(out, s.Graph.NodeID(u))
			}
		}
	}
	return out
}

// Awaited returns the services of the cluster of an operation that it may not configure yet, each with the id of the operation that
// replaces machines whose addresses are in their configuration: the new addresses are not known.
func (v OperationView) Awaited(op *model.Operation) map[string]string {
	return v.AwaitedBy(op, v.Plan)
}

// AwaitedBy is Awaited where plans are being edited: planOf returns the state of a plan, or false.
func (v OperationView) AwaitedBy(op *model.Operation, planOf func(operation string) (*plan.State, bool)) map[string]string {
	var out map[string]string
	for _, other := range v.ActiveOperations() {
		if other.Type != model.OpRecreateNode || other.ID == op.ID || other.Tenant != op.Tenant || other.Cluster != op.Cluster {
			continue
		}
		s, ok := planOf(other.ID)
		if !ok || !slices.ContainsFunc(makes(s.Graph), func(u uint32) bool { return s.Status(u) != model.TaskSucceeded }) {
			continue
		}
		for _, name := range other.Services {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = other.ID
		}
	}
	return out
}

// makes returns the tasks that make machines.
func makes(g *plan.Graph) (tasks []uint32) {
	for u, action := range g.Action {
		if action == model.Create || action == model.Confirm {
			tasks = append(tasks, uint32(u))
		}
	}
	return tasks
}

// Occupies returns the step of a main operation, whose plan is s, because of which the machine of a node may not be replaced, and reports
// whether there is one: a step that is at work there, or has yet to make the machine. A node from which the operation removes services
// may not be replaced at all.
func (v OperationView) Occupies(main *model.Operation, s *plan.State, id string) (step uint32, occupied bool) {
	n := table.Get[model.Node](v.txn, table.Nodes, "id", main.Tenant, id)
	if n != nil && len(n.Leaving) > 0 && len(s.Graph.On(id)) > 0 {
		return plan.NoStep, true
	}
	for _, w := range v.AtWork(main, s) {
		if s.Graph.Nodes[w.Node] == id {
			return w.Step, true
		}
	}
	for _, u := range s.Graph.On(id) {
		if action := s.Graph.Action[u]; action.Hardware() && s.Status(u) != model.TaskSucceeded {
			return s.Graph.StepOf(u), true
		}
	}
	return plan.NoStep, false
}
