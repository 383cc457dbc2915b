package dispatch

import (
	"container/heap"
	"context"
	"slices"
	"strings"
	"time"

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
	to    []*session // the sessions of the lease
}

// leases returns the leases of a part, or nil.
func (r *round) leases(i int) *pb.Lease {
	if i < len(r.parts) {
		return r.parts[i].lease
	}
	return nil
}

// add adds a task that was held for the round.
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
		p.to = append(p.to, s)
		p.lease.Sessions = append(p.lease.Sessions, s.id)
	}
	p.lease.Tasks = append(p.lease.Tasks, u)
	p.lease.SessionOf = append(p.lease.SessionOf, uint32(i))
	r.count++
	q.held[u].round = r
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
	plans, awaited := map[*queue]*plan.State{}, map[*queue]map[string]string{}
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
		if d.taken(q, u) {
			q.park(u) // two tasks of the node were ready, or a worker is ending an attempt
			continue
		}
		p, ok := plans[q]
		if !ok {
			p, _ = v.Plan(q.op.ID)
			plans[q] = p
		}
		var note *plan.Note
		if p != nil {
			if v.HeldBack(p, u) { // the order that lets it go on offers it again
				q.known[u] = false
				delete(q.since, u)
				continue
			}
			note = p.Note(u)
		}
		if q.graph.Action[u] == model.Configure {
			if _, ok := awaited[q]; !ok {
				awaited[q] = v.Awaited(q.op)
			}
			if awaited[q][q.graph.ServiceName(int(u))] != "" { // the state would refuse it
				heap.Push(&d.delayed, delay{time.Now().Add(afterFailure), taskKey{q.op.ID, u}})
				continue
			}
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
func (b *book) next() *queue {
	var best *queue
	at := 0
	for _, t := range b.tenants {
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
		// Move the queue to the end of the tenant's turn, so that its other operations are served first.
		turn := best.of.turn
		copy(turn[at:], turn[at+1:])
		turn[len(turn)-1] = best
	}
	return best
}

// choose returns the session for a task: one that offers the plugin, on the right machine,
// with a free slot. It avoids the agent of the last attempt, which the task's note names,
// and then prefers the session with the most free slots.
func (b *book) choose(n Needs, note *plan.Note) *session {
	if n.Limit != "" && n.Most > 0 && b.limits[n.Limit] >= n.Most {
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
	for _, s := range b.sessions {
		if s.free() <= 0 || (n.Plugin != "" && !s.plugins[n.Plugin]) || (n.Machine != "" && n.Machine != s.machine) {
			continue
		}
		if best == nil || better(s, best) {
			best = s
		}
	}
	return best
}

// backoff returns when a task may be tried again after so many failures.
func (c *Config) backoff(failures int, now time.Time) int64 {
	pause := c.Backoff << min(failures, 6)
	return now.Add(pause + time.Duration(c.Jitter()*float64(pause)/2)).UnixMilli()
}
