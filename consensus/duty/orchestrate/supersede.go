package orchestrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// openOf returns the cluster and its open main operation with its graph; nil if none is open.
func openOf(v *state.View, tenant, cluster string) (*model.Cluster, *model.Operation, *plan.Graph) {
	cl, ok := v.Cluster(tenant, cluster)
	if !ok {
		return nil, nil, nil
	}
	op, ok := v.Operation(cl.Tenant, cl.Operation)
	if !ok || op.Status.Ended() {
		return cl, nil, nil
	}
	if s, ok := v.Plan(op.ID); ok {
		return cl, op, s.Graph
	}
	return cl, op, nil
}

// supersede has a request take the place of the operation that is under way on its cluster (docs/decisions/081-supersede.md). It reports
// false if none is. One command accepts the request and has the open operation end at the end of its running tasks; if none runs, the new
// operation begins at once, else when the last has ended.
func (o *Orchestrator) supersede(ctx context.Context, who model.Caller, cluster string, req operation.Request) (p *operation.Prepared,
	ans state.Answer, open bool, err error) {
	v := o.cfg.Machine.View()
	if p, ans, ok, err := Repeated(v, who); ok {
		return p, ans, true, err
	}
	p, c, err := o.superseding(ctx, who, v, cluster, req)
	if c == nil || err != nil {
		return nil, ans, err != nil, err
	}
	cl, last, _ := openOf(v, who.Tenant, cluster)
	_, ans, err = o.enqueue(ctx, who, cl, req, last.ID)
	if err != nil {
		return nil, ans, true, err
	}
	if !ans.Repeated {
		if err := o.dequeue(ctx, last.ID); err != nil { // it is accepted all the same, and the duty begins it
			o.cfg.Logger.Info("an operation that superseded another one did not begin at once", "cluster", cl.ID,
				"operation", ans.Subject, "error", err)
		}
	}
	if p, ans, err = o.outcome(who, p, ans, nil); err != nil {
		return p, ans, true, err
	}
	v = o.cfg.Machine.View()
	if op, ok := v.Operation(who.Tenant, p.Operation.ID); ok && !ans.Repeated {
		p.Operation = *op
		if cl, ok := v.Cluster(who.Tenant, cl.ID); ok {
			p.Cluster = *cl
		}
	}
	return p, ans, true, nil
}

// superseding returns the command by which a request takes the place of its cluster's open operation, and the operation as it would be
// now: planned from the nodes as they are at this moment. The command is nil if no operation is open.
func (o *Orchestrator) superseding(ctx context.Context, who model.Caller, v *state.View, cluster string,
	req operation.Request) (*operation.Prepared, *pb.Command, error) {
	cl, open, g := openOf(v, who.Tenant, cluster)
	if open == nil {
		return nil, nil, nil
	}
	if !v.Understands(logformat.SupersedeLevel) {
		return nil, nil, problem.New(problem.Conflict, "operation %s (%s) is under way, and some agents of the mesh are too old to have another "+
			"one take its place: upgrade these agents (`coopr members -o wide` shows their versions)", open.ID, open.Type)
	}
	if err := operation.MaySupersede(req.Type, open, g); err != nil {
		return nil, nil, err
	}
	if err := o.permitEnding(who, v, cl, open); err != nil {
		return nil, nil, err
	}
	at := *cl
	at.Status = model.ClusterInconsistent // as the open operation leaves it
	p, err := o.prepareOn(ctx, who, v, &at, v.PresentNodes(cl), req, "")
	if err != nil {
		return nil, nil, err
	}
	p.Operation.Status = model.OpAccepted
	_, c, err := queued(v, who, cl, req, open.ID)
	return p, c, err
}

// maySupersede adds to the refusal of a request the operation that is under way, and the way in which the request would be accepted.
func maySupersede(v *state.View, who model.Caller, cluster string, req operation.Request, err error) error {
	if !errors.Is(err, operation.ErrState) || req.Supersede {
		return err
	}
	_, open, g := openOf(v, who.Tenant, cluster)
	if open == nil {
		return err
	}
	if operation.MaySupersede(req.Type, open, g) != nil {
		return fmt.Errorf("%w: operation %s (%s) is %s; wait for it, or abort it", err, open.ID, open.Type, open.Status)
	}
	return fmt.Errorf("%w: operation %s (%s) is under way; \"supersede\": true (--supersede) has this one take its place, \"queue\": true "+
		"(--queue) has it wait", err, open.ID, open.Type)
}
