package dispatch

import (
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// queue holds the tasks of one operation that can be leased.
type queue struct {
	op    *model.Operation
	graph *plan.Graph
	// ready are tasks whose node no task holds, the longest remaining path first. parked
	// are tasks that wait for their node, by node.
	ready  ranks
	parked map[int32]*ranks
	busy   []uint32 // by node: the task that holds it, plus one
	// known are the tasks that are in ready, parked or delayed, or are being leased. Each
	// task is in one of them only.
	known []bool
	held  map[uint32]*holding
	since map[uint32]time.Time // since when the tasks in ready and in parked are there
	later map[uint32]time.Time // the tasks that are not offered before a time, because a key is missing
	open  bool                 // may be leased, see view.OperationView.Leases
	asked bool                 // cancels were sent
	// unread reports that the queue was made before the state had the operation.
	unread bool
	of     *tenant
}

// taken reports whether a task of the operation holds the node of a task, or a worker is still ending
// a cancelled attempt of any operation there. A task on an agent waits only for earlier attempts of itself.
func (b *book) taken(q *queue, u uint32) bool {
	node := q.graph.Node[u]
	return node >= 0 && q.busy[node] > 0 || len(b.ending[placeOf(q.op.ID, q.graph, u)]) > 0
}

// placeOf returns the key of book.ending for a task: the id of its node, or that of a task on an agent itself.
func placeOf(op string, g *plan.Graph, u uint32) string {
	if g.OnAgent(int(u)) {
		return string(model.OperationID(op).Task(u))
	}
	return g.NodeID(int(u))
}

// holding is a task that is leased, or is being leased.
type holding struct {
	session *session // nil if its session is over
	limit   string   // the limit that it counts against
	round   *round   // whose proposal brings the lease
	granted bool     // the lease is committed, with this fence
	fence   uint64
	// before is the task that held the node when this one was leased to follow it, plus
	// one.
	before uint32
}

// ending is an attempt that was cancelled and whose worker has not reported its end yet.
// The operation may be over.
type ending struct {
	taskKey
	name    string // of the task
	fence   uint64
	session *session
}

// tenant counts a tenant's leases, and takes its operations in turn.
type tenant struct {
	name   string
	weight int
	out    int // leases that are held
	turn   []*queue
}

// taskKey names a task of an operation.
type taskKey struct {
	op string
	v  uint32
}

// ranks is a heap of vertices, the highest rank first, then the lowest number.
type ranks struct {
	g  *plan.Graph
	vs []uint32
}

func (r *ranks) Len() int { return len(r.vs) }
func (r *ranks) Less(i, j int) bool {
	a, b := r.vs[i], r.vs[j]
	if ra, rb := r.g.Rank[a], r.g.Rank[b]; ra != rb {
		return ra > rb
	}
	return a < b
}
func (r *ranks) Swap(i, j int) { r.vs[i], r.vs[j] = r.vs[j], r.vs[i] }
func (r *ranks) Push(x any)    { r.vs = append(r.vs, x.(uint32)) }
func (r *ranks) Pop() any {
	v := r.vs[len(r.vs)-1]
	r.vs = r.vs[:len(r.vs)-1]
	return v
}

// open adds an empty queue for an operation.
func (b *book) open(v *state.View, op *model.Operation, g *plan.Graph) *queue {
	q := &queue{op: op, graph: g, ready: ranks{g: g}, parked: map[int32]*ranks{}, busy: make([]uint32, len(g.Nodes)),
		known: make([]bool, g.Len()), held: map[uint32]*holding{}, since: map[uint32]time.Time{},
		later: map[uint32]time.Time{}}
	b.queues[op.ID] = q
	at, found := slices.BinarySearchFunc(b.tenants, op.Tenant, func(t *tenant, name string) int { return strings.Compare(t.name, name) })
	if !found {
		b.tenants = slices.Insert(b.tenants, at, &tenant{name: op.Tenant, weight: 1})
	}
	t := b.tenants[at]
	q.of = t
	if row, ok := v.Tenant(op.Tenant); ok && row.Weight > 0 {
		t.weight = row.Weight
	}
	t.turn = append(t.turn, q)
	return q
}

// refresh updates an operation's queue from the state. With all, it looks at every task,
// not only at those that became ready.
func (d *Dispatcher) refresh(v *state.View, id string, ready []uint32, all bool) {
	op, ok := v.Operation("", id)
	if !ok || op.Status.Ended() {
		d.drop(id)
		return
	}
	s, ok := v.Plan(id)
	if !ok {
		return
	}
	q := d.queues[id]
	if q == nil {
		q = d.open(v, op, s.Graph)
		all = true
	}
	q.op = op
	q.open = v.Leases(op, s) && v.Hold() == nil
	all, q.unread = all || q.unread, false
	if all {
		for _, u := range s.Leased("") {
			if _, ok := q.held[u]; !ok {
				d.hold(q, u, d.sessions[s.Task(u).Holder.Session], d.cfg.Tasks.Needs(v, op, s.Graph, u).Limit).grant(s.Fence(u))
			}
		}
		ready = s.Leasable()
	}
	for _, u := range ready {
		if s.Leaseable(u) {
			// The end of the task's last lease may be visible in the state before the answer
			// to the report that ended it arrives here.
			if h := q.held[u]; h != nil && h.granted {
				d.release(q, u)
			}
			d.offer(q, u, s.Note(u))
		}
	}
	q.asked = q.asked && cancels(op) // an order may let it go on
	if cancels(op) && !q.asked {
		q.asked = true
		for u, h := range q.held {
			h.session.cancel(id, u, s.Fence(u), op.Message)
		}
	}
}

// cancels reports whether the running tasks of an operation are to be cancelled. Those of one that is superseded go on to their end.
func cancels(op *model.Operation) bool { return op.Status == model.OpAborting && op.SupersededBy == "" }

func (b *book) drop(id string) {
	q := b.queues[id]
	if q == nil {
		return
	}
	for u := range q.held {
		b.release(q, u)
	}
	delete(b.queues, id)
	t := q.of
	t.turn = slices.DeleteFunc(t.turn, func(other *queue) bool { return other == q })
	if len(t.turn) == 0 {
		b.tenants = slices.DeleteFunc(b.tenants, func(other *tenant) bool { return other == t })
	}
}

// offer queues a leasable task: it waits for its time, its node or a slot.
func (b *book) offer(q *queue, u uint32, n *plan.Note) {
	if q.known[u] {
		return
	}
	q.known[u] = true
	if n != nil && n.RetryAt > time.Now().UnixMilli() {
		heap.Push(&b.delayed, delay{time.UnixMilli(n.RetryAt), taskKey{q.op.ID, u}})
		return
	}
	if at, ok := q.later[u]; ok {
		if delete(q.later, u); at.After(time.Now()) {
			heap.Push(&b.delayed, delay{at, taskKey{q.op.ID, u}})
			return
		}
	}
	b.line(q, u)
}

// line queues a task that is due for its node or a slot.
func (b *book) line(q *queue, u uint32) {
	if _, ok := q.since[u]; !ok {
		q.since[u] = time.Now()
	}
	if b.taken(q, u) {
		q.park(u)
		return
	}
	heap.Push(&q.ready, u)
	b.again = true
}

// park queues a task behind the one that holds its node.
func (q *queue) park(u uint32) {
	node := q.graph.Node[u]
	p := q.parked[node]
	if p == nil {
		p = &ranks{g: q.graph}
		q.parked[node] = p
	}
	heap.Push(p, u)
}

func (h *holding) grant(fence uint64) { h.granted, h.fence = true, fence }

// hold notes that a task is being leased.
func (b *book) hold(q *queue, u uint32, s *session, limit string) *holding {
	h := &holding{session: s, limit: limit}
	q.held[u] = h
	q.known[u] = true
	delete(q.since, u)
	if node := q.graph.Node[u]; node >= 0 {
		h.before, q.busy[node] = q.busy[node], u+1
	}
	q.of.out++
	if s != nil {
		s.held++
	}
	if h.limit != "" {
		b.limits[h.limit]++
	}
	return h
}

// release undoes hold. The state may offer the task again.
func (b *book) release(q *queue, u uint32) {
	h := q.held[u]
	if h == nil {
		return
	}
	delete(q.held, u)
	q.known[u] = false
	q.of.out--
	if h.session != nil {
		h.session.held--
	}
	if h.limit != "" {
		if b.limits[h.limit]--; b.limits[h.limit] <= 0 {
			delete(b.limits, h.limit)
		}
	}
	b.again = true
	if node := q.graph.Node[u]; node >= 0 && q.busy[node] == u+1 {
		if q.busy[node] = 0; h.before > 0 && q.held[h.before-1] != nil {
			q.busy[node] = h.before // its result was refused, or is not known here yet
			return
		}
		b.unpark(q, node)
	}
}

// unpark makes all tasks ready that wait for a free node: the first one may find no agent,
// and the others must not wait for it. Once one of them holds the node, the others are
// parked again.
func (b *book) unpark(q *queue, node int32) {
	if p := q.parked[node]; p != nil && (node < 0 || q.busy[node] == 0 && len(b.ending[q.graph.Nodes[node]]) == 0) {
		for _, next := range p.vs {
			heap.Push(&q.ready, next)
		}
		delete(q.parked, node)
	}
}

// delay is a task whose next attempt is due later.
type delay struct {
	at time.Time
	taskKey
}

// delays is a heap of delayed tasks, the soonest first.
type delays struct{ list []delay }

func (h *delays) Len() int           { return len(h.list) }
func (h *delays) Less(i, j int) bool { return h.list[i].at.Before(h.list[j].at) }
func (h *delays) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *delays) Push(x any)         { h.list = append(h.list, x.(delay)) }
func (h *delays) Pop() any {
	x := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return x
}

// due queues the delayed tasks whose time has come.
func (b *book) due(now time.Time) {
	for len(b.delayed.list) > 0 && !b.delayed.list[0].at.After(now) {
		x := heap.Pop(&b.delayed).(delay)
		// The queue may be another than the one the task was delayed in.
		if q := b.queues[x.op]; q != nil && q.held[x.v] == nil {
			b.line(q, x.v)
		}
	}
}
