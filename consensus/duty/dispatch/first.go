package dispatch

import (
	"context"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// firstLeases bounds the leases that travel with an operation's start.
const firstLeases = 64

// First chooses workers for those tasks of a new operation that wait for nothing, so that
// their leases are committed together with the operation's start. This saves one entry of
// the log. The lease is nil if no worker can take any of the tasks. done must be called once
// with the answer to the start.
//
// needs returns what a vertex requires of an agent, as the cluster and its nodes may not be
// in the state yet.
func (d *Dispatcher) First(ctx context.Context, op *model.Operation, g *plan.Graph, needs func(vertex uint32) Needs) (first *pb.Lease,
	done func(context.Context, state.Answer, error)) {
	nothing := func(context.Context, state.Answer, error) {}
	result := make(chan *round, 1)
	if !d.post(func() { result <- d.first(op, g, needs) }) {
		return nil, nothing
	}
	var r *round
	select {
	case r = <-result:
	case <-d.ended:
	case <-ctx.Done():
		// The owner may still make the round; this undoes it.
		d.post(func() { d.unstarted(op.ID) })
	}
	if r == nil {
		return nil, nothing
	}
	return r.leases(0), func(ctx context.Context, ans state.Answer, err error) {
		if err != nil || ans.Err != nil || ans.Repeated {
			// The state knows whether it started after all.
			d.post(func() { d.unstarted(op.ID) })
			return
		}
		d.deliver(ctx, r, []state.Answer{ans})
		d.post(func() {
			d.refresh(d.cfg.Machine.View(), op.ID, nil, true)
			d.again = true
		})
	}
}

func (d *Dispatcher) first(op *model.Operation, g *plan.Graph, needs func(uint32) Needs) *round {
	if d.queues[op.ID] != nil {
		return nil
	}
	q := d.open(d.cfg.Machine.View(), op, g)
	r := &round{}
	for u := range g.Len() {
		if g.Preds[u] > 0 || g.Action[u] == model.Barrier || r.count >= firstLeases {
			continue
		}
		if d.taken(q, g.Node[u]) {
			continue
		}
		n := needs(uint32(u))
		s := d.choose(n, nil)
		if s == nil {
			break
		}
		d.hold(q, uint32(u), s, n.Limit)
		r.add(q, uint32(u), s)
	}
	if r.count == 0 {
		d.drop(op.ID)
		return nil
	}
	return r
}

// unstarted is called when the start of an operation failed or its outcome is unknown. It drops
// the operation's queue. If the state has the operation nevertheless, unstarted builds the queue
// again and sends the operation's leases to their workers.
func (d *Dispatcher) unstarted(id string) {
	d.drop(id)
	v := d.cfg.Machine.View()
	d.refresh(v, id, nil, true)
	d.again = true
	p, ok := v.Plan(id)
	if q := d.queues[id]; q != nil && ok {
		for u, h := range q.held {
			d.resend(v, p, lease{id, u}, h.session)
		}
	}
}
