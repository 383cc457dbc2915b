package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// others returns the other active operations of an operation's cluster, except those that are
// being rolled back.
func (a operations) others(op *model.Operation) []*model.Operation {
	var out []*model.Operation
	table.Each(a.txn, table.Operations, "active", func(o *model.Operation) bool {
		if o.ID != op.ID && o.Tenant == op.Tenant && o.Cluster == op.Cluster && o.Status != model.OpRollingBack {
			out = append(out, o)
		}
		return true
	}, "active")
	return out
}

// taken returns the nodes that other operations of the cluster hold, by id.
func (a operations) taken(op *model.Operation) map[string]bool {
	var out map[string]bool
	for _, other := range a.others(op) {
		s := a.plan(other.ID)
		if s == nil {
			continue
		}
		held := a.holds(op, other, s)
		var mine map[string]bool
		if len(held) > 0 && precedes(op, other) {
			mine = a.begunToo(op, other)
		}
		for _, w := range held {
			id := s.Graph.Nodes[w.Node]
			if mine[id] && !slices.ContainsFunc(s.Graph.On(id), func(v uint32) bool { return s.Status(v).Held() }) {
				continue // this one goes first
			}
			if out == nil {
				out = map[string]bool{}
			}
			out[id] = true
		}
	}
	return out
}

// begunToo returns the nodes that an operation keeps from another one. Two may have begun on the same node: one that is paused, or has
// failed, leaves it to the other, and is resumed later. Then the one that precedes goes on to its end there, between the tasks of the
// other, which waits for it. Else each would wait for the other for ever.
func (a operations) begunToo(op, other *model.Operation) map[string]bool {
	s := a.plan(op.ID)
	if s == nil || !a.view().Understands(logformat.OrdersLevel) {
		return nil
	}
	out := map[string]bool{}
	for _, w := range a.holds(other, op, s) {
		out[s.Graph.Nodes[w.Node]] = true
	}
	return out
}

// precedes reports whether an operation goes first where two have begun: orders about single nodes, then plans of the template.
func precedes(op, other *model.Operation) bool {
	rank := func(t model.OperationType) int {
		switch t {
		case model.OpRecover, model.OpPauseNode, model.OpResumeNode, model.OpRecreateNode:
			return 0
		case model.OpPlan:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(op.Type), rank(other.Type)), strings.Compare(op.ID, other.ID)) < 0
}

// holds returns what another operation, whose plan is s, keeps from an operation.
func (a operations) holds(op, other *model.Operation, s *plan.State) []view.Work {
	switch op.Type {
	case model.OpRecover, model.OpPauseNode, model.OpResumeNode, model.OpRecreateNode:
		return a.view().AtWork(other, s)
	}
	return a.view().Holds(other, s)
}

// mayRunConcurrently checks that a new operation may run concurrently with the others of its
// cluster. It returns the cluster.
func (a operations) mayRunConcurrently(tenant string, op *model.Operation, g *plan.Graph) (*model.Cluster, error) {
	if err := a.tenant(tenant); err != nil {
		return nil, err
	}
	if table.Get[model.Operation](a.txn, table.Operations, "id", op.ID) != nil {
		return nil, problem.New(problem.Stale, "operation %s exists already; run the command again", op.ID)
	}
	if err := a.operationRoom(tenant, op); err != nil {
		return nil, err
	}
	return a.place(tenant, op, g)
}

// place returns the cluster of an operation. It returns an error if the cluster's other operations
// or its present nodes do not let the operation run concurrently.
func (a operations) place(tenant string, op *model.Operation, g *plan.Graph) (*model.Cluster, error) {
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", tenant, op.Cluster)
	if cl == nil || cl.Status == model.ClusterTerminated {
		return nil, problem.New(problem.NotFound, "there is no cluster %s", op.Cluster)
	}
	if op.Type == model.OpRecreateNode {
		if err := a.view().MayRecreate(cl); err != nil {
			return nil, err
		}
	}
	about := subjects(g)
	for _, other := range a.others(op) {
		s := a.plan(other.ID)
		switch {
		case s == nil:
		case other.Type == model.OpDelete:
			return nil, problem.New(problem.Conflict, "operation %s deletes cluster %s", other.ID, cl.Name)
		case op.Type == model.OpPlan || op.Type == model.OpRun: // it waits for its nodes
		case op.Type == model.OpRecreateNode:
			if err := a.mayRecreate(op, other, s, g); err != nil {
				return nil, err
			}
		case other.Type == model.OpRun:
		case other.Type.Concurrent() && other.Type != model.OpPlan:
			if id, step, clashes := a.unfinished(op, other, s, g, about); clashes {
				return nil, a.clash(other, id, step)
			}
		default:
			for _, w := range a.holds(op, other, s) {
				if id := s.Graph.Nodes[w.Node]; slices.Contains(g.Nodes, id) && !a.takesTurns(op, s, w, about[id]) {
					return nil, a.clash(other, id, w.Step)
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

// apart reports whether an operation clashes only with steps on the same services of its nodes. A restart does: what a step has stopped it
// leaves to that step. A resume of a whole node would lack such services.
func (a operations) apart(op *model.Operation) bool {
	return op.Type == model.OpRecover && a.view().Understands(logformat.OrdersLevel)
}

// unfinished returns the first node that another operation, whose plan is s, has not finished with and that an operation, whose graph is g,
// is about as well, and the step that is not complete. about are the services of g by node. A pause or a resume has finished with a service
// when it ends: only then is the service paused, or not paused any more.
func (a operations) unfinished(op, other *model.Operation, s *plan.State, g *plan.Graph, about map[string][]string) (node string,
	step uint32, clashes bool) {
	lasts := other.Type != model.OpRecover
	for _, id := range g.Nodes {
		if !a.apart(op) && slices.Contains(s.Graph.Nodes, id) {
			return id, plan.NoStep, true
		}
		for _, v := range s.Graph.On(id) {
			if (lasts || !s.Status(v).Ended()) && concerns(s.Graph, v, about[id]) {
				return id, s.Graph.StepOf(v), true
			}
		}
	}
	return "", plan.NoStep, false
}

// takesTurns reports whether an operation on some services of a node need not be refused because of a step that is at work there: it begins
// when that step has ended. A pause waits so for all steps on services, and a restart for those on others.
func (a operations) takesTurns(op *model.Operation, s *plan.State, w view.Work, services []string) bool {
	switch {
	case w.Step == plan.NoStep || !a.view().Understands(logformat.OrdersLevel):
		return false
	case op.Type == model.OpPauseNode:
		services = nil
	case !a.apart(op):
		return false
	}
	for v := range s.Graph.In(plan.Step(w.Step)) {
		if concerns(s.Graph, v, services) {
			return false
		}
	}
	return true
}

// concerns reports whether a task is about one of some services of its node, or about the node itself.
func concerns(g *plan.Graph, v uint32, services []string) bool {
	name := g.ServiceName(int(v))
	return g.Action[v] != model.Barrier && (name == "" || slices.Contains(services, name))
}

// clash returns the refusal of an operation on a node on which a step of another one is at work. If step is plan.NoStep, it is the
// first step there that has not ended.
func (a operations) clash(other *model.Operation, node string, step uint32) error {
	e := a.edit(other.ID)
	for _, v := range e.State().Graph.On(node) {
		if step == plan.NoStep && !e.State().Status(v).Ended() {
			step = e.State().Graph.StepOf(v)
		}
	}
	v, what := a.plans().treeView(other, e), ""
	for _, p := range v.Phases {
		if step >= p.First && step < p.End {
			what = fmt.Sprintf("step %q of phase %q in ", v.StepName(step), p.Name)
		}
	}
	return problem.New(problem.Conflict, "%soperation %s (%s) is at work on node %s: wait for it, or abort it", what, other.ID,
		other.Type, node)
}

// startConcurrent starts a concurrent operation. It writes the operation's own records and the
// health of its nodes. Of the cluster it changes only the version and the number of operations.
func (a operations) startConcurrent(c *pb.Command, op *model.Operation, row *table.PlanRow, lease *pb.Lease) Answer {
	have, err := a.mayRunConcurrently(c.Tenant, op, row.State.Graph)
	if err != nil {
		return Answer{Err: err}
	}
	op.CreatedAt, op.Version, op.Resources = a.now, a.index, a.resources().currentResources(c.Tenant)
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
	nodes := row.State.Graph.Nodes
	if op.Type == model.OpRecreateNode {
		nodes = deleted(row.State.Graph) // others are only configured
		a.supersede(op, nodes)
	}
	if op.Type != model.OpPlan && op.Type != model.OpRun {
		a.health().recovering(op, row.State.Graph, nodes, c.Actor == model.Self)
	}
	e := a.edit(op.ID)
	a.plans().arm(op, e)
	a.touch(op.ID)
	ans := Answer{Subject: op.ID}
	if lease != nil {
		lease.Operation = op.ID
		ans.Refused = a.tasks().lease(lease).Refused
	}
	a.endings().finish(op, e)
	return ans
}

// finishConcurrent finishes a concurrent operation. The records of its nodes show its effects
// already, so that only their health is updated. A service whose restart failed stays unhealthy, and
// the next attempt is scheduled.
func (a endings) finishConcurrent(op *model.Operation, s *plan.State) {
	policy := model.RecoveryPolicy{}
	if have := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster); have != nil {
		policy = have.Template.RecoveryPolicy()
		cl := *have
		cl.Version = a.index
		a.put(table.Clusters, &cl)
	}
	switch op.Type {
	case model.OpPlan, model.OpRun:
		return
	case model.OpRecreateNode:
		a.replaced(op, s)
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
	if a.operations().apart(op) {
		// A later restart of a service, which has ended, has left its own result.
		a.since(op, s, func(other *model.Operation, node string, action model.Action, service string, _ bool) {
			if other.Type == model.OpRecover && action == model.Start {
				about[node] = slices.DeleteFunc(about[node], func(svc string) bool { return svc == service })
			}
		})
	}
	var started map[place]bool
	if op.Type == model.OpPauseNode && a.view().Understands(logformat.OrdersLevel) {
		started = a.startedSince(op, s)
	}
	for _, id := range slices.Sorted(maps.Keys(about)) {
		n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id)
		if n == nil {
			continue
		}
		h := a.health().healthOf(n)
		for _, svc := range about[id] {
			why, bad := failed[id][svc]
			a.finishService(op, h, svc, bad || started[place{id, svc}], why)
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
		a.health().putHealth(h, message)
	}
}

func (a endings) finishService(op *model.Operation, h *model.NodeHealth, svc string, bad bool, why string) {
	switch {
	case op.Type == model.OpPauseNode && bad:
		if h.Paused[svc] != model.Paused || !a.view().Understands(logformat.OrdersLevel) { // it was paused before
			delete(h.Paused, svc)
		}
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
func (a endings) replaced(op *model.Operation, s *plan.State) {
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
		h := a.health().healthOf(n)
		if made[id] {
			if h.Machine == "" {
				h.Machine, h.GoneSince = model.MachineGone, a.now // or it exists, but cannot be used
			}
			h.Next = a.now + policy.Pause(h.Attempts)
			h.GaveUp = h.Attempts >= int(policy.Attempts)
		} else {
			for _, svc := range slices.Sorted(maps.Keys(bad[id])) {
				a.finishService(op, h, svc, true, bad[id][svc])
			}
		}
		a.health().putHealth(h, "operation "+op.ID+" failed here")
	}
}

// supersede aborts the concurrent operations that involve nodes which an operation removes or
// replaces.
func (a operations) supersede(op *model.Operation, gone []string) {
	for _, other := range a.others(op) {
		e := a.edit(other.ID)
		if !other.Type.Concurrent() || e == nil || !slices.ContainsFunc(e.State().Graph.Nodes,
			func(id string) bool { return slices.Contains(gone, id) }) {
			continue
		}
		o := *other
		o.Status, o.Message, o.Version = model.OpAborting, "superseded by operation "+op.ID, a.index
		a.tasks().cancelWork(&o, e)
		a.put(table.Operations, &o)
		a.operationEvent(&o)
		a.touch(o.ID)
		a.endings().finish(&o, e)
	}
}
