package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Busy returns the nodes of a cluster that operations hold, by id, each with the id of its
// operation.
func (v *View) Busy(tenant, cluster string) map[string]string {
	out := map[string]string{}
	for _, op := range v.ActiveOperations() {
		if op.Tenant != tenant || op.Cluster != cluster {
			continue
		}
		if s, ok := v.Plan(op.ID); ok {
			for _, n := range holds(op, s) {
				out[s.Graph.Nodes[n]] = op.ID
			}
		}
	}
	return out
}

// begun returns the indexes of the nodes on which a plan has begun its work and not finished it. It
// examines every task.
func begun(s *plan.State) []int32 {
	const some, left = 1, 2
	seen := make([]uint8, len(s.Graph.Nodes))
	for v, n := range s.Graph.Node {
		if n < 0 {
			continue
		}
		n = s.Graph.Machine(n)
		t := s.Task(uint32(v))
		if t.Attempt > 0 {
			seen[n] |= some
		}
		if !t.Status.Ended() {
			seen[n] |= left
		}
	}
	var out []int32
	for n, is := range seen {
		if is == some|left {
			out = append(out, int32(n))
		}
	}
	return out
}

// holds returns the indexes of the nodes that an operation keeps from the other operations of its
// cluster: those on which it has begun its work and not finished it. A plan of the template may
// have an order between nodes, so that two such plans could wait for each other in a circle. Such a
// plan holds a node one step at a time. While it is not running, it holds only the nodes of steps
// with a leased task.
func holds(op *model.Operation, s *plan.State) []int32 {
	if op.Type == model.OpRun {
		return nil // recovery continues while a program runs
	}
	if op.Type != model.OpPlan {
		return begun(s)
	}
	const some, left, now = 1, 2, 4
	seen := make([]uint8, s.Graph.Steps())
	node := make([]int32, s.Graph.Steps())
	for v, step := range s.Graph.Step {
		if step == plan.NoStep || s.Graph.Node[v] < 0 {
			continue
		}
		node[step] = s.Graph.Node[v]
		switch status := s.Status(uint32(v)); {
		case status.Held():
			seen[step] |= now
		case status == model.TaskUncertain:
			seen[step] |= some | left
		case status.Ended():
			seen[step] |= some
		default:
			seen[step] |= left
		}
	}
	var out []int32
	for step, is := range seen {
		if is&now > 0 || op.Status == model.OpRunning && is == some|left {
			out = append(out, node[step])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// besides returns the other active operations of an operation's cluster, except those that are
// being rolled back.
func (a *applier) besides(op *model.Operation) []*model.Operation {
	var out []*model.Operation
	table.Each(a.txn, table.Operations, "active", func(o *model.Operation) bool {
		if o.ID != op.ID && o.Tenant == op.Tenant && o.Cluster == op.Cluster && o.Status != model.OpRollingBack {
			out = append(out, o)
		}
		return true
	}, "active")
	return out
}

// plan returns the current state of an operation's plan, or nil.
func (a *applier) plan(operation string) *plan.State {
	if e, ok := a.edits[operation]; ok {
		return e.State()
	}
	if row := table.Get[table.PlanRow](a.txn, table.Plans, "id", operation); row != nil {
		return row.State
	}
	return nil
}

// taken returns the nodes that other operations of the cluster hold, by id.
func (a *applier) taken(op *model.Operation) map[string]bool {
	var out map[string]bool
	for _, other := range a.besides(op) {
		if s := a.plan(other.ID); s != nil {
			for _, n := range holds(other, s) {
				if out == nil {
					out = map[string]bool{}
				}
				out[s.Graph.Nodes[n]] = true
			}
		}
	}
	return out
}

// maySide checks that a new operation may run concurrently with the others of its cluster. It
// returns the cluster.
func (a *applier) maySide(tenant string, op *model.Operation, g *plan.Graph) (*model.Cluster, error) {
	if err := a.tenant(tenant); err != nil {
		return nil, err
	}
	if table.Get[model.Operation](a.txn, table.Operations, "id", op.ID) != nil {
		return nil, problem.New(problem.Stale, "operation %s exists already; run the command again", op.ID)
	}
	return a.room(tenant, op, g)
}

// room returns the cluster of an operation. It returns an error if the cluster's other operations
// or its present nodes do not let the operation run concurrently.
func (a *applier) room(tenant string, op *model.Operation, g *plan.Graph) (*model.Cluster, error) {
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", tenant, op.Cluster)
	if cl == nil || cl.Status == model.ClusterTerminated {
		return nil, problem.New(problem.NotFound, "there is no cluster %s", op.Cluster)
	}
	for _, other := range a.besides(op) {
		s := a.plan(other.ID)
		switch {
		case s == nil:
		case other.Type == model.OpDelete:
			return nil, problem.New(problem.Conflict, "operation %s deletes cluster %s", other.ID, cl.Name)
		case op.Type == model.OpPlan || op.Type == model.OpRun: // it waits for its nodes
		case other.Type == model.OpRun:
		case other.Type.Concurrent() && other.Type != model.OpPlan:
			for _, id := range g.Nodes {
				if slices.Contains(s.Graph.Nodes, id) {
					return nil, problem.New(problem.Conflict, "operation %s (%s) is at work on node %s: wait for it, or abort it", other.ID,
						other.Type, id)
				}
			}
		default:
			for _, n := range holds(other, s) {
				if id := s.Graph.Nodes[n]; slices.Contains(g.Nodes, id) {
					return nil, problem.New(problem.Conflict, "operation %s (%s) is at work on node %s: wait for it, or abort it", other.ID,
						other.Type, id)
				}
			}
		}
	}
	for _, id := range g.Nodes {
		if n := table.Get[model.Node](a.txn, table.Nodes, "id", tenant, id); n == nil || n.Leaves {
			return nil, problem.New(problem.Stale, "node %s of cluster %s changed while the operation was planned; run the command again", id,
				cl.Name)
		}
	}
	return cl, nil
}

// startSide starts a concurrent operation. It writes the operation's own records and the health of
// its nodes. Of the cluster it changes only the version and the number of operations.
func (a *applier) startSide(c *pb.Command, op *model.Operation, row *table.PlanRow, lease *pb.Lease) Answer {
	have, err := a.maySide(c.Tenant, op, row.State.Graph)
	if err != nil {
		return Answer{Err: err}
	}
	op.CreatedAt, op.Version, op.Resources = a.now, a.index, a.currentResources(c.Tenant)
	if op.Status = model.OpRunning; op.Type == model.OpPlan {
		op.Status = model.OpPaused // until an operator starts it
	}
	cl := *have
	cl.Operations++
	cl.Version = a.index // an operation planned from the earlier version is planned again
	a.put(table.Clusters, &cl)
	a.put(table.Operations, op)
	a.put(table.Plans, row)
	a.operationEvent(op)
	if op.Type != model.OpPlan && op.Type != model.OpRun {
		a.recovering(op, row.State.Graph, row.State.Graph.Nodes, c.Actor == model.Self)
	}
	e := a.edit(op.ID)
	a.arm(op, e)
	a.touch(op.ID)
	ans := Answer{Subject: op.ID}
	if lease != nil {
		lease.Operation = op.ID
		ans.Refused = a.lease(lease).Refused
	}
	a.settle(op, e)
	return ans
}

// subjects returns the services that a plan has tasks for, by node.
func subjects(g *plan.Graph) map[string][]string {
	out := map[string][]string{}
	for v := range g.Len() {
		if id, s := g.NodeID(v), g.ServiceName(v); id != "" && s != "" && !slices.Contains(out[id], s) {
			out[id] = append(out[id], s)
		}
	}
	return out
}

// recovering updates the health of nodes that an operation is about to restart, pause, resume or
// replace. With byItself the operation counts as another attempt of the recovery controller. A
// person's order resets the count.
func (a *applier) recovering(op *model.Operation, g *plan.Graph, nodes []string, byItself bool) {
	about := subjects(g)
	for _, id := range nodes {
		n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id)
		if n == nil {
			continue
		}
		h := a.healthOf(n)
		h.Operation, h.Replaced, h.GaveUp = op.ID, op.Type == model.OpReplaceNode, false
		if h.Attempts++; !byItself {
			h.Attempts, h.Next = 0, 0
		}
		for _, s := range about[id] {
			switch op.Type {
			case model.OpPauseNode:
				h.Paused[s] = model.Pausing
			case model.OpResumeNode:
				h.Paused[s] = model.Resuming
			}
		}
		a.putHealth(h, fmt.Sprintf("%s by operation %s", op.Type, op.ID))
	}
}

// settleSide finishes a concurrent operation. The records of its nodes show its effects already, so
// that only their health is updated. A service whose restart failed stays unhealthy, and the next
// attempt is scheduled.
func (a *applier) settleSide(op *model.Operation, s *plan.State) {
	policy := model.RecoveryPolicy{}
	if have := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster); have != nil {
		policy = have.Template.RecoveryPolicy()
		cl := *have
		cl.Version = a.index
		a.put(table.Clusters, &cl)
	}
	if op.Type == model.OpPlan || op.Type == model.OpRun {
		return
	}
	failed := map[string]map[string]string{}
	for v := range s.Graph.Len() {
		if s.Graph.Action[v] == model.Barrier || s.Status(uint32(v)) == model.TaskSucceeded || s.Task(uint32(v)).Forced {
			continue
		}
		id := s.Graph.NodeID(v)
		if failed[id] == nil {
			failed[id] = map[string]string{}
		}
		why := ""
		if n := s.Note(uint32(v)); n != nil && len(n.History) > 0 {
			why = n.History[len(n.History)-1].Message
		}
		if failed[id][s.Graph.ServiceName(v)] == "" {
			failed[id][s.Graph.ServiceName(v)] = why
		}
	}
	about := subjects(s.Graph)
	for _, id := range slices.Sorted(maps.Keys(about)) {
		n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id)
		if n == nil {
			continue
		}
		h := a.healthOf(n)
		for _, svc := range about[id] {
			why, bad := failed[id][svc]
			a.settleService(op, h, svc, bad, why)
		}
		if op.Type == model.OpRecover {
			h.Next = a.now + policy.Pause(h.Attempts)
			if bad := len(failed[id]) > 0; !bad {
				h.Machine, h.GoneSince = "", 0
			}
			h.GaveUp = h.Attempts >= int(policy.Attempts)
		}
		message := fmt.Sprintf("operation %s is done", op.ID)
		switch {
		case h.GaveUp && len(failed[id]) > 0:
			message = fmt.Sprintf("recovery gave up after %d attempts", h.Attempts)
		case len(failed[id]) > 0:
			message = fmt.Sprintf("operation %s failed here", op.ID)
		}
		a.putHealth(h, message)
	}
}

func (a *applier) settleService(op *model.Operation, h *model.NodeHealth, svc string, bad bool, why string) {
	switch {
	case op.Type == model.OpPauseNode && bad:
		delete(h.Paused, svc)
	case op.Type == model.OpPauseNode:
		h.Paused[svc] = model.Paused
		delete(h.Services, svc)
	case op.Type == model.OpResumeNode:
		delete(h.Paused, svc)
		fallthrough
	default:
		was := h.Services[svc]
		if delete(h.Services, svc); !bad {
			return // the next check finds out
		}
		now := model.ServiceHealth{Status: model.Unhealthy, Since: a.now, Message: why}
		if was.Status == model.Unhealthy {
			now.Since = was.Since
		}
		h.Services[svc] = now
	}
}

// deleted returns the nodes whose machines a plan deletes.
func deleted(g *plan.Graph) []string {
	var out []string
	for v, action := range g.Action {
		if action == model.Delete {
			out = append(out, g.NodeID(v))
		}
	}
	return out
}

// replaced records the result of a replacement by recovery. Nodes whose replacement did not finish
// are due again after a pause. Services that the operation left half done on other nodes become
// unhealthy.
func (a *applier) replaced(op *model.Operation, s *plan.State) {
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	if cl == nil || op.Plan != model.RecoveryPlan {
		return
	}
	policy := cl.Template.RecoveryPolicy()
	made := map[string]bool{}
	for _, id := range deleted(s.Graph) {
		made[id] = true
	}
	type place struct{ node, service string }
	begun, left := map[place]bool{}, map[place]string{}
	for v := range s.Graph.Len() {
		at := place{s.Graph.NodeID(v), s.Graph.ServiceName(v)}
		t := s.Task(uint32(v))
		switch {
		case s.Graph.Action[v] == model.Barrier:
		case t.Status == model.TaskSucceeded:
			begun[at] = true
		default:
			begun[at] = begun[at] || t.Attempt > 0
			left[at] = "operation " + op.ID + " left it half done"
		}
	}
	bad := map[string]map[string]string{}
	for at, why := range left {
		if made[at.node] || begun[at] {
			if bad[at.node] == nil {
				bad[at.node] = map[string]string{}
			}
			bad[at.node][at.service] = why
		}
	}
	for _, id := range slices.Sorted(maps.Keys(bad)) {
		n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id)
		if n == nil {
			continue
		}
		h := a.healthOf(n)
		if made[id] {
			if h.Machine == "" {
				h.Machine, h.GoneSince = model.MachineGone, a.now // or there, but of no use
			}
			h.Next = a.now + policy.Pause(h.Attempts)
			h.GaveUp = h.Attempts >= int(policy.Attempts)
		} else {
			for _, svc := range slices.Sorted(maps.Keys(bad[id])) {
				a.settleService(op, h, svc, true, bad[id][svc])
			}
		}
		a.putHealth(h, "operation "+op.ID+" failed here")
	}
}

// supersede aborts the concurrent operations that involve nodes which an operation removes or
// replaces.
func (a *applier) supersede(op *model.Operation, gone []string) {
	for _, other := range a.besides(op) {
		e := a.edit(other.ID)
		if !other.Type.Concurrent() || e == nil || !slices.ContainsFunc(e.State().Graph.Nodes,
			func(id string) bool { return slices.Contains(gone, id) }) {
			continue
		}
		o := *other
		o.Status, o.Message, o.Version = model.OpAborting, "superseded by operation "+op.ID, a.index
		a.cancelWork(&o, e)
		a.put(table.Operations, &o)
		a.operationEvent(&o)
		a.touch(o.ID)
		a.settle(&o, e)
	}
}
