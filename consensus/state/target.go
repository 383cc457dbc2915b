package state

import (
	"maps"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// arrived notes that a cluster whose operation succeeded has come to its target: no
// service stands at an earlier one any more, but for what a rollback's snapshot had
// there. Where the operation was not about that, all is as it was before.
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

// backTo ends what Node.Back is for: where the operation succeeded, those services
// have come to where it says, but for a configuration that was written since and not
// written back: that of a service which had none yet.
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

// Live gives a node whose marks say what its services are right now. The row of a
// node says so only once the operation under way has ended.
func (v *View) Live(cl *model.Cluster, n *model.Node) *model.Node { return v.live(cl)(n) }

// LiveNodes gives the nodes of a cluster as Live does.
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

// touched gives a node with what a plan's tasks have begun to do to its services.
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
