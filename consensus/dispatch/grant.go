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

// round is the leases of one entry.
type round struct {
	order  []string
	leases map[string]*pb.Lease
	to     map[lease]*session
	conns  map[*session]Conn            // as they were when the round was made
	index  map[string]map[string]uint32 // operation → session → index in its Lease
}

func newRound() *round {
	return &round{leases: map[string]*pb.Lease{}, to: map[lease]*session{}, conns: map[*session]Conn{}, index: map[string]map[string]uint32{}}
}

// grant gives out what there are slots for: the highest priority first, then
// the tenant that has the least for its weight, then its operations in turn.
func (d *Dispatcher) grant() {
	free := 0
	for _, s := range d.sessions {
		free += s.free()
	}
	if free <= 0 || len(d.queues) == 0 {
		return
	}
	v := d.cfg.Machine.View()
	r := newRound()
	var tried []tried
	for free > 0 {
		q := d.next()
		if q == nil {
			break
		}
		u := heap.Pop(&q.ready).(uint32)
		if q.held[u] != nil {
			continue // in line twice, and granted
		}
		if node := q.graph.Node[u]; node >= 0 {
			if _, busy := q.busy[node]; busy {
				q.park(u) // two tasks of the node were in line
				continue
			}
		}
		n := d.cfg.Tasks.Needs(v, q.op, q.graph, u)
		s := d.choose(v, q, u, n)
		if s == nil {
			tried = append(tried, triedTask(q, u))
			continue
		}
		d.hold(q, u, s, n.Limit)
		r.add(q, u, s)
		free--
	}
	// What found no agent now waits for the next change of anything.
	for _, t := range tried {
		heap.Push(&t.q.ready, t.u)
	}
	if len(r.to) > 0 {
		d.async(func(ctx context.Context) { d.commit(ctx, r) })
	}
}

type tried struct {
	q *queue
	u uint32
}

func triedTask(q *queue, u uint32) tried { return tried{q, u} }

// next gives the queue that is served next, or nil.
func (d *Dispatcher) next() *queue {
	var best *queue
	var of *tenant
	at := 0
	for _, name := range sortedTenants(d.tenants) {
		t := d.tenants[name]
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
			(q.op.Priority == best.op.Priority && t.out*of.weight < of.out*t.weight) {
			best, of, at = q, t, i
		}
	}
	if best != nil {
		// To the end of the turn: the tenant's other operations come first now.
		of.turn = append(append(of.turn[:at:at], of.turn[at+1:]...), best)
	}
	return best
}

func sortedTenants(m map[string]*tenant) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// choose gives the agent for a task: one that offers the plugin, on the right
// machine, with room; rather not the one where the last attempt ended; then the
// one with the most room.
func (d *Dispatcher) choose(v *state.View, q *queue, u uint32, n Needs) *session {
	if n.Limit != "" && n.Most > 0 && d.limits[n.Limit] >= n.Most {
		return nil
	}
	avoid := ""
	if s, ok := v.Plan(q.op.ID); ok {
		if note := s.Note(u); note != nil {
			avoid = note.Avoid
		}
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

func (r *round) add(q *queue, u uint32, s *session) {
	id := q.op.ID
	l := r.leases[id]
	if l == nil {
		l = &pb.Lease{Operation: id}
		r.leases[id] = l
		r.index[id] = map[string]uint32{}
		r.order = append(r.order, id)
	}
	i, ok := r.index[id][s.id]
	if !ok {
		i = uint32(len(l.Sessions))
		l.Sessions = append(l.Sessions, s.id)
		r.index[id][s.id] = i
	}
	l.Tasks = append(l.Tasks, u)
	l.SessionOf = append(l.SessionOf, i)
	r.to[lease{id, u}] = s
	r.conns[s] = s.conn
}

// afterFailure is the pause after leases that could not be committed.
const afterFailure = 100 * time.Millisecond

// commit proposes a round and sends what was granted to its workers.
func (d *Dispatcher) commit(ctx context.Context, r *round) {
	commands := make([]*pb.Command, len(r.order))
	for i, id := range r.order {
		commands[i] = &pb.Command{Change: &pb.Command_Lease{Lease: r.leases[id]}}
	}
	answers, err := d.cfg.Propose(ctx, commands...)
	if err != nil {
		// The term is ending, or nobody knows whether it was committed: the
		// next term, or this one's next look at the state, will see.
		d.cfg.Logger.Debug("leases were not committed", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(afterFailure): // a log that refuses at once is not asked at once again
		}
		d.post(func() { d.recheck(r) })
		return
	}
	d.settle(ctx, r, answers)
}

// settle sends what was granted to its workers, and takes back the rest.
func (d *Dispatcher) settle(ctx context.Context, r *round, answers []state.Answer) {
	v := d.cfg.Machine.View()
	out := map[*session][]*pb.Task{}
	var refused []lease
	granted := map[lease]uint64{}
	broken := map[string][]*pb.Result{}
	for i, id := range r.order {
		no := map[uint32]bool{}
		for _, u := range answers[i].Refused {
			no[u] = true
			refused = append(refused, lease{id, u})
		}
		op, ok := v.Operation("", id)
		s, has := v.Plan(id)
		if !ok || !has {
			continue
		}
		for _, u := range r.leases[id].Tasks {
			if no[u] {
				continue
			}
			to := r.to[lease{id, u}]
			granted[lease{id, u}] = answers[i].Index
			t, err := d.cfg.Tasks.Task(v, op, s, u)
			if err != nil {
				broken[id] = append(broken[id], &pb.Result{Task: state.TaskID(id, u), Fence: answers[i].Index, Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: err.Error()})
				continue
			}
			t.Fence = answers[i].Index
			out[to] = append(out[to], t)
		}
	}
	// Before any worker can answer, so that the owner hears of it in order.
	d.post(func() { d.granted(granted) })
	for s, tasks := range out {
		r.conns[s].Send(&pb.LeaderMessage{Tasks: tasks})
	}
	d.post(func() { d.unwanted(granted) })
	for _, results := range broken {
		d.Report(ctx, "", results)
	}
	if len(refused) > 0 {
		d.post(func() { d.refused(refused) })
	}
}

// granted notes that leases are committed.
func (d *Dispatcher) granted(ls map[lease]uint64) {
	for l, fence := range ls {
		if q := d.queues[l.op]; q != nil && q.held[l.v] != nil {
			q.held[l.v].grant(fence)
		}
	}
}

// unwanted cancels leases whose operation was aborted while they were on their
// way: the order to cancel may have overtaken them.
func (d *Dispatcher) unwanted(ls map[lease]uint64) {
	for l, fence := range ls {
		q := d.queues[l.op]
		if q == nil || q.op.Status != model.OpAborting {
			continue
		}
		if h := q.held[l.v]; h != nil && h.fence == fence {
			d.cancel(q, l.v, fence, h.session, q.op.Message)
		}
	}
}

// refused takes back tasks that the state did not lease; it knows better what
// they wait for.
func (d *Dispatcher) refused(ls []lease) {
	v := d.cfg.Machine.View()
	for _, l := range ls {
		if q := d.queues[l.op]; q != nil && q.held[l.v] != nil && !q.held[l.v].granted {
			d.release(q, l.v)
			if s, ok := v.Plan(l.op); ok {
				if st := s.Status(l.v); st == model.TaskReady || st == model.TaskUncertain {
					d.offer(q, l.v, s.Note(l.v))
				}
			}
		}
	}
}

// recheck compares a round whose fate is unknown with the state.
func (d *Dispatcher) recheck(r *round) {
	v := d.cfg.Machine.View()
	var gone []lease
	for l, s := range r.to {
		p, ok := v.Plan(l.op)
		if !ok || !p.Status(l.v).Held() {
			gone = append(gone, l)
			continue
		}
		// It was committed after all, and its worker never got it.
		d.granted(map[lease]uint64{l: p.Fence(l.v)})
		d.resend(v, p, l, s)
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

// backoff gives when a task may be tried again after so many failures.
func (d *Dispatcher) backoff(failures int, now time.Time) int64 {
	pause := d.cfg.Backoff << min(failures, 6)
	return now.Add(pause + time.Duration(d.cfg.Jitter()*float64(pause)/2)).UnixMilli()
}
