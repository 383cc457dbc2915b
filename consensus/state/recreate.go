package state

import (
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// An operation of the type recreate-node replaces machines while another operation of the cluster is open. The order between the two is
// kept simple: it begins on no node on which a step of the other is at work, the other begins nothing on its nodes until it has ended,
// and the other does not end before it. So each task of the other on such a node is either before all of its tasks or after them. A step
// that has failed on a replaced machine, or waits for an operator there, begins again afterwards. Among its nodes are those whose
// configuration has the address of a machine that is replaced.

// mayRecreate checks that an operation, whose graph is g, may replace nodes while another operation, whose plan is s, is open: a node on
// which one of its steps is at work may not be replaced, nor may its address change while it is written to a configuration.
func (a operations) mayRecreate(op, other *model.Operation, s *plan.State, g *plan.Graph) error {
	for v, action := range s.Graph.Action {
		if action == model.Configure && s.Status(uint32(v)).Held() && slices.Contains(op.Services, s.Graph.ServiceName(v)) {
			return a.clash(other, s.Graph.NodeID(v), s.Graph.StepOf(uint32(v)))
		}
	}
	made := deleted(g)
	for _, id := range g.Nodes {
		switch {
		case len(s.Graph.On(id)) == 0:
		case other.Type == model.OpRecreateNode:
			return a.clash(other, id, plan.NoStep)
		case other.Type.Concurrent() && other.Type != model.OpRun && !slices.Contains(made, id) && attempted(s, id):
			return a.clash(other, id, plan.NoStep)
		case other.Type.Concurrent(): // it is superseded, or waits for its nodes
		default:
			if step, clashes := a.view().Occupies(other, s, id); clashes {
				return a.clash(other, id, step)
			}
		}
	}
	return nil
}

// attempted reports whether a plan has begun a task on a node. What a concurrent operation did there is in the node's record at its end
// only.
func attempted(s *plan.State, id string) bool {
	return slices.ContainsFunc(s.Graph.On(id), func(v uint32) bool { return s.Task(v).Attempt > 0 || s.Status(v).Ended() })
}

// halfDone returns the steps of a plan that have begun on a node and have not ended.
func halfDone(s *plan.State, id string) (steps []plan.Part) {
	begun, left := map[uint32]bool{}, map[uint32]bool{}
	for _, v := range s.Graph.On(id) {
		at, t := s.Graph.StepOf(v), s.Task(v)
		if s.Graph.Action[v] == model.Barrier || at == plan.NoStep {
			continue
		}
		begun[at] = begun[at] || t.Attempt > 0 || t.Status.Ended()
		left[at] = left[at] || !t.Status.Ended() || t.Status == model.TaskFailed && !t.Tolerated
	}
	for _, at := range slices.Sorted(maps.Keys(begun)) {
		if begun[at] && left[at] {
			steps = append(steps, plan.Step(at))
		}
	}
	return steps
}

// recreates reports whether a main operation must not end yet, because machines of its cluster are being replaced.
func (a endings) recreates(op *model.Operation) bool {
	if op.Type.Concurrent() || op.Type == model.OpDelete {
		return false
	}
	return slices.ContainsFunc(a.operations().others(op), func(o *model.Operation) bool { return o.Type == model.OpRecreateNode })
}

// recreated lets the main operation of a cluster go on when an operation that replaced machines has ended: it begins the steps again that
// were half done on those machines, and ends if it has waited for that.
func (a endings) recreated(op *model.Operation, done *plan.State) {
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	if cl == nil {
		return
	}
	main := table.Get[model.Operation](a.txn, table.Operations, "id", cl.Operation)
	if main == nil || main.Status.Ended() {
		return
	}
	e := a.edit(main.ID)
	if e == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(razed(done))) {
		n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id)
		if n == nil || main.Status == model.OpAborting {
			continue
		}
		steps := halfDone(e.State(), id)
		runs := func(_, service string) bool { return n.States[service] == model.Start.String() }
		undo, repeated := a.plans().relaunched(main, e.State(), steps, runs)
		g := e.State().Graph
		skip := func(v uint32) bool {
			ends := g.Action[v] == model.Stop || g.Action[v] == model.Remove
			return repeated(v) || ends && !runs(id, g.ServiceName(int(v))) // there is nothing to stop on the new machine
		}
		for _, p := range steps {
			if err := e.Restart(p, plan.Order{Undo: undo, Skip: skip, Now: a.now}); err != nil {
				panic(err) // halfDone returns steps of this plan
			}
		}
	}
	a.touch(main.ID)
	a.finish(main, e)
}

// razed returns the nodes whose machines a plan has begun to delete.
func razed(s *plan.State) map[string]bool {
	out := map[string]bool{}
	for v, action := range s.Graph.Action {
		if action == model.Delete && (s.Status(uint32(v)) == model.TaskSucceeded || s.Task(uint32(v)).Attempt > 0) {
			out[s.Graph.NodeID(v)] = true
		}
	}
	return out
}

// unconfigured records that a service has the address of a machine that is gone: a plan was to write the service's configuration with the
// new address, and did not begin with that.
func unconfigured(n *model.Node, s *plan.State) {
	for _, v := range s.Graph.On(n.ID) {
		if s.Graph.Action[v] == model.Configure && s.Status(v) != model.TaskSucceeded && s.Task(v).Attempt == 0 {
			service := s.Graph.ServiceName(int(v))
			m := n.Marks[service]
			m.Config = model.HalfConfigured
			n.Marks[service] = m
		}
	}
}

// fold writes to a node of an operation that has replaced machines what the main operation of its cluster had done there before.
func (a endings) fold(n *model.Node, cl *model.Cluster) {
	main := table.Get[model.Operation](a.txn, table.Operations, "id", cl.Operation)
	if main == nil || main.Status.Ended() {
		return
	}
	s := a.plan(main.ID)
	if s == nil {
		return
	}
	for _, v := range s.Graph.On(n.ID) {
		t := s.Task(v)
		done := t.Status == model.TaskSucceeded
		if s.Graph.Action[v] == model.Barrier || !done && t.Attempt == 0 || s.Inherited(v) || n.Shows(t.Fence, t.EndedAt) {
			continue
		}
		did(n, cl, main, s.Graph.Action[v], s.Graph.ServiceName(int(v)), done)
	}
}

// unmade records that the machine of a node is gone, to be made again with what it had.
func unmade(n *model.Node) {
	clear(n.States)
	for _, service := range slices.Sorted(maps.Keys(n.Marks)) {
		m := n.Marks[service]
		m.Initialized, m.Goal = false, ""
		n.Marks[service] = m
	}
}
