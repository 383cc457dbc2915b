package state

import (
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// queue changes the operations that wait for their turn.
type queue struct{ *writer }

// maxQueue bounds the operations that wait for their turn on one cluster.
const maxQueue = 32

// queued returns the operations that wait for their turn on a cluster.
func (a queue) queued(tenant, cluster string) []*model.Operation {
	var out []*model.Operation
	table.Each(a.txn, table.Operations, "active", func(op *model.Operation) bool {
		if op.Tenant == tenant && op.Cluster == cluster && op.Status == model.OpAccepted {
			out = append(out, op)
		}
		return true
	}, "active")
	return out
}

// add adds an operation to those that wait for their turn on a cluster.
func (a queue) add(c *pb.Command, q *pb.QueueOperation) Answer {
	op, err1 := logformat.DecodeOperation(q.Operation)
	req, err2 := logformat.DecodeOperationRequest(q.Request)
	if err := errors.Join(err1, err2); err != nil {
		return refuse(problem.Unsupported, "%v", err)
	}
	have := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, op.Cluster)
	switch {
	case have == nil || have.Status == model.ClusterTerminated:
		return refuse(problem.NotFound, "there is no cluster %s", op.Cluster)
	case have.Version != q.ClusterVersion || table.Get[model.Operation](a.txn, table.Operations, "id", op.ID) != nil:
		return refuse(problem.Stale, "cluster %s changed after the operation was requested; run the command again", op.Cluster)
	case len(a.queued(c.Tenant, op.Cluster)) >= maxQueue:
		return refuse(problem.Conflict, "%d operations wait for cluster %s already", maxQueue, have.Name)
	}
	if q.Supersedes == "" { // else another one ends for it
		if err := a.operations().operationRoom(c.Tenant, op); err != nil {
			return Answer{Err: err}
		}
	}
	if err := a.sealed().thereIn(c.Tenant, req.ProviderFields, have.Provider.Provisioner); err != nil {
		return Answer{Err: err}
	}
	if err := a.sealed().thereIn(c.Tenant, req.Config, have.Config); err != nil && a.sealed().anywhere() {
		return Answer{Err: err}
	}
	var open *model.Operation
	if q.Supersedes != "" {
		var err error
		if open, err = a.superseded(have, q, op.Type); err != nil {
			return Answer{Err: err}
		}
		op.Before, op.Restored = open.Before, open.Restored // what open did after the archive was written is unknown
	}
	cl := *have
	cl.Operations++
	cl.Version = a.index
	a.put(table.Clusters, &cl)
	op.Status, op.CreatedAt, op.Version = model.OpAccepted, a.now, a.index
	a.put(table.Operations, op)
	a.put(table.Queue, &table.QueueRow{Operation: op.ID, Request: req})
	a.operationEvent(op)
	a.touch(op.ID)
	if open != nil {
		a.supersede(c, open, op.ID)
	}
	return Answer{Subject: op.ID}
}

// superseded returns the open operation of a cluster whose place a queued operation of type next takes.
func (a queue) superseded(cl *model.Cluster, q *pb.QueueOperation, next model.OperationType) (*model.Operation, error) {
	open := table.Get[model.Operation](a.txn, table.Operations, "id", cl.Operation)
	if open == nil || open.ID != q.Supersedes || open.Status.Ended() {
		return nil, problem.New(problem.Stale, "operation %s of cluster %s has ended; run the command again", q.Supersedes, cl.Name)
	}
	var g *plan.Graph
	if s := a.plan(open.ID); s != nil {
		g = s.Graph
	}
	return open, operation.MaySupersede(next, open, g)
}

// supersede has an operation end once none of its tasks runs any more, because the operation with the id next takes its place. The tasks
// that run are not cancelled: they leave no service half done.
func (a queue) supersede(c *pb.Command, open *model.Operation, next string) {
	op := *open
	op.Status, op.Message, op.SupersededBy, op.Version = model.OpAborting, "superseded by operation "+next, next, a.index
	e := a.edit(op.ID)
	a.tasks().cancelWork(&op, e)
	a.put(table.Operations, &op)
	a.event(model.Event{Type: "operation.order", Tenant: op.Tenant, Cluster: op.Cluster, Operation: op.ID, Status: "supersede", Actor: c.Actor,
		Message: op.Message})
	a.operationEvent(&op)
	a.touch(op.ID)
	a.endings().finish(&op, e)
}

// unqueue removes an operation from those that wait, as its turn has come. It returns the number of the snapshot to which a rollback of the
// operation leads, if it superseded another one, or else 0.
func (a queue) unqueue(operation string) (before int) {
	if row := table.Get[table.QueueRow](a.txn, table.Queue, "id", operation); row != nil {
		a.remove(table.Queue, row)
		if op := table.Get[model.Operation](a.txn, table.Operations, "id", operation); op != nil {
			before = op.Before
		}
	}
	return before
}

// controlQueued carries out an order about an operation that waits for its turn. Such an operation
// can only be withdrawn.
func (a queue) controlQueued(c *pb.Command, o *pb.ControlOperation, have *model.Operation) Answer {
	status := model.OpAborted
	switch o.Order {
	case pb.OperationOrder_OPERATION_ORDER_ABORT:
	case pb.OperationOrder_OPERATION_ORDER_GIVE_UP: // its turn came, and it could not be planned
		status = model.OpFailed
	default:
		return refuse(problem.Conflict, "operation %s waits for its turn: it can only be aborted", have.ID)
	}
	message := o.Reason
	if status == model.OpAborted {
		message = "aborted by " + c.Actor + " before its turn came"
		if o.Reason != "" {
			message += ": " + o.Reason
		}
	}
	a.endQueued(have, status, message)
	return Answer{Subject: have.ID}
}

func (a queue) endQueued(have *model.Operation, status model.OperationStatus, message string) {
	op := *have
	op.Status, op.Message, op.EndedAt, op.Version = status, message, a.now, a.index
	a.unqueue(op.ID)
	a.put(table.Operations, &op)
	a.operationEvent(&op)
	a.touch(op.ID)
}

// dropQueue ends the operations that wait for a deleted cluster.
func (a queue) dropQueue(cl *model.Cluster) {
	for _, op := range a.queued(cl.Tenant, cl.ID) {
		a.endQueued(op, model.OpAborted, fmt.Sprintf("cluster %s was deleted before its turn came", cl.Name))
	}
}
