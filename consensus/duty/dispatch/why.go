package dispatch

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
)

// Why returns what ready tasks of an operation wait for.
func (d *Dispatcher) Why(ctx context.Context, operation string, tasks []uint32) (map[uint32]tree.Wait, error) {
	out := map[uint32]tree.Wait{}
	done := make(chan struct{})
	ok := d.post(func() {
		defer close(done)
		if q := d.queues[operation]; q != nil {
			for _, u := range tasks {
				out[u] = d.why(q, u)
			}
		}
	})
	if !ok {
		return nil, ErrOver
	}
	select {
	case <-done:
		return out, nil
	case <-d.ended:
		return nil, ErrOver
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *Dispatcher) why(q *queue, u uint32) tree.Wait {
	if q.held[u] != nil {
		return tree.Wait{Kind: tree.WaitsNothing, Text: "nothing: it is on its way to a worker"}
	}
	if h := d.cfg.Machine.View().Hold(); h != nil {
		return tree.Wait{Kind: tree.WaitsGate, Text: "the mesh is held, as it was " + h.Why() + ": coopr operator resume"}
	}
	if !q.open {
		return tree.Wait{Kind: tree.WaitsGate, Text: fmt.Sprintf("the operation is %s", q.op.Status)}
	}
	if d.taken(q, u) {
		if list := d.ending[placeOf(q.op.ID, q.graph, u)]; len(list) > 0 {
			name := list[0].name
			return tree.Wait{Kind: tree.WaitsNode, What: name,
				Text: fmt.Sprintf("agent %s is still ending %s, which an order took back", list[0].session.agent, name)}
		}
		name := q.graph.Name(int(q.busy[q.graph.Node[u]] - 1))
		return tree.Wait{Kind: tree.WaitsNode, What: name, Text: name + " is at work on its node"}
	}
	if by := d.cfg.Machine.View().Awaited(q.op)[q.graph.ServiceName(int(u))]; by != "" && q.graph.Action[u] == model.Configure {
		text := fmt.Sprintf("operation %s replaces a machine whose address is in its configuration, and the new one is not known yet", by)
		if op, ok := d.cfg.Machine.View().Operation("", by); ok && op.Status == model.OpPaused {
			text += "; that operation is paused: coopr operation resume " + by
		}
		return tree.Wait{Kind: tree.WaitsPlan, What: by, Text: text}
	}
	n := d.cfg.Tasks.Needs(d.cfg.Machine.View(), q.op, q.graph, u)
	if n.Limit != "" && n.Most > 0 && d.limits[n.Limit] >= n.Most {
		return tree.Wait{Kind: tree.WaitsLimit, What: n.Limit,
			Text: fmt.Sprintf("provider %s has as many tasks at work as it may have, %d", n.Limit, n.Most)}
	}
	offers, there, at := false, false, ""
	for _, s := range d.sessions {
		if s.conn == nil || s.leaving || s.doomed || (n.Plugin != "" && !s.plugins[n.Plugin]) {
			continue
		}
		offers = true
		if n.Machine != "" && n.Machine != s.machine {
			continue
		}
		there, at = true, s.agent
		if s.free() > 0 {
			return tree.Wait{Kind: tree.WaitsNothing, Text: "nothing: it is about to begin"}
		}
	}
	switch {
	case !offers:
		return tree.Wait{Kind: tree.WaitsPlugin, What: n.Plugin, Text: fmt.Sprintf("no agent that offers %s is there", n.Plugin)}
	case !there:
		return tree.Wait{Kind: tree.WaitsPlugin, What: n.Machine,
			Text: fmt.Sprintf("its node lives on machine %s, and no agent with %s is there", n.Machine, n.Plugin)}
	}
	return tree.Wait{Kind: tree.WaitsWorker, What: at, Text: "every worker that could do it has its hands full"}
}
