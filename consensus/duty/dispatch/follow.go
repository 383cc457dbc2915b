package dispatch

import (
	"container/heap"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// follow leases the next tasks of the nodes on which tasks of a session have succeeded, to
// the same session: the report frees the slot, and one entry of the log holds both. It does
// so only while no other task waits for a slot, so that turns, shares and priorities are
// kept, and only for plain successes, which change nothing that the choice of the next task
// depends on. As with any lease the state decides: an order, a gate or a refused report
// that precedes the lease in the log has it refused.
func (d *Dispatcher) follow(session string, list []*pb.Report) *round {
	r := &round{}
	s := d.sessions[session]
	if s == nil || s.conn == nil || s.leaving || s.doomed || s.slots == 0 || d.inLine() {
		return r
	}
	v := d.cfg.Machine.View()
	for _, rep := range list {
		q := d.queues[rep.Operation]
		p, ok := v.Plan(rep.Operation)
		if q == nil || !q.open || !ok {
			continue
		}
		outputs := rep.Outputs
		for i, u := range rep.Tasks {
			if len(outputs) > 0 && int(outputs[0].At) == i {
				outputs = outputs[1:]
				continue
			}
			h := q.held[u]
			if h == nil || !h.granted || h.fence != rep.Fences[i] || h.session != s || q.graph.Node[u] < 0 || q.busy[q.graph.Node[u]] != u+1 ||
				len(d.ending[q.graph.NodeID(int(u))]) > 0 {
				continue
			}
			w, ok := q.after(u)
			if !ok || p.Note(w) != nil || v.HeldBack(p, w) {
				continue
			}
			if q.graph.Action[w] == model.Configure && v.Awaited(q.op)[q.graph.ServiceName(int(w))] != "" {
				continue
			}
			n := d.cfg.Tasks.Needs(v, q.op, q.graph, w)
			if n.Limit != "" || (n.Plugin != "" && !s.plugins[n.Plugin]) || (n.Machine != "" && n.Machine != s.machine) {
				continue
			}
			if p := q.parked[q.graph.Node[u]]; p != nil && p.Len() > 0 {
				heap.Pop(p) // that is w
			}
			d.hold(q, w, s, "")
			r.add(q, w, s)
		}
	}
	return r
}

// inLine reports whether a task waits for a slot.
func (b *book) inLine() bool {
	for _, q := range b.queues {
		if q.open && q.ready.Len() > 0 {
			return true
		}
	}
	return false
}

// after returns the task that comes next on the node of u: the first one that waits for the
// node, or else one that waits for u alone.
func (q *queue) after(u uint32) (uint32, bool) {
	if p := q.parked[q.graph.Node[u]]; p != nil && p.Len() > 0 {
		return p.vs[0], true
	}
	for _, w := range q.graph.Next(int(u)) {
		if q.graph.Preds[w] == 1 && q.graph.Node[w] == q.graph.Node[u] && q.graph.Action[w] != model.Barrier && !q.known[w] {
			return w, true
		}
	}
	return 0, false
}
