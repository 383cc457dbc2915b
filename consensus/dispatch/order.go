package dispatch

import (
	"slices"

	"github.com/coopr/coopr/engine/plan"
)

// ordered is why workers are told to end what an operator's order took from them.
const ordered = "an operator's order took the task back"

// revoked cancels work whose leases were taken from their holders. Where a lease
// is still on its way, unwanted does.
func (d *Dispatcher) revoked(list map[string][]plan.Revoked) {
	for op, leases := range list {
		q := d.queues[op]
		if q == nil {
			continue
		}
		for _, r := range leases {
			if h := q.held[r.Vertex]; h != nil && h.granted && h.fence == r.Fence {
				d.takeBack(q, r.Vertex, h)
			}
		}
	}
}

// takeBack cancels what an order took from its worker. Nothing else begins on the
// node until the worker says that it has ended, or is gone.
func (d *Dispatcher) takeBack(q *queue, u uint32, h *holding) {
	d.cancel(q, u, h.fence, h.session, ordered)
	if node := q.graph.Node[u]; node >= 0 && h.session != nil {
		q.ending[node] = append(q.ending[node], ending{u, h.fence, h.session})
	}
	d.release(q, u)
}

// hasEnded notes the ends of attempts that were taken back, all that is says.
func (d *Dispatcher) hasEnded(q *queue, node int32, is func(ending) bool) {
	if len(q.ending[node]) == 0 {
		return
	}
	if q.ending[node] = slices.DeleteFunc(q.ending[node], is); len(q.ending[node]) == 0 {
		delete(q.ending, node)
		q.unpark(node)
		d.again = true
	}
}
