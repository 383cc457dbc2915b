package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// mustWait reports whether an operation that may be queued has to be: another one is
// under way on its cluster, or is queued in front of it.
func mustWait(v *state.View, cl *model.Cluster) bool {
	if len(v.Queued(cl.Tenant, cl.ID)) > 0 {
		return true
	}
	op, ok := v.Operation(cl.Tenant, cl.Operation)
	return ok && !op.Status.Ended()
}

// enqueue queues a request behind the operations of its cluster (docs/spec/planner.md, "Transactions" 12), or, if supersedes is the id of
// the cluster's open operation, in its place.
func (o *Orchestrator) enqueue(ctx context.Context, who model.Caller, cl *model.Cluster, req operation.Request,
	supersedes string) (*operation.Prepared, state.Answer, error) {
	if o.cfg.Seal != nil {
		fields := model.Provider{ProviderType: cl.Provider.ProviderType, Provisioner: req.ProviderFields}
		if err := o.cfg.Seal(ctx, cl.Tenant, &fields); err != nil {
			return nil, state.Answer{}, err
		}
		req.ProviderFields = fields.Provisioner
	}
	p, c, err := queued(o.cfg.Machine.View(), who, cl, req, supersedes)
	if err != nil {
		return nil, state.Answer{}, err
	}
	answers, err := o.cfg.Propose(ctx, c)
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return nil, state.Answer{}, err
	}
	return p, answers[0], nil
}

// queued returns the operation of a request that has to wait, and the command that queues it.
func queued(v *state.View, who model.Caller, cl *model.Cluster, req operation.Request, supersedes string) (*operation.Prepared,
	*pb.Command, error) {
	if req.Chosen() && !v.Understands(logformat.NodeChoiceLevel) {
		return nil, nil, problem.New(problem.Conflict, "some agents of the mesh are too old to keep a queued operation to some nodes: upgrade "+
			"these agents (`coopr members -o wide` shows their versions), or repeat the request when the operation that is under way has ended")
	}
	if who.Maker != nil {
		return nil, nil, problem.New(problem.Forbidden, "this token may do less than %s, and a queued operation begins in the name of "+
			"%[1]s: use a session, or a token without a role of its own", who.Actor)
	}
	op := model.Operation{
		ID: nextID(cl), Tenant: cl.Tenant, Cluster: cl.ID, Type: req.Type, Status: model.OpAccepted, Actor: who.Actor, Request: who.Request,
		Services: req.Services, OnFailure: req.OnFailure, Message: "it waits for its turn",
	}
	if supersedes != "" {
		op.Message = "it begins when the running tasks of operation " + supersedes + ", whose place it takes, have ended"
	}
	q := &pb.QueueOperation{ClusterVersion: cl.Version, Supersedes: supersedes}
	var e1, e2 error
	q.Operation, e1 = logformat.EncodeOperation(&op)
	q.Request, e2 = logformat.EncodeOperationRequest(&req)
	return &operation.Prepared{Operation: op, Cluster: *cl}, logformat.By(who, &pb.Command{
		KeepAnswer: true, Change: &pb.Command_QueueOperation{QueueOperation: q}}), errors.Join(e1, e2)
}

// dequeue starts the first queued operation of a cluster if the operation with the id
// ended is the last one there and has ended. A queued operation that cannot be planned
// any more fails; its end has the next one started.
func (o *Orchestrator) dequeue(ctx context.Context, ended string) error {
	v := o.cfg.Machine.View()
	op, ok := v.Operation("", ended)
	if !ok {
		return nil
	}
	cl, ok := v.Cluster(op.Tenant, op.Cluster)
	if !ok || cl.Status == model.ClusterTerminated {
		return nil
	}
	waiting := v.Queued(cl.Tenant, cl.ID)
	last, ok := v.Operation(cl.Tenant, cl.Operation)
	if len(waiting) == 0 || !ok || !last.Status.Ended() || mustDelete(last) {
		return nil
	}
	if _, retried := retryOf(v, last); retried {
		return nil // the retry goes first
	}
	// An operation that superseded another one goes first: it is the only kind that has Before already.
	first := waiting[0]
	for _, q := range slices.Backward(waiting) {
		if q.Operation.Before > 0 {
			first = q
		}
	}
	next := first.Operation
	req := *first.Request
	who := v.Acting(next.Tenant, next.Actor)
	who.Request = "turn of " + next.ID
	req.Queue = false
	_, _, err := o.operate(ctx, who, cl.ID, req, next.ID)
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, problem.NotFound):
		return ctx.Err()
	case errors.Is(err, operation.ErrState): // the cluster does not allow it any more
	case errors.Is(err, problem.Conflict), errors.Is(err, problem.Stale):
		return nil // another operation was faster; its end adds the cluster again
	}
	_, err = o.cfg.Propose(ctx, &pb.Command{Tenant: next.Tenant, Actor: model.Self, Change: &pb.Command_ControlOperation{
		ControlOperation: &pb.ControlOperation{Operation: next.ID, Order: pb.OperationOrder_OPERATION_ORDER_GIVE_UP,
			Reason: fmt.Sprintf("its turn came, and it could not be done: %v", err)},
	}})
	return err
}
