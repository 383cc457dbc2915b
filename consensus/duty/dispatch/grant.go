package dispatch

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// round is the leases of one entry of the log, with a part for each operation.
type round struct {
	parts []*part
	count int
}

// part is the leases of one operation in a round.
type part struct {
	q     *queue
	lease *pb.Lease
	// to are the sessions of the lease, conns their connections when the round was made.
	to    []*session
	conns []Conn
}

// leases returns the leases of a part, or nil.
func (r *round) leases(i int) *pb.Lease {
	if i < len(r.parts) {
		return r.parts[i].lease
	}
	return nil
}

// of returns the session of the i-th task of a part.
func (p *part) of(i int) *session { return p.to[p.lease.SessionOf[i]] }

func (r *round) add(q *queue, u uint32, s *session) {
	at := slices.IndexFunc(r.parts, func(p *part) bool { return p.q == q })
	if at < 0 {
		at = len(r.parts)
		r.parts = append(r.parts, &part{q: q, lease: &pb.Lease{Operation: q.op.ID}})
	}
	p := r.parts[at]
	i := slices.Index(p.to, s)
	if i < 0 {
		i = len(p.to)
		p.to, p.conns = append(p.to, s), append(p.conns, s.conn)
		p.lease.Sessions = append(p.lease.Sessions, s.id)
	}
	p.lease.Tasks = append(p.lease.Tasks, u)
	p.lease.SessionOf = append(p.lease.SessionOf, uint32(i))
	r.count++
}

// commands appends the round's leases to the commands of an entry.
func (r *round) commands(to []*pb.Command) []*pb.Command {
	for _, p := range r.parts {
		to = append(to, &pb.Command{Change: &pb.Command_Lease{Lease: p.lease}})
	}
	return to
}

// grant leases tasks as far as there are slots: the highest priority first, then the tenant
// that has the least for its weight, then the tenant's operations in turn.
func (d *Dispatcher) grant() {
	free := 0
	for _, s := range d.sessions {
		free += s.free()
	}
	if free <= 0 || len(d.queues) == 0 {
		return
	}
	v := d.cfg.Machine.View()
	plans := map[*queue]*plan.State{}
	r := &round{}
	var idle []waiting
	for free > 0 {
		q := d.next()
		if q == nil {
			break
		}
		u := heap.Pop(&q.ready).(uint32)
		if q.held[u] != nil {
			continue // queued twice, and leased already
		}
		if d.taken(q, q.graph.Node[u]) {
			q.park(u) // two tasks of the node were ready
			continue
		}
		p, ok := plans[q]
		if !ok {
			p, _ = v.Plan(q.op.ID)
			plans[q] = p
		}
		var note *plan.Note
		if p != nil {
			note = p.Note(u)
		}
		n := d.cfg.Tasks.Needs(v, q.op, q.graph, u)
		s := d.choose(n, note)
		if s == nil {
			idle = append(idle, waiting{q, u})
			continue
		}
		d.hold(q, u, s, n.Limit)
		r.add(q, u, s)
		free--
	}
	// Tasks that found no agent wait for the next change.
	for _, w := range idle {
		heap.Push(&w.q.ready, w.u)
	}
	if r.count > 0 {
		d.async(func(ctx context.Context) { d.commit(ctx, r) })
	}
}

// waiting is a ready task for which no suitable agent was free.
type waiting struct {
	q *queue
	u uint32
}

// next returns the queue that is served next, or nil.
func (d *Dispatcher) next() *queue {
	var best *queue
	at := 0
	for _, t := range d.tenants {
		i := slices.IndexFunc(t.turn, func(q *queue) bool { return q.open && q.ready.Len() > 0 })
		if i < 0 {
			continue
		}
		for j := i + 1; j < len(t.turn); j++ {
			if q := t.turn[j]; q.open && q.ready.Len() > 0 && q.op.Priority > t.turn[i].op.Priority {
				i = j
			}
		}
		q := t.turn[i]
		if best == nil || q.op.Priority > best.op.Priority ||
			(q.op.Priority == best.op.Priority && t.out*best.of.weight < best.of.out*t.weight) {
			best, at = q, i
		}
	}
	if best != nil {
		// Move it to the end: the tenant's other operations come first now.
		turn := best.of.turn
		copy(turn[at:], turn[at+1:])
		turn[len(turn)-1] = best
	}
	return best
}

// choose returns the session for a task: one that offers the plugin, on the right machine,
// with a free slot. It avoids the agent of the last attempt, which the task's note names,
// and then prefers the session with the most free slots.
func (d *Dispatcher) choose(n Needs, note *plan.Note) *session {
	if n.Limit != "" && n.Most > 0 && d.limits[n.Limit] >= n.Most {
		return nil
	}
	avoid := ""
	if note != nil {
		avoid = note.Avoid
	}
	var best *session
	better := func(a, b *session) bool {
		if x, y := a.agent == avoid, b.agent == avoid; x != y {
			return y
		}
		if x, y := a.free(), b.free(); x != y {
			return x > y
		}
		return strings.Compare(a.id, b.id) < 0
	}
	for _, s := range d.sessions {
		if s.free() <= 0 || (n.Plugin != "" && !s.plugins[n.Plugin]) || (n.Machine != "" && n.Machine != s.machine) {
			continue
		}
		if best == nil || better(s, best) {
			best = s
		}
	}
	return best
}

// afterFailure is the pause after a round that could not be committed.
const afterFailure = 100 * time.Millisecond

// commit proposes a round, and delivers the granted tasks.
func (d *Dispatcher) commit(ctx context.Context, r *round) {
	answers, err := d.cfg.Propose(ctx, r.commands(nil)...)
	if err != nil {
		d.cfg.Logger.Debug("leases were not committed", "error", err)
		d.lost(ctx, r)
		return
	}
	d.deliver(ctx, r, answers)
}

// lost looks again, after a moment, at a round of which nobody knows whether it
// was committed. If the term is ending, the next one will see.
func (d *Dispatcher) lost(ctx context.Context, r *round) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(afterFailure): // a log may refuse at once, and must not be asked in a tight loop
	}
	d.post(func() { d.recheck(r) })
}

// deliver sends granted tasks to their workers, and releases the tasks that were refused.
func (d *Dispatcher) deliver(ctx context.Context, r *round, answers []state.Answer) {
	v := d.cfg.Machine.View()
	type parcel struct {
		to    Conn
		tasks []*pb.Task
	}
	var parcels []parcel
	var refused []lease
	var granted []grants
	for i, p := range r.parts {
		id := p.lease.Operation
		var no map[uint32]bool
		for _, u := range answers[i].Refused {
			if no == nil {
				no = map[uint32]bool{}
			}
			no[u] = true
			refused = append(refused, lease{id, u})
		}
		op, ok := v.Operation("", id)
		s, has := v.Plan(id)
		if !ok || !has {
			continue
		}
		out := make([][]*pb.Task, len(p.to))
		g := grants{op: id, fence: answers[i].Index, tasks: make([]uint32, 0, len(p.lease.Tasks))}
		for j, u := range p.lease.Tasks {
			if no[u] {
				continue
			}
			g.tasks, g.to = append(g.tasks, u), append(g.to, p.of(j))
			t, err := d.cfg.Tasks.Task(v, op, s, u)
			if err != nil {
				g.broken = append(g.broken, &pb.Result{Task: string(model.OperationID(id).Task(u)), Fence: g.fence,
					Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: err.Error()})
				continue
			}
			t.Fence = g.fence
			to := p.lease.SessionOf[j]
			out[to] = append(out[to], t)
		}
		granted = append(granted, g)
		for j, tasks := range out {
			if len(tasks) > 0 {
				parcels = append(parcels, parcel{p.conns[j], tasks})
			}
		}
	}
	// Before any worker can answer, so that the owner handles both in order.
	d.post(func() { d.granted(granted) })
	for _, p := range parcels {
		p.to.Send(&pb.LeaderMessage{Tasks: p.tasks})
	}
	d.post(func() { d.unwanted(granted) })
	for _, g := range granted {
		d.Report(ctx, "", g.broken)
	}
	if len(refused) > 0 {
		d.post(func() { d.refused(refused) })
	}
}

// grants are tasks of an operation whose leases are committed with one fence. No task could
// be made for the broken ones.
type grants struct {
	op     string
	fence  uint64
	tasks  []uint32
	to     []*session
	broken []*pb.Result
}

// granted notes that leases are committed.
func (d *Dispatcher) granted(list []grants) {
	for _, g := range list {
		q := d.queues[g.op]
		if q == nil {
			continue
		}
		for _, u := range g.tasks {
			if h := q.held[u]; h != nil {
				h.grant(g.fence)
			}
		}
	}
}

// unwanted cancels leases whose operation was aborted, or that an order took back, while
// they were being committed: the order to cancel may have overtaken them.
func (d *Dispatcher) unwanted(list []grants) {
	v := d.cfg.Machine.View()
	for _, g := range list {
		q := d.queues[g.op]
		s, ok := v.Plan(g.op)
		if !ok {
			continue
		}
		for i, u := range g.tasks {
			t := s.Task(u)
			if q == nil { // the operation is over
				if t.Fence != g.fence || t.Forced || !t.Status.Ended() {
					d.cancel(g.op, u, g.fence, g.to[i], ordered)
					d.ends(g.op, s.Graph, u, g.fence, g.to[i])
				}
				continue
			}
			h := q.held[u]
			if h == nil || h.fence != g.fence {
				continue
			}
			switch {
			case q.op.Status == model.OpAborting:
				d.cancel(g.op, u, g.fence, h.session, q.op.Message)
			case t.Fence != g.fence || t.Forced || !t.Status.Held() && !t.Status.Ended():
				d.takeBack(q, u, h)
				if s.Leaseable(u) {
					d.offer(q, u, t.Note)
				}
			}
		}
	}
}

// refused releases tasks that the state refused to lease.
func (d *Dispatcher) refused(ls []lease) {
	v := d.cfg.Machine.View()
	for _, l := range ls {
		if q := d.queues[l.op]; q != nil && q.held[l.v] != nil && !q.held[l.v].granted {
			d.release(q, l.v)
			if s, ok := v.Plan(l.op); ok {
				if s.Leaseable(l.v) {
					// Another operation of the cluster may hold the node. Trying again at once
					// would loop until that operation ends.
					q.known[l.v] = true
					heap.Push(&d.delayed, delay{time.Now().Add(afterFailure), l})
				}
			}
		}
	}
}

// recheck compares a round with an unknown outcome to the state.
func (d *Dispatcher) recheck(r *round) {
	v := d.cfg.Machine.View()
	var gone []lease
	for _, part := range r.parts {
		id := part.lease.Operation
		p, ok := v.Plan(id)
		for i, u := range part.lease.Tasks {
			if !ok || !p.Status(u).Held() {
				gone = append(gone, lease{id, u})
				continue
			}
			// The lease was committed after all, and its worker never got the task.
			d.granted([]grants{{op: id, fence: p.Fence(u), tasks: []uint32{u}}})
			d.resend(v, p, lease{id, u}, part.of(i))
		}
	}
	d.refused(gone)
}

func (d *Dispatcher) resend(v *state.View, p *plan.State, l lease, s *session) {
	op, ok := v.Operation("", l.op)
	if !ok {
		return
	}
	if t, err := d.cfg.Tasks.Task(v, op, p, l.v); err == nil {
		t.Fence = p.Fence(l.v)
		d.send(s, &pb.LeaderMessage{Tasks: []*pb.Task{t}})
	}
}

// backoff returns when a task may be tried again after so many failures.
func (d *Dispatcher) backoff(failures int, now time.Time) int64 {
	pause := d.cfg.Backoff << min(failures, 6)
	return now.Add(pause + time.Duration(d.cfg.Jitter()*float64(pause)/2)).UnixMilli()
}
