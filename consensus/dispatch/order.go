package dispatch

import "github.com/coopr/coopr/engine/plan"

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
				d.cancel(q, r.Vertex, r.Fence, h.session, ordered)
				d.release(q, r.Vertex)
			}
		}
	}
}
