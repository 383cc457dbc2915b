package state

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// startOperation brings an operation with its plan, its cluster and its nodes:
// all of it, or nothing when the cluster has changed since the plan was made.
func (a *applier) startOperation(c *pb.Command, s *pb.StartOperation) Answer {
	op, cl := &model.Operation{}, &model.Cluster{}
	if err := json.Unmarshal(s.Operation, op); err != nil {
		return refuse(ErrUnknown, "operation: %v", err)
	}
	if err := json.Unmarshal(s.Cluster, cl); err != nil {
		return refuse(ErrUnknown, "cluster: %v", err)
	}
	nodes := make([]*model.Node, len(s.Nodes))
	for i, b := range s.Nodes {
		nodes[i] = &model.Node{}
		if err := json.Unmarshal(b, nodes[i]); err != nil {
			return refuse(ErrUnknown, "node %d: %v", i, err)
		}
	}
	graph, err := plan.DecodeGraph(s.Graph)
	if err != nil {
		return refuse(ErrUnknown, "plan: %v", err)
	}
	if err := a.mayStart(c.Tenant, op, cl, s.ClusterVersion, len(nodes)); err != nil {
		return Answer{Err: err}
	}
	op.Status, op.CreatedAt, op.Version = model.OpRunning, a.now, a.index
	cl.Operation, cl.Status, cl.Version = op.ID, model.ClusterPending, a.index
	if s.ClusterVersion == 0 {
		cl.CreatedAt = a.now
		cl.ExpiresAt = model.ExpiryOf(a.now, model.Millis(cl.ExpiresAt))
	}
	a.put(tOperations, op)
	a.put(tClusters, cl)
	for _, n := range nodes {
		n.Version = a.index
		a.put(tNodes, n)
	}
	a.put(tPlans, &planRow{Operation: op.ID, State: plan.NewState(graph)})
	a.operationEvent(op)
	e := a.edit(op.ID)
	a.batch.Operations[op.ID] = nil
	ans := Answer{Subject: op.ID}
	if s.Lease != nil {
		s.Lease.Operation = op.ID
		ans.Refused = a.lease(s.Lease).Refused
	}
	a.settle(op, e)
	return ans
}

func (a *applier) mayStart(tenant string, op *model.Operation, cl *model.Cluster, version uint64, nodes int) error {
	if err := a.tenant(tenant); err != nil {
		return err
	}
	if get[model.Operation](a.txn, tOperations, "id", op.ID) != nil {
		return fmt.Errorf("%w: operation %s exists", ErrConflict, op.ID)
	}
	have := get[model.Cluster](a.txn, tClusters, "id", tenant, cl.ID)
	switch {
	case have == nil && version != 0:
		return fmt.Errorf("%w: there is no cluster %s", ErrNotFound, cl.ID)
	case have != nil && version == 0:
		return fmt.Errorf("%w: cluster %s exists", ErrConflict, cl.ID)
	case have == nil:
		return a.quota(tenant, cl, nodes)
	case have.Version != version:
		return fmt.Errorf("%w: cluster %s, since this was planned: ask again", ErrStale, cl.ID)
	}
	if last := get[model.Operation](a.txn, tOperations, "id", have.Operation); last != nil && !last.Status.Ended() {
		return fmt.Errorf("%w: operation %s (%s) of cluster %s is %s: wait for it, or abort it", ErrConflict, last.ID, last.Type, have.Name, last.Status)
	}
	return nil
}

// quota checks a new cluster against what its tenant may have, and that no
// living cluster has its name.
func (a *applier) quota(tenant string, cl *model.Cluster, nodes int) error {
	t := get[model.Tenant](a.txn, tTenants, "id", tenant)
	clusters, total := 0, 0
	var same *model.Cluster
	each(a.txn, tClusters, "id_prefix", func(have *model.Cluster) bool {
		if have.Status != model.ClusterTerminated {
			clusters++
			if have.Name == cl.Name {
				same = have
			}
		}
		return true
	}, tenant)
	if same != nil {
		return fmt.Errorf("%w: cluster %s has the name %q already: choose another, or delete that one first", ErrConflict, same.ID, cl.Name)
	}
	if t.MaxClusters > 0 && clusters >= t.MaxClusters {
		return fmt.Errorf("%w: tenant %s may have %d clusters and has them", ErrQuota, tenant, t.MaxClusters)
	}
	if t.MaxNodes > 0 {
		each(a.txn, tNodes, "id_prefix", func(*model.Node) bool { total++; return true }, tenant)
		if total+nodes > t.MaxNodes {
			return fmt.Errorf("%w: tenant %s may have %d nodes, has %d, and this cluster needs %d", ErrQuota, tenant, t.MaxNodes, total, nodes)
		}
	}
	return nil
}

// control carries out an operator's order.
func (a *applier) control(c *pb.Command, o *pb.ControlOperation) Answer {
	have := get[model.Operation](a.txn, tOperations, "id", o.Operation)
	if have == nil || (c.Tenant != "" && have.Tenant != c.Tenant) {
		return refuse(ErrNotFound, "there is no operation %q", o.Operation)
	}
	if have.Status.Ended() {
		return refuse(ErrConflict, "operation %s has ended: it is %s", have.ID, have.Status)
	}
	op := *have
	e := a.edit(op.ID)
	switch o.Order {
	case "pause":
		if op.Status != model.OpRunning {
			return refuse(ErrConflict, "operation %s is %s, and only a running one can be paused", op.ID, op.Status)
		}
		op.Status, op.Message = model.OpPaused, o.Reason
	case "resume":
		if op.Status != model.OpPaused {
			return refuse(ErrConflict, "operation %s is %s, and only a paused one can be resumed", op.ID, op.Status)
		}
		op.Status, op.Message = model.OpRunning, ""
		a.reopen(e)
	case "abort":
		if op.Status == model.OpAborting {
			return Answer{Subject: op.ID}
		}
		op.Status, op.Message = model.OpAborting, "aborted by "+c.Actor
		if o.Reason != "" {
			op.Message += ": " + o.Reason
		}
		e.CancelWaiting(a.now)
	default:
		return refuse(ErrUnknown, "order %q: it must be pause, resume or abort", o.Order)
	}
	op.Version = a.index
	a.put(tOperations, &op)
	a.event(model.Event{Type: "operation.order", Tenant: op.Tenant, Cluster: op.Cluster, Operation: op.ID, Status: o.Order, Actor: c.Actor, Message: o.Reason})
	a.operationEvent(&op)
	a.touch(op.ID)
	a.settle(&op, e)
	return Answer{Subject: op.ID}
}

// reopen gives failed tasks a new round of attempts.
func (a *applier) reopen(e *plan.Edit) {
	if e.State().Count(model.TaskFailed) == 0 {
		return
	}
	for v := range e.State().Graph.Len() {
		e.Reopen(uint32(v))
	}
}

// failed decides what the end of a task's last attempt means for its operation
// (spec/planner.md, "Transactions" 7).
func (a *applier) failed(have *model.Operation, e *plan.Edit, v uint32, message string) {
	have = get[model.Operation](a.txn, tOperations, "id", have.ID)
	if have.Status != model.OpRunning && have.Status != model.OpPaused {
		return
	}
	op := *have
	op.Version = a.index
	op.Message = e.State().Graph.Name(int(v)) + " failed: " + message
	if op.OnFailure == "pause" {
		op.Status = model.OpPaused
	} else {
		op.Status = model.OpAborting
		e.CancelWaiting(a.now)
	}
	a.put(tOperations, &op)
	a.operationEvent(&op)
	a.touch(op.ID)
}

// settle ends an operation whose tasks have come to an end.
func (a *applier) settle(have *model.Operation, e *plan.Edit) {
	have = get[model.Operation](a.txn, tOperations, "id", have.ID)
	s := e.State()
	op := *have
	switch {
	case op.Status.Ended():
		return
	case op.Status == model.OpAborting && s.Held() == 0:
		op.Status = model.OpAborted
		if s.Count(model.TaskFailed) > 0 {
			op.Status = model.OpFailed
		}
	case op.Status != model.OpAborting && s.Complete():
		op.Status, op.Message = model.OpSucceeded, ""
	default:
		return
	}
	op.EndedAt, op.Version = a.now, a.index
	a.put(tOperations, &op)
	a.settleNodes(&op, s)
	a.settleCluster(&op)
	a.operationEvent(&op)
	a.touch(op.ID)
}

// settleNodes writes to the nodes what the operation's tasks did to them. It
// is done once, at the end: a write for every task would cost more than the
// tasks. Until then readers take it from the plan.
func (a *applier) settleNodes(op *model.Operation, s *plan.State) {
	changed := map[int32]*model.Node{}
	g := s.Graph
	for v := range g.Len() {
		if g.Action[v] == model.Barrier || s.Status(uint32(v)) != model.TaskSucceeded {
			continue
		}
		n := changed[g.Node[v]]
		if n == nil {
			have := get[model.Node](a.txn, tNodes, "id", op.Tenant, g.NodeID(v))
			if have == nil {
				continue
			}
			n = &model.Node{}
			*n = *have
			n.States = maps.Clone(have.States)
			if n.States == nil {
				n.States = map[string]string{}
			}
			changed[g.Node[v]] = n
		}
		switch act := g.Action[v]; {
		case act == model.Create:
			n.Created = true
		case act == model.Delete:
			n.Created = false
		case act.PerNode():
		case act == model.Remove:
			delete(n.States, g.ServiceName(v))
		case act == model.Configure && n.States[g.ServiceName(v)] == model.Start.String():
			// It still runs, and planning must be able to tell.
		default:
			n.States[g.ServiceName(v)] = act.String()
		}
	}
	for _, n := range changed {
		n.Version = a.index
		if op.Type == model.OpDelete && !n.Created {
			a.removeNode(n)
			continue
		}
		a.put(tNodes, n)
	}
}

func (a *applier) removeNode(n *model.Node) {
	for _, r := range list[valueRow](a.txn, tValues, "id_prefix", n.ID) {
		a.remove(tValues, r)
	}
	a.remove(tNodes, n)
	a.event(model.Event{Type: "node.removed", Tenant: n.Tenant, Cluster: n.Cluster, Subject: n.ID})
}

// settleCluster gives the cluster the status that its operation's end means
// (spec/coopr.md 1.3).
func (a *applier) settleCluster(op *model.Operation) {
	have := get[model.Cluster](a.txn, tClusters, "id", op.Tenant, op.Cluster)
	if have == nil {
		return
	}
	cl := *have
	cl.Version, cl.Message = a.index, op.Message
	good := op.Status == model.OpSucceeded
	switch {
	case good && op.Type == model.OpDelete:
		cl.Status = model.ClusterTerminated
		for _, n := range list[model.Node](a.txn, tNodes, "cluster", op.Tenant, op.Cluster) {
			a.removeNode(n)
		}
	case good:
		cl.Status = model.ClusterActive
	case op.Type == model.OpCreate || op.Type == model.OpDelete:
		cl.Status = model.ClusterIncomplete
	default:
		cl.Status = model.ClusterInconsistent
	}
	a.put(tClusters, &cl)
	a.event(model.Event{Type: "cluster.changed", Tenant: cl.Tenant, Cluster: cl.ID, Subject: cl.Name, Status: string(cl.Status), Message: cl.Message})
}

func (a *applier) operationEvent(op *model.Operation) {
	a.event(model.Event{Type: "operation.changed", Tenant: op.Tenant, Cluster: op.Cluster, Operation: op.ID, Subject: string(op.Type), Status: string(op.Status), Actor: op.Actor, Message: op.Message})
}
