package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// plans carries out orders about parts of plans.
type plans struct{ *writer }

// holdsRecovery pauses or resumes the recovery of a cluster if an order is about its whole plan
// "recovery". It reports whether it did so.
func (a plans) holdsRecovery(c *pb.Command, op *model.Operation, o *pb.OrderPlan) bool {
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	if cl == nil || operation.PlanName(op) != model.RecoveryPlan || o.Phase != "" || o.Step != "" {
		return false
	}
	var order pb.ClusterOrder
	switch o.Order {
	case pb.PlanOrder_PLAN_ORDER_INTERRUPT:
		order = pb.ClusterOrder_CLUSTER_ORDER_PAUSE_RECOVERY
	case pb.PlanOrder_PLAN_ORDER_CONTINUE:
		order = pb.ClusterOrder_CLUSTER_ORDER_RESUME_RECOVERY
	default:
		return false
	}
	if (order == pb.ClusterOrder_CLUSTER_ORDER_PAUSE_RECOVERY) == (cl.RecoveryPaused != nil) {
		return false
	}
	who := &pb.Command{Tenant: op.Tenant, Actor: c.Actor}
	return a.operations().pauseRecovery(who, &pb.ControlCluster{Cluster: cl.ID, Order: order}).Err == nil
}

func (a plans) treeView(op *model.Operation, e *plan.Edit) *tree.View {
	v := view.Tree(op, a.trees[op.ID], e.State(), a.now, func(id string) *model.Node {
		return table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id)
	})
	v.Continues = v.Continues && a.view().Understands(logformat.OrdersLevel) // older voters begin such a plan again
	return v
}

// arm closes the gates that are closed when a plan begins.
func (a plans) arm(op *model.Operation, e *plan.Edit) {
	t := a.trees[op.ID]
	custom := op.Type == model.OpPlan
	if t == nil || !t.Canaries() && !custom {
		return
	}
	if err := tree.Set(e, tree.Arm(a.treeView(op, e), custom)); err != nil {
		panic(fmt.Sprintf("state: the gates of operation %s: %v", op.ID, err)) // the tree fits the graph
	}
}

// orderPlan carries out an operator's order about a part of a plan.
func (a plans) orderPlan(c *pb.Command, o *pb.OrderPlan) Answer {
	have := table.Get[model.Operation](a.txn, table.Operations, "id", o.Operation)
	if have == nil || (c.Tenant != "" && have.Tenant != c.Tenant) {
		return refuse(problem.NotFound, "there is no operation %q", o.Operation)
	}
	e := a.edit(have.ID)
	if e == nil {
		return refuse(problem.NotFound, "the plan of operation %s is not kept any more", have.ID)
	}
	held := a.holdsRecovery(c, have, o)
	v := a.treeView(have, e)
	order := logformat.PlanOrders.Word(o.Order)
	revives := a.view().Understands(logformat.OrdersLevel)
	failed := failedForGood(e.State())
	stuck := revives && failed && o.Order != pb.PlanOrder_PLAN_ORDER_STOP && pausedByFailure(have, e.State())
	if stuck && o.Order == pb.PlanOrder_PLAN_ORDER_INTERRUPT {
		v.Interrupted = false // no order has paused it
	}
	r := tree.Give([]*tree.View{v}, tree.Order{Command: order, Plan: v.Name, Phase: o.Phase, Step: o.Step, Params: o.Parameters})
	if r.Code == tree.CodeOK && have.Status.Ended() && asGood(have, o) {
		return Answer{Subject: have.ID}
	}
	if r.Code != tree.CodeOK && held {
		return Answer{Subject: have.ID}
	}
	if r.Code != tree.CodeOK {
		return Answer{Err: &tree.Refusal{Code: r.Code, Message: r.Message}}
	}
	op := *have
	if !revives {
		r.Retry = nil
	}
	if err := a.mayOrder(&op, r); err != nil {
		if held && revives { // the recovery of the cluster is held, and there is no operation to hold
			return Answer{Subject: have.ID}
		}
		return Answer{Err: err}
	}
	orders := plan.Order{End: plan.End{Outcome: "cancelled", Message: order + " by " + c.Actor}, Observe: mustObserve, Now: a.now}
	if !op.Type.Concurrent() && revives {
		orders.Undo, orders.Skip = a.relaunched(&op, e.State(), r.Restart, func(string, string) bool { return false })
	}
	gaveUp := op.Status != model.OpRunning && op.Status != model.OpPaused
	pauses := slices.Contains(r.Gates, tree.Change{Part: plan.Whole(), Gate: plan.GateInterrupt, Shut: true})
	if (gaveUp || stuck) && pauses {
		// The step that failed has begun, and is to wait, too: the operation is paused as a whole.
		r.Gates = slices.DeleteFunc(r.Gates, func(ch tree.Change) bool { return ch.Part == plan.Whole() })
	}
	if len(r.Complete) == 0 && gaveUp && op.Status != model.OpSucceeded && revives && (pauses || goesOn(r, failed, e.State())) {
		e.Revive(orders, !mayLack(op.Type))
	}
	if gaveUp && !revives { // older voters write it first, and the audit log has the order
		a.reopenOperation(&op)
	}
	if err := tree.Apply(e, r, orders); err != nil {
		return refuse(problem.Conflict, "operation %s: %v", op.ID, err)
	}
	switch goes := goesOn(r, failed, e.State()); {
	case !revives:
	case stuck && goes:
		a.resume(&op, e)
	case stuck && pauses:
		a.reopen(e)
		op.Message = order + " by " + c.Actor
	case gaveUp && (goes || pauses):
		if len(r.Complete) > 0 {
			e.Revive(orders, !mayLack(op.Type))
		}
		a.reopenOperation(&op)
		if pauses {
			op.Status, op.Message = model.OpPaused, order+" by "+c.Actor
		}
	}
	if gaveUp && revives && op.Type == model.OpRecover && len(r.Restart) == 0 {
		a.tasks().adoptStarts(&op, e)
	}
	if len(o.Parameters) > 0 || r.Start {
		op.Parameters = maps.Clone(o.Parameters)
		if revives {
			op.Parameters = operation.KeepOld(op.Parameters, have.Parameters)
		}
	}
	if interrupted := e.State().Gates(plan.Whole())&plan.GateInterrupt != 0; interrupted && op.Status == model.OpRunning {
		op.Status, op.Message = model.OpPaused, order+" by "+c.Actor
	} else if !interrupted && op.Status == model.OpPaused && opens(r) {
		a.resume(&op, e)
	}
	op.Version = a.index
	a.put(table.Operations, &op)
	part := order
	for _, name := range []string{o.Phase, o.Step} {
		if name != "" {
			part += " " + name
		}
	}
	a.event(model.Event{Type: "operation.order", Tenant: op.Tenant, Cluster: op.Cluster, Operation: op.ID, Status: order, Actor: c.Actor,
		Message: part})
	a.operationEvent(&op)
	a.touch(op.ID)
	a.endings().finish(&op, e)
	return Answer{Subject: op.ID}
}

// relaunched returns which tasks of parts that are repeated begin with a STOP, and which are not repeated. A service that the parts, or
// something else as runs says, have started, and that the parts do not stop, is stopped before its first task. An INITIALIZE is repeated
// only if its action says so.
func (a plans) relaunched(op *model.Operation, s *plan.State, parts []plan.Part, runs func(node, service string) bool) (undo,
	skip func(v uint32) bool) {
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	if cl == nil {
		return nil, nil
	}
	action := func(v uint32, of model.Action) (model.ServiceAction, bool) {
		d := cl.Definitions[s.Graph.ServiceName(int(v))]
		if n := table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, s.Graph.NodeID(int(v))); n != nil {
			d, _ = cl.DefinitionAt(n.Marks[d.Name], d.Name)
		}
		act, ok := d.Provisioner.Actions[of.Key()]
		return act, ok && d.Runs()
	}
	stopped := map[uint32]bool{}
	for _, p := range parts {
		type place struct{ node, service string }
		first, started, stops := map[place]uint32{}, map[place]bool{}, map[place]bool{}
		for v := range s.Graph.In(p) {
			at := place{s.Graph.NodeID(int(v)), s.Graph.ServiceName(int(v))}
			switch is := s.Graph.Action[v]; is {
			case model.Stop, model.Remove:
				stops[at] = true
			case model.Install, model.Configure, model.Initialize, model.Start:
				if was, ok := first[at]; !ok || is < s.Graph.Action[was] {
					first[at] = v
				}
				started[at] = started[at] || is == model.Start && s.Task(v).Attempt > 0 ||
					runs(at.node, at.service)
			default:
			}
		}
		for at, v := range first {
			if _, can := action(v, model.Stop); can && started[at] && !stops[at] {
				stopped[v] = true
			}
		}
	}
	return func(v uint32) bool { return stopped[v] }, func(v uint32) bool {
		act, _ := action(v, model.Initialize)
		return s.Graph.Action[v] == model.Initialize && !act.Repeat
	}
}

// goesOn reports whether an order, which has been applied to the plan s, lets an operation go on that gave up: one that repeats tasks
// or has them tried again, or that completes the last task that had failed. failed reports whether one had. An order that only holds
// a phase back begins nothing.
func goesOn(r tree.Result, failed bool, s *plan.State) bool {
	if len(r.Complete) > 0 {
		return failed && !failedForGood(s) || s.Complete()
	}
	return len(r.Restart)+len(r.Retry) > 0
}

// pausedByFailure reports whether an operation, a task of which has failed, is paused because of that, and by no order about its plan.
func pausedByFailure(op *model.Operation, s *plan.State) bool {
	return op.Status == model.OpPaused && op.OnFailure == "pause" && s.Gates(plan.Whole())&plan.GateInterrupt == 0
}

// failedForGood reports whether a task failed and is not tolerated.
func failedForGood(s *plan.State) bool {
	for v := range uint32(s.Graph.Len()) {
		if s.Count(model.TaskFailed) == 0 {
			return false
		}
		if s.Status(v) == model.TaskFailed && !s.Task(v).Tolerated {
			return true
		}
	}
	return false
}

// asGood reports whether an order about a plan that has ended needs no work. No task is under way
// that could be stopped, and nodes that were paused or resumed are in that state already.
func asGood(op *model.Operation, o *pb.OrderPlan) bool {
	return o.Order == pb.PlanOrder_PLAN_ORDER_STOP || o.Order == pb.PlanOrder_PLAN_ORDER_START &&
		(op.Type == model.OpPauseNode || op.Type == model.OpResumeNode)
}

// opens reports whether an order lets the whole plan continue.
func opens(r tree.Result) bool {
	return slices.Contains(r.Gates, tree.Change{Part: plan.Whole(), Gate: plan.GateInterrupt})
}

// mustObserve reports whether the effect of a task must be observed before the task runs again.
// The parameter was is the task's status before. A task that a worker holds may be done in part. The
// machine of a CREATE may exist whatever the status is. Idempotent actions need not be observed.
func mustObserve(action model.Action, was model.TaskStatus) bool {
	return observed(action) && (was.Held() || action == model.Create)
}

// resume continues a paused operation. Its failed tasks have a new round of attempts.
func (a plans) resume(op *model.Operation, e *plan.Edit) {
	op.Status, op.Message = model.OpRunning, ""
	if err := e.Release(plan.Whole(), plan.GateInterrupt); err != nil {
		panic(fmt.Sprintf("state: operation %s: %v", op.ID, err)) // every plan has this part
	}
	a.reopen(e)
}

// mayOrder checks that an operation takes orders about its plan. An operation that has ended takes those that let it go on or run tasks
// again, as long as its results still stand.
func (a plans) mayOrder(op *model.Operation, r tree.Result) error {
	if op.SupersededBy != "" {
		return problem.New(problem.Conflict, "operation %s is superseded by operation %s: its plan takes no orders any more", op.ID,
			op.SupersededBy)
	}
	revives := a.view().Understands(logformat.OrdersLevel)
	switch op.Status {
	case model.OpRunning, model.OpPaused:
		return nil
	case model.OpAborting, model.OpRollingBack:
		if op.Status == model.OpRollingBack || op.Undo || !revives {
			return problem.New(problem.Conflict, "operation %s is %s: its plan takes no orders any more", op.ID, op.Status)
		}
	}
	if len(r.Restart) == 0 && !revives {
		return problem.New(problem.Conflict, "operation %s has ended, it is %s: its plan takes no orders any more", op.ID, op.Status)
	}
	again := problem.New(problem.Conflict, "operation %s has ended and is %s, so its tasks cannot be repeated: start another operation",
		op.ID, op.Status)
	switch op.Type {
	case model.OpDelete, model.OpShrink, model.OpRemoveServices, model.OpReplaceNode, model.OpRecreateNode:
		return again // the records of what it removed are gone
	case model.OpRollback:
		if op.Status == model.OpSucceeded {
			return again
		}
	}
	if op.Status != model.OpSucceeded && !revives && !slices.Contains(r.Restart, plan.Whole()) {
		return again // its remaining tasks were cancelled
	}
	g := a.edits[op.ID].State().Graph
	switch op.Type {
	case model.OpPlan, model.OpRecover: // these change no layout
		for _, id := range g.Nodes {
			if table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id) == nil {
				return problem.New(problem.Conflict, "node %s, on which operation %s has tasks, is gone, so they cannot be repeated: start "+
					"another operation", id, op.ID)
			}
		}
		_, err := a.operations().place(op.Tenant, op, g)
		return err
	}
	cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	if cl == nil || cl.Operation != op.ID && !(revives && a.leads(op, cl)) || cl.Status == model.ClusterTerminated {
		return again
	}
	switch {
	case !revives:
	case op.Type == model.OpRollback && op.Status.Ended() && cl.Status != model.ClusterFailed:
		return again // a person has said that the cluster is in order, and its nodes stay
	case op.Type != model.OpRollback && op.Status != model.OpSucceeded && len(deleted(g)) > 0:
		return again // what was to leave stays since it failed
	}
	for _, id := range g.Nodes {
		if table.Get[model.Node](a.txn, table.Nodes, "id", op.Tenant, id) == nil {
			return again
		}
	}
	return nil
}

// leads reports whether an operation that has ended is the one that led to its cluster's present target: those since were rolled back.
func (a plans) leads(op *model.Operation, cl *model.Cluster) bool {
	if last := table.Get[model.Operation](a.txn, table.Operations, "id", cl.Operation); last != nil && !last.Status.Ended() {
		return false
	}
	return slices.ContainsFunc(a.view().Plans(op.Tenant, cl.ID), func(p view.Plan) bool {
		return p.Name == view.DeployPlan && p.Operation.ID == op.ID
	})
}

// reopenOperation continues an operation that has ended.
func (a plans) reopenOperation(op *model.Operation) {
	op.Done = op.Done || op.Status == model.OpSucceeded
	op.Status, op.EndedAt, op.Message, op.Undo, op.Retry = model.OpRunning, 0, "", false, nil
	if op.Type == model.OpRollback {
		op.OnFailure = "pause" // the operator may want to skip a step
	}
	switch op.Type {
	case model.OpPlan:
		return
	case model.OpRecover:
		g := a.edits[op.ID].State().Graph
		a.health().recovering(op, g, g.Nodes, false)
		return
	}
	cl := *table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
	cl.Status, cl.Message, cl.Version, cl.Operation = model.ClusterPending, "", a.index, op.ID
	a.put(table.Clusters, &cl)
	a.event(model.Event{Type: "cluster.changed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Status: string(cl.Status)})
}

// tolerate ends a task that is out of attempts if its phase tolerates the failure. It returns false
// if the phase does not.
func (a plans) tolerate(op *model.Operation, e *plan.Edit, v uint32, fence uint64, unseen bool, end plan.End) (bool, error) {
	t := a.trees[op.ID]
	if t == nil || !t.Tolerates(e.State(), v) {
		return false, nil
	}
	err := e.FailTolerated(v, fence, unseen, end, a.now)
	if errors.Is(err, plan.ErrNoPart) {
		return false, nil
	}
	return true, err
}

// reopen grants failed tasks a new round of attempts.
func (a plans) reopen(e *plan.Edit) {
	if e.State().Count(model.TaskFailed) > 0 {
		e.Reopen(e.State().Graph.In(plan.Whole()))
	}
}
