package dispatch

import (
	"slices"

	"github.com/coopr/coopr/engine/plan"
)

// ordered is the reason that workers get for cancelling a task that an order took back.
const ordered = "an operator's order took the task back"

// revoked cancels tasks whose leases were revoked.
func (b *book) revoked(list map[string][]plan.Revoked) {
	for op, leases := range list {
		q := b.queues[op]
		if q == nil {
			continue
		}
		for _, r := range leases {
			if h := q.held[r.Vertex]; h != nil && h.granted && h.fence == r.Fence {
				b.takeBack(q, r.Vertex, h)
			}
		}
	}
}

// takeBack cancels a task that an order took back. No other task of any operation begins on
// the node until the worker reports the end, or its session is over.
func (b *book) takeBack(q *queue, u uint32, h *holding) {
	h.session.cancel(q.op.ID, u, h.fence, ordered)
	b.ends(q.op.ID, q.graph, u, h.fence, h.session)
	b.release(q, u)
}

// ends notes that a worker is ending a cancelled attempt.
func (b *book) ends(op string, g *plan.Graph, u uint32, fence uint64, s *session) {
	if s == nil {
		return
	}
	node := placeOf(op, g, u)
	if !slices.ContainsFunc(b.ending[node], func(e ending) bool { return e.taskKey == taskKey{op, u} && e.fence == fence }) {
		b.ending[node] = append(b.ending[node], ending{taskKey{op, u}, g.Name(int(u)), fence, s})
	}
}

// hasEnded notes the ends of all cancelled attempts that match.
func (b *book) hasEnded(is func(ending) bool) {
	for node, list := range b.ending {
		if list = slices.DeleteFunc(list, is); len(list) > 0 {
			b.ending[node] = list
			continue
		}
		delete(b.ending, node)
		for _, q := range b.queues {
			for at := range q.parked {
				if at < 0 || q.graph.Nodes[at] == node {
					b.unpark(q, at)
				}
			}
		}
		b.again = true
	}
}
