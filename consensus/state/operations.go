package state

import (
	"errors"
	"maps"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// operations starts operations and carries out orders about them and about clusters.
type operations struct{ *writer }

// startOperation writes an operation with its plan, its cluster and its nodes. It writes nothing if
// the cluster changed after the plan was made.
func (a operations) startOperation(c *pb.Command, s *pb.StartOperation) Answer {
	op, err1 := logformat.DecodeOperation(s.Operation)
	cl, err2 := logformat.DecodeCluster(s.Cluster)
	if err := errors.Join(err1, err2); err != nil {
		return refuse(problem.Unsupported, "%v", err)
	}
	nodes := make([]*model.Node, len(s.Nodes))
	for i, m := range s.Nodes {
		n, err := logformat.DecodeNode(m)
		if err != nil {
			return refuse(problem.Unsupported, "node %d: %v", i, err)
		}
		nodes[i] = n
	}
	graph, err := plan.DecodeGraph(s.Graph)
	if err != nil {
		return refuse(problem.Unsupported, "plan: %v", err)
	}
	var phases *tree.Tree
	if s.Tree != nil {
		if phases, err = table.PlanTree(graph, s.Tree); err != nil {
			return refuse(problem.Unsupported, "plan: %v", err)
		}
	}
	if op.Type.Concurrent() {
		return a.startConcurrent(c, op, &table.PlanRow{Operation: op.ID, State: a.newPlan(op, graph), Tree: phases}, s.Lease)
	}
	if err := a.mayStart(c.Tenant, op, cl, s.ClusterVersion, nodes); err != nil {
		return Answer{Err: err}
	}
	if err := a.sealed().thereInCluster(cl, table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, cl.ID)); err != nil {
		return Answer{Err: err}
	}
	if err := a.leaseEnded(c.Tenant, cl.ID, s.LeaseEndedMs); err != nil {
		return Answer{Err: err}
	}
	for _, d := range s.MadeFrom {
		if table.Latest(a.txn, c.Tenant, d.Kind, d.Name) == nil {
			return refuse(problem.Stale, "%s/%s was deleted while the operation was planned; run the command again", d.Kind, d.Name)
		}
	}
	e := a.newPlan(op, graph).Edit()
	if err := e.Inherit(s.Done, a.now); err != nil {
		return refuse(problem.Unsupported, "tasks that are done: %v", err)
	}
	state, before := e.Done(), a.queue().unqueue(op.ID)
	op.Status, op.CreatedAt, op.Version = model.OpRunning, a.now, a.index
	if s.ClusterVersion == 0 {
		cl.CreatedAt = a.now
		cl.ExpiresAt = model.ExpiryOf(a.now, model.Millis(s.LifetimeMs))
	} else {
		have := *table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, cl.ID)
		// If another operation came between, a rollback must not undo that one too.
		last := table.Get[model.Operation](a.txn, table.Operations, "id", have.Operation)
		if op.Before = before; last == nil || before == 0 || before != last.Before {
			op.Before = a.endings().remember(&have, op, model.MomentBefore)
		}
		cl.Snapshots = have.Snapshots
		// Separate orders set these, which planning does not see.
		cl.RecoveryPaused, cl.Labels, cl.ExpiresAt, cl.WarnedOf = have.RecoveryPaused, have.Labels, have.ExpiresAt, have.WarnedOf
	}
	op.Resources = a.resources().currentResources(c.Tenant)
	cl.Operation, cl.Status, cl.Version, cl.Resources = op.ID, model.ClusterPending, a.index, op.Resources
	a.put(table.Operations, op)
	a.put(table.Clusters, cl)
	a.counts.Add(c.Tenant, model.LimitNodes.Name, a.freshNodes(c.Tenant, cl, nodes))
	for _, n := range nodes {
		n.Version = a.index
		a.put(table.Nodes, n)
	}
	a.put(table.Plans, &table.PlanRow{Operation: op.ID, State: state, Tree: phases})
	a.operationEvent(op)
	gone := deleted(graph)
	a.supersede(op, gone)
	if op.Type == model.OpReplaceNode {
		a.health().recovering(op, graph, gone, c.Actor == model.Self)
	}
	e = a.edit(op.ID)
	a.plans().arm(op, e)
	a.batch.Operations[op.ID] = nil
	ans := Answer{Subject: op.ID}
	if s.Lease != nil {
		s.Lease.Operation = op.ID
		ans.Refused = a.tasks().lease(s.Lease).Refused
	}
	a.endings().finish(op, e)
	return ans
}

func (a operations) mayStart(tenant string, op *model.Operation, cl *model.Cluster, version uint64, nodes []*model.Node) error {
	if err := a.tenant(tenant); err != nil {
		return err
	}
	if was := table.Get[model.Operation](a.txn, table.Operations, "id", op.ID); was != nil && was.Status != model.OpAccepted {
		return problem.New(problem.Conflict, "operation %s exists", op.ID)
	}
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", tenant, cl.ID)
	switch {
	case have == nil && version != 0:
		return problem.New(problem.NotFound, "there is no cluster %s", cl.ID)
	case have != nil && version == 0:
		return problem.New(problem.Conflict, "cluster %s exists", cl.ID)
	case have == nil:
		return a.quota(tenant, cl, op, len(nodes))
	case have.Version != version:
		return problem.New(problem.Stale, "cluster %s changed while the operation was planned; run the command again", cl.ID)
	}
	last := table.Get[model.Operation](a.txn, table.Operations, "id", have.Operation)
	if last != nil && !last.Status.Ended() && !undoes(op, last) {
		return problem.New(problem.Conflict, "operation %s (%s) of cluster %s is %s: wait for it, or abort it", last.ID, last.Type, have.Name,
			last.Status)
	}
	if op.Type == model.OpRollback {
		return nil // a rollback returns to the nodes that there were
	}
	if table.Get[model.Operation](a.txn, table.Operations, "id", op.ID) == nil { // one that waited is counted already
		if err := a.operationRoom(tenant, op); err != nil {
			return err
		}
	}
	more := 0
	for _, n := range nodes {
		switch had := table.Get[model.Node](a.txn, table.Nodes, "id", tenant, n.ID); {
		case had == nil:
			more++
		case n.Leaves:
			more--
		}
	}
	return a.room(tenant, model.LimitNodes, model.LimitNodes.Name, int64(more))
}

// operationRoom checks that a tenant may begin another operation. What the mesh does by itself, and what removes things,
// needs no room.
func (a operations) operationRoom(tenant string, op *model.Operation) error {
	if op.Actor == model.Self || op.Type == model.OpDelete || op.Type == model.OpRollback {
		return nil
	}
	return a.roomForOne(tenant, model.LimitOperations)
}

// undoes reports whether op is the rollback for which a failed operation waits.
func undoes(op, failed *model.Operation) bool {
	return op.Type == model.OpRollback && op.Follows == failed.ID && failed.Status == model.OpRollingBack
}

// quota checks that a new cluster fits its tenant's limits, and that no living cluster has its
// name.
func (a operations) quota(tenant string, cl *model.Cluster, op *model.Operation, nodes int) error {
	var same *model.Cluster
	table.Each(a.txn, table.Clusters, "name", func(have *model.Cluster) bool {
		if have.Status != model.ClusterTerminated {
			same = have
		}
		return same == nil
	}, tenant, cl.Name)
	if same != nil {
		return problem.New(problem.Conflict, "cluster %s has the name %q already: choose another, or delete that one first", same.ID, cl.Name)
	}
	if err := a.roomForOne(tenant, model.LimitClusters); err != nil {
		return err
	}
	if err := a.operationRoom(tenant, op); err != nil {
		return err
	}
	return a.room(tenant, model.LimitNodes, model.LimitNodes.Name, int64(nodes))
}

// controlCluster carries out an order about a cluster.
func (a operations) controlCluster(c *pb.Command, o *pb.ControlCluster) Answer {
	switch o.Order {
	case pb.ClusterOrder_CLUSTER_ORDER_RESOLVE:
		return a.resolve(c, o)
	case pb.ClusterOrder_CLUSTER_ORDER_PAUSE_RECOVERY, pb.ClusterOrder_CLUSTER_ORDER_RESUME_RECOVERY:
		return a.pauseRecovery(c, o)
	case pb.ClusterOrder_CLUSTER_ORDER_LABEL:
		return a.label(c, o)
	case pb.ClusterOrder_CLUSTER_ORDER_LEASE, pb.ClusterOrder_CLUSTER_ORDER_WARN:
		return a.lease(c, o)
	}
	return refuse(problem.Unsupported, "order %d about cluster %s is unknown to this build", o.Order, o.Cluster)
}

// control carries out an order about an operation.
func (a operations) control(c *pb.Command, o *pb.ControlOperation) Answer {
	have := table.Get[model.Operation](a.txn, table.Operations, "id", o.Operation)
	if have == nil || (c.Tenant != "" && have.Tenant != c.Tenant) {
		return refuse(problem.NotFound, "there is no operation %q", o.Operation)
	}
	if o.Order == pb.OperationOrder_OPERATION_ORDER_STOP_RETRYING {
		op := *have
		op.Retry, op.Version = nil, a.index
		a.put(table.Operations, &op)
		a.touch(op.ID)
		return Answer{Subject: op.ID}
	}
	if have.Status.Ended() {
		return refuse(problem.Conflict, "operation %s has ended: it is %s", have.ID, have.Status)
	}
	if have.Status == model.OpAccepted {
		return a.queue().controlQueued(c, o, have)
	}
	op := *have
	e := a.edit(op.ID)
	switch o.Order {
	case pb.OperationOrder_OPERATION_ORDER_PAUSE:
		if op.Status != model.OpRunning {
			return refuse(problem.Conflict, "operation %s is %s, and only a running one can be paused", op.ID, op.Status)
		}
		op.Status, op.Message = model.OpPaused, o.Reason
	case pb.OperationOrder_OPERATION_ORDER_RESUME:
		if op.Status != model.OpPaused {
			return refuse(problem.Conflict, "operation %s is %s, and only a paused one can be resumed", op.ID, op.Status)
		}
		a.plans().resume(&op, e)
	case pb.OperationOrder_OPERATION_ORDER_ABORT, pb.OperationOrder_OPERATION_ORDER_ROLLBACK:
		if op.Status == model.OpRollingBack {
			return refuse(problem.Conflict, "operation %s is being rolled back: give orders to its rollback", op.ID)
		}
		undo := o.Order == pb.OperationOrder_OPERATION_ORDER_ROLLBACK
		if undo && op.Type == model.OpRollback {
			return refuse(problem.Conflict, "operation %s is a rollback itself: abort it, or let it go on", op.ID)
		}
		if undo && (op.Before == 0 || op.Type == model.OpCreate) {
			return refuse(problem.Conflict, "operation %s made the cluster: there is nothing to roll back to; abort it, or "+
				"delete the cluster", op.ID)
		}
		if op.Status == model.OpAborting && op.Undo == undo && op.SupersededBy == "" {
			return Answer{Subject: op.ID}
		}
		op.Status, op.Message, op.Undo, op.Retry, op.SupersededBy = model.OpAborting, "aborted by "+c.Actor, undo, nil, ""
		if undo {
			op.Message = "rolled back by " + c.Actor
		}
		if o.Reason != "" {
			op.Message += ": " + o.Reason
		}
		a.tasks().cancelWork(&op, e)
	case pb.OperationOrder_OPERATION_ORDER_GIVE_UP: // the rollback could not be planned
		if op.Status != model.OpRollingBack {
			return Answer{Subject: op.ID}
		}
		op.Status, op.EndedAt, op.Version = model.OpFailed, a.now, a.index
		op.Message += "; it cannot be rolled back: " + o.Reason
		a.put(table.Operations, &op)
		a.operationEvent(&op)
		a.endings().finishCluster(&op)
		a.touch(op.ID)
		return Answer{Subject: op.ID}
	default:
		return refuse(problem.Unsupported, "operation %s takes no such order: it must be pause, resume, abort or rollback", op.ID)
	}
	op.Version = a.index
	a.put(table.Operations, &op)
	a.event(model.Event{Type: "operation.order", Tenant: op.Tenant, Cluster: op.Cluster, Operation: op.ID,
		Status: logformat.OperationOrders.Word(o.Order), Actor: c.Actor, Message: o.Reason})
	a.operationEvent(&op)
	a.touch(op.ID)
	a.endings().finish(&op, e)
	return Answer{Subject: op.ID}
}

// resolve marks a cluster as repaired after an operation left it in disorder, by order of a person
// (docs/spec/planner.md, "Transactions" 9).
func (a operations) resolve(c *pb.Command, o *pb.ControlCluster) Answer {
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, o.Cluster)
	if have == nil {
		return refuse(problem.NotFound, "there is no cluster %q", o.Cluster)
	}
	switch have.Status {
	case model.ClusterFailed, model.ClusterInconsistent, model.ClusterIncomplete:
	default:
		return refuse(problem.Conflict, "cluster %s is %s: there is nothing to resolve", have.Name, have.Status)
	}
	if o.Reason == "" {
		return refuse(problem.Conflict, "cluster %s: the reason is missing: state what was done", have.Name)
	}
	for _, n := range table.List[model.Node](a.txn, table.Nodes, "cluster", have.Tenant, have.ID) {
		if n.Leaves || len(n.Leaving) > 0 { // a rollback that failed leaves these marks
			stays := *n
			stays.Leaves, stays.Leaving, stays.Version = false, nil, a.index
			a.put(table.Nodes, &stays)
		}
	}
	cl := *have
	cl.Status, cl.Message, cl.Version = model.ClusterActive, "resolved by "+c.Actor+": "+o.Reason, a.index
	a.put(table.Clusters, &cl)
	a.event(model.Event{Type: "cluster.changed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Status: string(cl.Status),
		Actor: c.Actor, Message: cl.Message})
	return Answer{Subject: cl.ID}
}

// dropResource checks that a machine may be removed, because it belongs to no node now. It changes
// only the audit log.
func (a operations) dropResource(c *pb.Command, d *pb.DropResource) Answer {
	busy := false
	table.Each(a.txn, table.Operations, "active", func(o *model.Operation) bool {
		// Concurrent operations make and remove no machines, or only while another one is open.
		busy = o.Tenant == c.Tenant && o.Cluster == d.Cluster && !o.Type.Concurrent()
		return !busy
	}, "active")
	known := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, d.Cluster) != nil
	n := table.Get[model.Node](a.txn, table.Nodes, "id", c.Tenant, d.Node)
	if _, orphaned := model.Orphaned(n, known, busy, d.Id); !orphaned {
		return refuse(problem.Conflict, "machine %s belongs to node %s of cluster %s, or may belong to it after a running operation",
			d.Id, d.Node, d.Cluster)
	}
	return Answer{Subject: d.Id}
}

// label sets and removes labels of a cluster.
func (a operations) label(c *pb.Command, o *pb.ControlCluster) Answer {
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, o.Cluster)
	if have == nil {
		return refuse(problem.NotFound, "there is no cluster %q", o.Cluster)
	}
	cl := *have
	cl.Labels = maps.Clone(have.Labels)
	for _, key := range o.Unlabel {
		delete(cl.Labels, key)
	}
	if cl.Labels == nil {
		cl.Labels = map[string]string{}
	}
	maps.Copy(cl.Labels, o.Labels)
	if len(cl.Labels) > model.MaxLabels {
		return refuse(problem.TooMany, "cluster %s would have %d labels: at most %d are allowed", cl.Name, len(cl.Labels), model.MaxLabels)
	}
	if maps.Equal(cl.Labels, have.Labels) {
		return Answer{Subject: cl.ID}
	}
	if len(cl.Labels) == 0 {
		cl.Labels = nil
	}
	a.put(table.Clusters, &cl)
	a.event(model.Event{Type: "cluster.changed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Status: string(cl.Status),
		Actor: c.Actor, Message: logformat.ClusterOrders.Word(o.Order)})
	return Answer{Subject: cl.ID}
}

// pauseRecovery pauses or resumes the automatic recovery of a cluster.
func (a operations) pauseRecovery(c *pb.Command, o *pb.ControlCluster) Answer {
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, o.Cluster)
	if have == nil {
		return refuse(problem.NotFound, "there is no cluster %q", o.Cluster)
	}
	cl := *have
	switch pause := o.Order == pb.ClusterOrder_CLUSTER_ORDER_PAUSE_RECOVERY; {
	case pause == (cl.RecoveryPaused != nil):
		return Answer{Subject: cl.ID}
	case pause:
		cl.RecoveryPaused = &model.RecoveryPause{By: c.Actor, Reason: o.Reason, At: a.now}
	default:
		cl.RecoveryPaused = nil
	}
	a.put(table.Clusters, &cl)
	a.batch.Health = append(a.batch.Health, cl.ID)
	a.event(model.Event{Type: "cluster.changed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Status: string(cl.Status),
		Actor: c.Actor, Message: logformat.ClusterOrders.Word(o.Order)})
	return Answer{Subject: cl.ID}
}
