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
// node, of whatever operation, until the worker says that it has ended, or is gone.
func (d *Dispatcher) takeBack(q *queue, u uint32, h *holding) {
	d.cancel(q.op.ID, u, h.fence, h.session, ordered)
	d.ends(q.op.ID, q.graph, u, h.fence, h.session)
	d.release(q, u)
}

// ends notes that a worker is ending an attempt that nobody wants any more.
func (d *Dispatcher) ends(op string, g *plan.Graph, u uint32, fence uint64, s *session) {
	if g.Node[u] < 0 || s == nil {
		return
	}
	node := g.NodeID(int(u))
	if !slices.ContainsFunc(d.ending[node], func(e ending) bool { return e.lease == lease{op, u} && e.fence == fence }) {
		d.ending[node] = append(d.ending[node], ending{lease{op, u}, g.Name(int(u)), fence, s})
	}
}

// hasEnded notes the ends of attempts that nobody wanted any more, all that is says.
func (d *Dispatcher) hasEnded(is func(ending) bool) {
	for node, list := range d.ending {
		if list = slices.DeleteFunc(list, is); len(list) > 0 {
			d.ending[node] = list
			continue
		}
		delete(d.ending, node)
		for _, q := range d.queues {
			for at := range q.parked {
				if q.graph.Nodes[at] == node {
					d.unpark(q, at)
				}
			}
		}
		d.again = true
	}
}
