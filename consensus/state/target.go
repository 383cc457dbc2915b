package state

import (
	"maps"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// arrived updates a cluster after an operation that succeeded. Its field Earlier lists the earlier
// targets at which services still stand. A rollback takes the list from its snapshot. An operation
// that moved the cluster to its target clears the list, unless it tolerated failures. After
// recovery, or after an operation that did not move the cluster, an active or inconsistent cluster
// keeps the status it had before.
func (a *applier) arrived(cl *model.Cluster, op *model.Operation) {
	if len(cl.Earlier) == 0 {
		return
	}
	before := table.Get[model.Snapshot](a.txn, table.History, "id", cl.Tenant, cl.ID, uint32(op.Before))
	to := table.Get[model.Snapshot](a.txn, table.History, "id", cl.Tenant, cl.ID, uint32(op.To))
	e := a.edit(op.ID)
	switch {
	case to != nil:
		cl.Earlier = to.State.Earlier
	case cl.Mover == op.ID && op.Plan == model.RecoveryPlan, cl.Mover != op.ID:
		if before == nil {
			break
		}
		if is := before.State.Status; is == model.ClusterActive || is == model.ClusterInconsistent {
			cl.Status, cl.Message = is, before.State.Message
		}
		if len(before.State.Earlier) == 0 {
			cl.Earlier = nil
		}
	case e == nil || e.State().Tolerated() == 0:
		cl.Earlier = nil
	}
}

// backTo clears Node.Back at the end of an operation. If the operation succeeded, the services have
// returned to the marks in Back. A configuration is an exception if it was written since then and
// not written back, as for a service that had none before: it is marked as half configured.
func backTo(n *model.Node, op *model.Operation, good bool) {
	for _, s := range n.Services {
		if b, ok := n.Back[s]; ok && good {
			m := n.Marks[s]
			if m.Definition, m.Goal = b.Definition, b.Goal; m.Configured == b.Configured || m.Configured == op.ID {
				m.Config = b.Config
			} else {
				m.Config = model.HalfConfigured
			}
			n.Marks[s] = m
		}
	}
	n.Back = nil
}

// Live returns a node whose marks show the present state of its services. The row of a node shows
// it only after the operation under way has ended.
func (v *View) Live(cl *model.Cluster, n *model.Node) *model.Node { return v.live(cl)(n) }

// LiveNodes returns the nodes of a cluster as Live does.
func (v *View) LiveNodes(cl *model.Cluster) []*model.Node {
	nodes := v.Nodes(cl.Tenant, cl.ID)
	if !cl.Varies() {
		return nodes
	}
	live := v.live(cl)
	for i, n := range nodes {
		nodes[i] = live(n)
	}
	return nodes
}

func (v *View) live(cl *model.Cluster) func(*model.Node) *model.Node {
	same := func(n *model.Node) *model.Node { return n }
	if !cl.Varies() || cl.Operation != cl.Mover {
		return same
	}
	op, ok := v.Operation(cl.Tenant, cl.Operation)
	if !ok || op.Status.Ended() {
		return same
	}
	s, ok := v.Plan(op.ID)
	if !ok {
		return same
	}
	return func(n *model.Node) *model.Node { return touched(cl, op, s, n) }
}

// touched returns a node with the marks that a plan's tasks leave on its services, including tasks
// that have only begun.
func touched(cl *model.Cluster, op *model.Operation, s *plan.State, have *model.Node) *model.Node {
	n := have
	for _, v := range s.Graph.On(have.ID) {
		t := s.Task(v)
		if s.Graph.Service[v] == plan.None || t.Attempt == 0 && t.Status != model.TaskSucceeded {
			continue
		}
		if n == have {
			c := *have
			if c.Marks = maps.Clone(have.Marks); c.Marks == nil {
				c.Marks = map[string]model.Mark{}
			}
			n = &c
		}
		n.Touch(cl, op, s.Graph.Action[v], s.Graph.ServiceName(int(v)), t.Status == model.TaskSucceeded)
	}
	return n
}
