package dispatch

import (
	"context"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// firstLeases bounds the leases that travel with an operation's start.
const firstLeases = 64

// First chooses workers for those tasks of a new operation that wait for nothing, so that
// their leases are committed together with the operation's start. This saves one entry of
// the log. The lease is nil if no worker can take any of the tasks. done must be called once,
// when the start's proposal has ended. The workers get the tasks when the state has the leases,
// whether or not the proposal was answered.
//
// needs returns what a vertex requires of an agent, as the cluster and its nodes may not be
// in the state yet.
func (d *Dispatcher) First(ctx context.Context, op *model.Operation, g *plan.Graph, needs func(vertex uint32) Needs) (first *pb.Lease,
	done func()) {
	result := make(chan *round, 1)
	var made *round // owned by the jobs
	if !d.post(func() {
		made = d.first(op, g, needs)
		result <- made
	}) {
		return nil, func() {}
	}
	// The choices that the state has taken stay.
	done = func() { d.post(func() { d.giveUp(made) }) }
	var r *round
	select {
	case r = <-result:
	case <-d.ended:
	case <-ctx.Done():
		done() // the owner may still make the round
	}
	if r == nil {
		return nil, func() {}
	}
	return r.leases(0), done
}

func (d *Dispatcher) first(op *model.Operation, g *plan.Graph, needs func(uint32) Needs) *round {
	if d.queues[op.ID] != nil {
		return &round{}
	}
	q := d.open(d.cfg.Machine.View(), op, g)
	q.unread = true
	r := &round{}
	for u := range g.Len() {
		if g.Preds[u] > 0 || g.Action[u] == model.Barrier || r.count >= firstLeases {
			continue
		}
		if d.taken(q, uint32(u)) {
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
	}
	return r
}
