package state

import (
	"context"
	"sync"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
)

// group is one event, or many events of tasks that reached the same status. The many stay in a
// compact form until a reader expands them.
type group struct {
	event model.Event
	op    *model.Operation
	graph *plan.Graph
	tasks []uint32
}

func (g group) expand(into []model.Event) []model.Event {
	if g.graph == nil {
		return append(into, g.event)
	}
	for _, v := range g.tasks {
		ev := g.event
		describe(&ev, g.op, g.graph, v, g.event.Status)
		into = append(into, ev)
	}
	return into
}

// describe fills in an event about a task.
func describe(ev *model.Event, op *model.Operation, g *plan.Graph, v uint32, status string) {
	ev.Type, ev.Tenant, ev.Cluster, ev.Operation = "task.changed", op.Tenant, op.Cluster, op.ID
	ev.Task, ev.Subject, ev.Status = string(model.OperationID(op.ID).Task(v)), g.Name(int(v)), status
}

// Events keeps the latest groups of events in a ring, and notifies readers. It is not part of the
// replicated state: every voter fills its own ring from the same log, with the same content.
type Events struct {
	mu      sync.Mutex
	size    int     // of the ring when it is full
	ring    []group // grows up to size; until then, it has all groups in order
	next    uint64  // groups published so far
	floor   uint64  // index of the last entry whose events are not all kept
	index   uint64  // index of the last entry published
	changed chan struct{}
}

func newEvents(size int) *Events {
	return &Events{size: size, changed: make(chan struct{})}
}

func (e *Events) publish(index uint64, groups []group) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, g := range groups {
		if len(e.ring) < e.size {
			e.ring = append(e.ring, g)
		} else {
			slot := &e.ring[e.next%uint64(e.size)]
			e.floor = slot.event.Index
			*slot = g
		}
		e.next++
	}
	e.index = max(e.index, index)
	close(e.changed)
	e.changed = make(chan struct{})
}

// reset discards all events, because a snapshot with this index replaced the state.
func (e *Events) reset(index uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ring = nil
	e.next, e.floor, e.index = 0, index, index
	close(e.changed)
	e.changed = make(chan struct{})
}

// wait returns the index of the last published entry and a channel that closes at the next change.
func (e *Events) wait() (uint64, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.index, e.changed
}

// after returns the groups of entries after index, the index of the last published entry, and a
// channel that closes at the next change. It fails if the ring no longer has all of these groups.
func (e *Events) after(index uint64) ([]group, uint64, <-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if index < e.floor {
		return nil, 0, nil, problem.New(problem.Conflict, "the events after index %d are not kept any more, only those after index %d: read "+
			"the state again and go on from its index", index, e.floor)
	}
	size := uint64(len(e.ring))
	first := e.next - min(e.next, size)
	// The ring is sorted by index: walk back from the newest.
	from := e.next
	for from > first && e.ring[(from-1)%size].event.Index > index {
		from--
	}
	out := make([]group, 0, e.next-from)
	for i := from; i < e.next; i++ {
		out = append(out, e.ring[i%size])
	}
	return out, e.index, e.changed, nil
}

// Follow calls fn with the events after an index, in order: those of the tenant, and those that belong to
// no tenant. Tenant "" means all tenants. Index 0 means from now on. Follow returns nil when ctx ends, the
// error of fn if fn fails, and a Conflict if some of these events are no longer kept.
func (m *Machine) Follow(ctx context.Context, tenant string, after uint64, fn func([]model.Event) error) error {
	if after == 0 {
		after, _ = m.events.wait()
	}
	for {
		groups, index, changed, err := m.events.after(after)
		if err != nil {
			return err
		}
		var out []model.Event
		for _, g := range groups {
			if tenant == "" || g.event.Tenant == tenant || g.event.Tenant == "" {
				out = g.expand(out)
			}
		}
		if len(out) > 0 {
			if err := fn(out); err != nil {
				return err
			}
		}
		after = max(after, index)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// WaitNewer blocks until an entry after index has been applied, or ctx ends.
func (m *Machine) WaitNewer(ctx context.Context, index uint64) {
	for {
		now, changed := m.events.wait()
		if now > index {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
