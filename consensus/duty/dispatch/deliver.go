package dispatch

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// afterFailure is the pause after a proposal that failed: a log may refuse at once, and must
// not be asked in a tight loop.
const afterFailure = 100 * time.Millisecond

// pause waits after a proposal that failed. It reports whether the term goes on.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(afterFailure):
		return true
	}
}

// commit proposes a round. Its leases are sent when the state has them.
func (d *Dispatcher) commit(ctx context.Context, r *round) {
	if _, err := d.cfg.Propose(ctx, r.commands(nil)...); err != nil {
		d.cfg.Logger.Debug("leases were not committed", "error", err)
		if !pause(ctx) {
			return
		}
	}
	d.post(func() { d.giveUp(r) })
}

// giveUp releases the tasks of a round that the state has not leased when the round's
// proposal has ended, however it ended. If the entry is committed later after all, leased
// sees it.
func (d *Dispatcher) giveUp(r *round) {
	v := d.cfg.Machine.View()
	for _, part := range r.parts {
		id := part.lease.Operation
		q := d.queues[id]
		if q == nil {
			continue
		}
		p, ok := v.Plan(id)
		if !ok { // the operation has not started
			d.drop(id)
			continue
		}
		for _, u := range part.lease.Tasks {
			h := q.held[u]
			if h == nil || h.granted || h.round != r {
				continue
			}
			d.release(q, u)
			if p.Leaseable(u) && !q.known[u] {
				// Another operation of the cluster may hold the node. Trying again at once
				// would loop until that operation ends.
				q.known[u] = true
				heap.Push(&d.delayed, delay{time.Now().Add(afterFailure), taskKey{id, u}})
			}
		}
	}
}

// parcel is a lease that the state has and that its worker has to get.
type parcel struct {
	taskKey
	fence uint64
	to    *session
	task  *pb.Task
}

// leased books the leases that a batch granted, and sends their tasks. A lease that has
// ended since is not sent.
func (d *Dispatcher) leased(v *state.View, list []state.Leases) {
	var out []parcel
	for _, l := range list {
		q := d.queues[l.Operation]
		p, ok := v.Plan(l.Operation)
		if q == nil || !ok {
			continue
		}
		for _, u := range l.Vertices {
			if !p.Valid(u, l.Fence) {
				continue
			}
			holder := p.Task(u).Holder.Session
			h := q.held[u]
			if h == nil || h.session == nil || h.session.id != holder {
				d.release(q, u)
				h = d.hold(q, u, d.sessions[holder], d.cfg.Tasks.Needs(v, q.op, q.graph, u).Limit)
			}
			h.grant(l.Fence)
			if h.session != nil && h.session.conn != nil {
				out = append(out, parcel{taskKey: taskKey{l.Operation, u}, fence: l.Fence, to: h.session})
			}
		}
	}
	d.deliver(out)
}

// withoutKeys is how long a task waits that cannot be made because this leader lacks a key of the mesh. The leader hands over as
// soon as a voter that has the keys answers, and gets them back no sooner than an operator restores them.
const withoutKeys = time.Minute

// deliver makes the tasks of leases and sends them. A task that is skipped succeeds at once. A task that cannot be made fails, unless
// this leader only lacks a key: then the lease is given back, which counts as no attempt, and the task waits.
func (d *Dispatcher) deliver(list []parcel) {
	if len(list) == 0 {
		return
	}
	d.async(func(ctx context.Context) {
		v := d.cfg.Machine.View()
		var ended []*pb.Result // of tasks that no worker gets
		var shut []parcel
		made := list[:0]
		for _, x := range list {
			op, ok := v.Operation("", x.op)
			p, has := v.Plan(x.op)
			if !ok || !has {
				continue
			}
			if n := p.Note(x.v); n != nil && n.Skip {
				ended = append(ended, &pb.Result{Task: string(model.OperationID(x.op).Task(x.v)), Fence: x.fence,
					Outcome: pb.Outcome_OUTCOME_SUCCEEDED})
				continue
			}
			t, err := d.cfg.Tasks.Task(v, op, p, x.v)
			if errors.Is(err, keyring.ErrNoKey) {
				d.cfg.Logger.Warn("a task waits for a key of the mesh", "operation", x.op, "task", x.v, "error", err)
				shut = append(shut, x)
				continue
			}
			if err != nil {
				ended = append(ended, &pb.Result{Task: string(model.OperationID(x.op).Task(x.v)), Fence: x.fence,
					Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: err.Error()})
				continue
			}
			t.Fence, x.task = x.fence, t
			made = append(made, x)
		}
		d.post(func() {
			d.putOff(shut, time.Now().Add(withoutKeys))
			d.sendTasks(made)
		})
		rs := d.reports(ended)
		rs.list = append(rs.list, givenBack(shut)...)
		// Repeat until it is committed: no worker has these attempts, so no worker reports their end.
		for d.propose(ctx, "", rs, &round{}) != nil && pause(ctx) {
		}
	})
}

// putOff has tasks wait until a time once their leases are given back.
func (b *book) putOff(list []parcel, until time.Time) {
	for _, x := range list {
		if q := b.queues[x.op]; q != nil {
			q.later[x.v] = until
		}
	}
}

// givenBack returns reports that give leases back.
func givenBack(list []parcel) []*pb.Report {
	var rs reports
	for _, x := range list {
		rep := rs.of(x.op, &pb.Report{Returned: true})
		rep.Tasks, rep.Fences = append(rep.Tasks, x.v), append(rep.Fences, x.fence)
	}
	return rs.list
}

// sendTasks sends tasks whose leases are still valid. Only the owner sends tasks and cancels, so
// no cancel overtakes its task.
func (d *Dispatcher) sendTasks(list []parcel) {
	tasks := map[*session][]*pb.Task{}
	for _, x := range list {
		q := d.queues[x.op]
		if q == nil {
			continue
		}
		if h := q.held[x.v]; h == nil || h.fence != x.fence || h.session != x.to {
			continue
		}
		if q.op.Status == model.OpAborting {
			x.to.cancel(x.op, x.v, x.fence, q.op.Message) // the worker returns the lease
			continue
		}
		tasks[x.to] = append(tasks[x.to], x.task)
	}
	for s, list := range tasks {
		s.send(&pb.LeaderMessage{Tasks: list})
	}
}
