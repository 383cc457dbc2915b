package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/internal/words"
)

// endings finishes operations: it writes their effects to nodes, health and clusters.
type endings struct{ *writer }

// finish finishes an operation when its plan is complete. It finishes an aborting operation when no
// task is leased any more; one that is to be undone then waits for its rollback.
func (a endings) finish(have *model.Operation, e *plan.Edit) {
	have = table.Get[model.Operation](a.txn, table.Operations, "id", have.ID)
	s := e.State()
	op := *have
	switch {
	case op.Status.Ended(), op.Status == model.OpRollingBack:
		return
	case op.Status == model.OpAborting && s.Held() == 0:
		switch {
		case op.Undo:
			op.Status = model.OpRollingBack
		case op.SupersededBy != "":
			op.Status = model.OpSuperseded
		case s.Count(model.TaskFailed) > 0:
			op.Status = model.OpFailed
		default:
			op.Status = model.OpAborted
		}
	case op.Status != model.OpAborting && s.Complete() && s.Tolerated() > 0 && !mayLack(op.Type):
		op.Status, op.Message = model.OpFailed, fmt.Sprintf("%d tasks failed", s.Count(model.TaskFailed))
	case op.Status != model.OpAborting && s.Complete():
		op.Status, op.Message = model.OpSucceeded, ""
		if s.Graph.Len() == 0 {
			op.Message = "there was nothing to do"
		}
		if n := len(op.Skipped); n > 0 {
			op.Message = words.Count(n, "node") + " left out, as the machine is gone"
		}
		if n := s.Count(model.TaskFailed); s.Tolerated() > 0 && n > 0 {
			op.Message = fmt.Sprintf("%d tasks failed, which maxFailures allows for", n)
		}
	default:
		return
	}
	if a.recreates(&op) {
		return // it ends when that has ended
	}
	op.Version = a.index
	if op.Status.Ended() {
		op.EndedAt = a.now
	}
	a.put(table.Operations, &op)
	a.finishNodes(&op, s)
	if op.Type.Concurrent() {
		a.finishConcurrent(&op, s)
	} else {
		a.finishCluster(&op)
	}
	if op.Type == model.OpReplaceNode && op.Status.Ended() {
		a.replaced(&op, s)
	}
	a.operationEvent(&op)
	a.touch(op.ID)
	switch {
	case op.Type == model.OpRollback && op.Status.Ended():
		a.rolledBack(&op)
	case op.Type == model.OpRecreateNode:
		a.recreated(&op, s)
	}
}

// mayLack reports whether an operation succeeds in spite of tolerated failures. A deletion does
// not, because some machines of the cluster are still there. A restart, pause or resume of nodes
// does not either, because its caller needs the result for every node.
func mayLack(t model.OperationType) bool {
	return t == model.OpPlan || t != model.OpDelete && !t.Concurrent()
}

// rolledBack ends the operation that a rollback undid or failed to undo.
func (a endings) rolledBack(rollback *model.Operation) {
	have := table.Get[model.Operation](a.txn, table.Operations, "id", rollback.Follows)
	again := have != nil && have.Status == model.OpFailed && rollback.Status == model.OpSucceeded // an order restarted the rollback
	if have == nil || have.Status != model.OpRollingBack && !again {
		return
	}
	op := *have
	op.Status, op.EndedAt, op.Version = model.OpRolledBack, a.now, a.index
	if rollback.Status != model.OpSucceeded {
		op.Status = model.OpFailed
		op.Message += "; its rollback " + rollback.ID + " is " + string(rollback.Status)
	}
	a.put(table.Operations, &op)
	a.operationEvent(&op)
	a.touch(op.ID)
}

// finishNodes writes the effects of the operation's tasks to the nodes. It runs once, at the end,
// because a write for every task would cost more than the tasks. Until then readers derive the
// effects from the plan.
func (a endings) finishNodes(op *model.Operation, s *plan.State) {
	changed := map[string]*model.Node{}
	made := map[string]bool{}                // nodes with a task that creates or deletes the machine
	services := map[string]map[string]bool{} // services with a task that was attempted, by node
	lacks := map[string][]string{}           // services with a task that did not succeed, by node
	of := func(id string) *model.Node {
		n := changed[id]
		if n == nil {
			if have := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id); have != nil {
				n = cloneNode(have)
				changed[id] = n
			}
		}
		return n
	}
	g := s.Graph
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	if cl == nil {
		cl = &model.Cluster{}
	}
	nodes := make([]*model.Node, len(g.Nodes))
	var remade map[string]bool
	if op.Type == model.OpRecreateNode {
		remade = razed(s)
	}
	if len(remade) > 0 {
		for i, id := range g.Nodes {
			if nodes[i] = of(id); nodes[i] != nil {
				a.fold(nodes[i], cl)
			}
		}
	}
	numbered := a.view().NumbersStarts()
	for v := range g.Len() {
		if g.Node[v] < 0 { // a barrier, or a task on an agent
			continue
		}
		done := s.Status(uint32(v)) == model.TaskSucceeded
		if !done && g.Service[v] >= 0 {
			lacks[g.NodeID(v)] = append(lacks[g.NodeID(v)], g.ServiceName(v))
		}
		if !done && s.Task(uint32(v)).Attempt == 0 || s.Inherited(uint32(v)) {
			continue
		}
		i := g.Node[v]
		if nodes[i] == nil {
			nodes[i] = of(g.NodeID(v))
		}
		if nodes[i] != nil && !nodes[i].Shows(s.Fence(uint32(v)), s.Task(uint32(v)).EndedAt) {
			did(nodes[i], cl, op, g.Action[v], g.ServiceName(v), done)
			if m, ok := nodes[i].Marks[g.ServiceName(v)]; ok && numbered && g.Action[v] == model.Start {
				m.Started = max(m.Started, s.Fence(uint32(v)))
				nodes[i].Marks[g.ServiceName(v)] = m
			}
			switch id := nodes[i].ID; {
			case g.Action[v] == model.Create || g.Action[v] == model.Delete:
				made[id] = true
			case services[id] == nil:
				services[id] = map[string]bool{g.ServiceName(v): true}
			default:
				services[id][g.ServiceName(v)] = true
			}
		}
	}
	// Concurrent operations leave membership changes to the main operation.
	concurrent := op.Type.Concurrent()
	if a.view().Understands(logformat.OrdersLevel) {
		a.since(op, s, func(other *model.Operation, node string, action model.Action, service string, done bool) {
			if n := of(node); n != nil {
				did(n, cl, other, action, service, done)
			}
		})
		for at, by := range a.overtaken(op, s) {
			if n := changed[at.node]; n != nil {
				by.restore(n, table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, at.node), at.service)
			}
		}
	}
	table.Each(a.txn, table.Nodes, "cluster", func(n *model.Node) bool {
		if !concurrent && (n.Leaves || len(n.Leaving) > 0 || len(n.Back) > 0) {
			of(n.ID)
		}
		return true
	}, op.Tenant, op.Cluster)
	good := op.Status == model.OpSucceeded
	only, apart := a.about(op, g)
	gone := deletions(s)
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		n := changed[id]
		member := !concurrent && (!apart || only[id]) // the operation decides whether the node or its services leave
		if n.Leaves && good && member && !n.Created || op.Type == model.OpDelete && !n.Created {
			a.removeNode(n)
			continue
		}
		if good && member && len(n.Leaving) > 0 {
			n.Leaving = slices.DeleteFunc(slices.Clone(n.Leaving), func(svc string) bool { return slices.Contains(lacks[id], svc) })
			for _, svc := range n.Leaving {
				delete(n.States, svc)
				delete(n.Marks, svc)
			}
			n.Services = n.Staying()
		}
		if len(remade) > 0 {
			n.Recreated, n.RecreatedAt = a.index, a.now
			if !remade[id] {
				unconfigured(n, s)
			}
		}
		if n.Version = a.index; !concurrent {
			if member && (good || op.Type != model.OpRollback) { // an order may restart a failed rollback
				n.Leaves, n.Leaving = false, nil
			}
			if good || op.Type != model.OpRollback || !a.view().Understands(logformat.OrdersLevel) { // an order may let it go on
				backTo(n, op, good)
			}
		}
		a.put(table.Nodes, n)
		switch {
		case !concurrent || op.Type == model.OpRecreateNode:
			a.health().unwatched(n, services[id], made[id] && n.Confirmed, gone[id] > 0)
		case a.view().Understands(logformat.OrdersLevel):
			a.health().started(n, services[id])
		}
	}
}

// since calls fn with the tasks that concurrent operations, which have ended while an operation was under way, carried out on its services
// after it was done with them, in their order. Their effects are the later ones.
func (a endings) since(op *model.Operation, s *plan.State,
	fn func(other *model.Operation, node string, action model.Action, service string, done bool)) {
	gone, latest := deletions(s), latestAttempts(s)
	recreated := func(node string, fence uint64) bool {
		n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, node)
		return n != nil && fence <= n.Recreated
	}
	type effect struct {
		op *model.Operation
		s  *plan.State
		v  uint32
	}
	var all []effect
	for _, other := range table.List[model.Operation](a.txn, table.Operations, "cluster", op.Tenant, op.Cluster) {
		if !other.Type.Concurrent() || !other.Status.Ended() || other.EndedAt < op.CreatedAt || other.Type == model.OpRecreateNode {
			continue // the records of nodes that were recreated show it already
		}
		p := a.plan(other.ID)
		if p == nil {
			continue // it is not kept any more
		}
		for v := range uint32(p.Graph.Len()) {
			at := place{p.Graph.NodeID(int(v)), p.Graph.ServiceName(int(v))}
			if after := latest[at].before(p.Graph.Action[v]); after > 0 && p.Fence(v) > max(after, gone[at.node]) && !p.Inherited(v) &&
				!recreated(at.node, p.Fence(v)) {
				all = append(all, effect{other, p, v})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y effect) int { return cmp.Compare(x.s.Fence(x.v), y.s.Fence(y.v)) })
	for _, e := range all {
		v := int(e.v)
		fn(e.op, e.s.Graph.NodeID(v), e.s.Graph.Action[v], e.s.Graph.ServiceName(v), e.s.Status(e.v) == model.TaskSucceeded)
	}
}

// before returns the snapshot that was taken before an operation, or nil.
func (a endings) before(op *model.Operation) *model.Snapshot {
	return table.Get[model.Snapshot](a.txn, table.History, "id", op.Tenant, op.Cluster, uint32(op.Before))
}

// about reports whether an operation leaves nodes alone that it was not asked about. If so, about
// returns the others: those whose machines it makes or deletes.
func (a endings) about(op *model.Operation, g *plan.Graph) (only map[string]bool, apart bool) {
	b := a.before(op)
	if b == nil || !operation.Apart(op.Type, b.State.Status) {
		return nil, false
	}
	only = map[string]bool{}
	for v, action := range g.Action {
		if action == model.Create || action == model.Delete {
			only[g.NodeID(v)] = true
		}
	}
	return only, true
}

// did records the effect of a task on a node. With done false the effect is uncertain: the task was
// attempted, and no success was reported.
func did(n *model.Node, cl *model.Cluster, op *model.Operation, action model.Action, service string, done bool) {
	switch action {
	case model.Create:
		n.Created, n.Confirmed, n.Broken = true, false, !done // unless done, the machine may exist: its deletion finds out
		return
	case model.Confirm:
		n.Confirmed, n.Broken = done, !done
		return
	case model.Delete:
		n.Created, n.Confirmed, n.Broken = !done, false, !done
		switch {
		case done && op.Type == model.OpRecreateNode:
			unmade(n)
		case done:
			clear(n.States)
			clear(n.Marks)
		}
		return
	case model.Bootstrap, model.Check, model.Run:
		return
	}
	n.Touch(cl, op, action, service, done)
	view.Reach(n, action, service, done)
}

func (a endings) removeNode(n *model.Node) {
	for _, r := range table.List[table.ValueRow](a.txn, table.Values, "id_prefix", n.ID) {
		a.remove(table.Values, r)
	}
	if have := table.Get[model.Node](a.txn, table.Nodes, "id", n.Tenant, n.ID); have != nil {
		a.remove(table.Nodes, have)
	}
	if h := table.Get[model.NodeHealth](a.txn, table.Health, "id", n.Tenant, n.ID); h != nil {
		a.remove(table.Health, h)
	}
	a.event(model.Event{Type: "node.removed", Tenant: n.Tenant, Cluster: n.Cluster, Subject: n.ID})
}

// finishCluster sets the cluster's status after its operation ended (docs/spec/coopr.md 1.3), and
// takes a snapshot of the result. It removes all snapshots of a deleted cluster.
func (a endings) finishCluster(op *model.Operation) {
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	if have == nil {
		return
	}
	cl := *have
	if cl.Version, cl.Message = a.index, op.Message; op.Status == model.OpSucceeded {
		cl.Message = ""
	}
	if op.Status.Ended() {
		cl.LacksMachines, cl.ReturnTo = false, 0
	}
	moment := model.MomentFailed
	switch {
	case op.Status == model.OpSucceeded && op.Type == model.OpDelete:
		moment = model.MomentAfter
		cl.Status = model.ClusterTerminated
		a.queue().dropQueue(&cl)
		for _, n := range table.List[model.Node](a.txn, table.Nodes, "cluster", op.Tenant, op.Cluster) {
			a.removeNode(n)
		}
	case op.Status == model.OpSucceeded:
		moment = model.MomentAfter
		cl.Status = model.ClusterActive
		a.arrived(&cl, op)
		a.dropServices(&cl)
		if to := table.Get[model.Snapshot](a.txn, table.History, "id", cl.Tenant, cl.ID, uint32(op.To)); to != nil {
			cl.Status, cl.Message, cl.LacksMachines = to.State.Status, to.State.Message, to.State.LacksMachines
		}
		a.leftUndone(&cl, op)
	case op.Status == model.OpRollingBack:
	case op.Type == model.OpRollback, op.Undo:
		cl.Status = model.ClusterFailed
		cl.ReturnTo = cmp.Or(op.To, op.Before)
		cl.Message += fmt.Sprintf("; when that is repaired: `coopr cluster rollback %s --to %d`", cl.Name, cl.ReturnTo)
	case a.before(op) != nil && operation.Apart(op.Type, a.before(op).State.Status):
		before := a.before(op).State
		cl.Status, cl.Message, cl.ReturnTo = before.Status, before.Message, before.ReturnTo
	case op.Type == model.OpCreate && !op.Done, op.Type == model.OpDelete:
		cl.Status = model.ClusterIncomplete
	default:
		cl.Status = model.ClusterInconsistent
	}
	if cl.Status == model.ClusterTerminated {
		for _, s := range table.List[model.Snapshot](a.txn, table.History, "id_prefix", cl.Tenant, cl.ID) {
			a.remove(table.History, s)
		}
	} else {
		a.remember(&cl, op, moment)
	}
	a.put(table.Clusters, &cl)
	a.event(model.Event{Type: "cluster.changed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Status: string(cl.Status),
		Message: cl.Message})
}

// dropServices removes the services that no node carries any more.
func (a endings) dropServices(cl *model.Cluster) {
	on := map[string]bool{}
	table.Each(a.txn, table.Nodes, "cluster", func(n *model.Node) bool {
		for _, s := range n.Services {
			on[s] = true
		}
		return true
	}, cl.Tenant, cl.ID)
	if len(on) == len(cl.Services) && len(on) == len(cl.Definitions) {
		return
	}
	cl.Services = slices.Sorted(maps.Keys(on))
	cl.Definitions = maps.Clone(cl.Definitions)
	maps.DeleteFunc(cl.Definitions, func(name string, _ model.Service) bool { return !on[name] })
}

// cloneNode returns a copy of a node for changes.
func cloneNode(have *model.Node) *model.Node {
	n := *have
	if n.States = maps.Clone(n.States); n.States == nil {
		n.States = map[string]string{}
	}
	if n.Marks = maps.Clone(n.Marks); n.Marks == nil {
		n.Marks = map[string]model.Mark{}
	}
	n.Services = slices.Clone(n.Services)
	return &n
}
