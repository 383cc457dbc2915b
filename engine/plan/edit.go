package plan

import (
	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/coopr/coopr/engine/model"
)

// Edit makes the next State from one. It is used by one goroutine, and not
// after Done.
type Edit struct {
	next  State
	notes *iradix.Txn
	ready []uint32
}

// Edit starts a change of s.
func (s *State) Edit() *Edit {
	e := &Edit{next: *s}
	e.next.gen++
	e.next.pages = append([]*page(nil), s.pages...)
	e.next.nodes = append([]*nodePage(nil), s.nodes...)
	return e
}

// Done gives the changed state.
func (e *Edit) Done() *State {
	if e.notes != nil {
		e.next.notes = e.notes.Commit()
	}
	next := e.next
	return &next
}

// Ready gives the tasks that this edit made leasable, in the order in which it
// did; some may have been leased since.
func (e *Edit) Ready() []uint32 { return e.ready }

// State reads the edit's state so far. The columns are the edit's own.
func (e *Edit) State() *State { return &e.next }

func (e *Edit) page(v uint32) (*page, uint32) {
	p := e.next.pages[v/pageSize]
	if p.gen != e.next.gen {
		c := *p
		c.gen = e.next.gen
		p = &c
		e.next.pages[v/pageSize] = p
	}
	return p, v % pageSize
}

func (e *Edit) setBusy(v uint32, held bool) {
	n := e.next.Graph.Node[v]
	if n < 0 {
		return
	}
	p := e.next.nodes[n/pageSize]
	if p.gen != e.next.gen {
		c := *p
		c.gen = e.next.gen
		p = &c
		e.next.nodes[n/pageSize] = p
	}
	p.busy[n%pageSize] = 0
	if held {
		p.busy[n%pageSize] = v + 1
	}
}

func (e *Edit) setStatus(v uint32, to model.TaskStatus) {
	p, i := e.page(v)
	e.next.counts[p.status[i]]--
	e.next.counts[to]++
	p.status[i] = to
}

// note gives a copy of v's note to write to.
func (e *Edit) note(v uint32) *Note {
	if e.notes == nil {
		e.notes = e.next.notes.Txn()
	}
	n := &Note{}
	if old, ok := e.notes.Get(noteKey(v)); ok {
		*n = *old.(*Note)
		n.History = append([]Attempt(nil), n.History...)
	}
	e.notes.Insert(noteKey(v), n)
	return n
}

// Note gives what is known of v beyond its columns, as the edit has it, or nil.
func (e *Edit) Note(v uint32) *Note {
	if e.notes == nil {
		return e.next.Note(v)
	}
	if n, ok := e.notes.Get(noteKey(v)); ok {
		return n.(*Note)
	}
	return nil
}

// free makes a vertex ready whose predecessors are done. Barriers are done at
// once, and free what waits for them, without recursion: chains of barriers
// may be long.
func (e *Edit) free(v uint32) {
	stack := []uint32{v}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if e.next.Graph.Action[v] != model.Barrier {
			e.setStatus(v, model.TaskReady)
			e.ready = append(e.ready, v)
			continue
		}
		p, i := e.page(v)
		p.status[i] = model.TaskSucceeded
		e.next.rest--
		for _, w := range e.next.Graph.Next(int(v)) {
			q, j := e.page(w)
			if q.status[j] != model.TaskBlocked {
				continue // it was cancelled
			}
			if q.pending[j]--; q.pending[j] == 0 {
				stack = append(stack, w)
			}
		}
	}
}

// holder gives the index of a session, adding it where it is new.
func (e *Edit) holder(h Holder) uint32 {
	hs := e.next.holders
	for i := len(hs) - 1; i >= 0; i-- {
		if hs[i].Session == h.Session {
			return uint32(i)
		}
	}
	e.next.holders = append(hs[:len(hs):len(hs)], h)
	return uint32(len(hs))
}

// Lease grants v to a session. It refuses a task that is not ready (or
// uncertain), one whose next attempt is not due at now, and one whose node
// another task holds.
func (e *Edit) Lease(v uint32, fence uint64, h Holder, now int64) error {
	if int(v) >= e.next.Graph.Len() {
		return ErrNoVertex
	}
	p, i := e.page(v)
	if e.next.Graph.Action[v] == model.Barrier || (p.status[i] != model.TaskReady && p.status[i] != model.TaskUncertain) {
		return ErrNotReady
	}
	if n := e.Note(v); n != nil && n.RetryAt > now {
		return ErrNotReady
	}
	if n := e.next.Graph.Node[v]; n >= 0 {
		if _, busy := e.next.Busy(n); busy {
			return ErrNodeBusy
		}
	}
	e.setStatus(v, model.TaskLeased)
	e.setBusy(v, true)
	if p.attempt[i] < 255 {
		p.attempt[i]++
	}
	p.fence[i], p.holder[i], p.leased[i], p.ended[i] = fence, e.holder(h), now, 0
	return nil
}

// held checks that fence is v's valid lease.
func (e *Edit) held(v uint32, fence uint64) error {
	if int(v) >= e.next.Graph.Len() {
		return ErrNoVertex
	}
	if !e.next.Status(v).Held() || e.next.Fence(v) != fence {
		return ErrStaleFence
	}
	return nil
}

// Start says that the holder is at work.
func (e *Edit) Start(v uint32, fence uint64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	if e.next.Status(v) == model.TaskLeased {
		e.setStatus(v, model.TaskRunning)
	}
	return nil
}

// Keep moves a held lease to another session of the same agent.
func (e *Edit) Keep(v uint32, fence uint64, h Holder) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	p, i := e.page(v)
	p.holder[i] = e.holder(h)
	return nil
}

// End is how an attempt ended.
type End struct {
	Outcome string // "succeeded", "failed", "lost", "returned", "cancelled"
	Message string
	LogTail string
	Adopted bool
}

// log appends the attempt under way at v to its history.
func (e *Edit) log(n *Note, v uint32, end End, now int64) {
	t := e.next.Task(v)
	n.History = append(n.History, Attempt{
		Number: t.Attempt, Fence: t.Fence, Agent: t.Holder.Agent, Outcome: end.Outcome,
		Message: end.Message, LogTail: end.LogTail, Leased: t.LeasedAt, Ended: now,
	})
	n.Avoid = t.Holder.Agent
}

func (e *Edit) finish(v uint32, status model.TaskStatus, now int64) {
	e.setStatus(v, status)
	e.setBusy(v, false)
	p, i := e.page(v)
	p.ended[i] = now
}

// Succeed ends v well and makes ready what waited only for it.
func (e *Edit) Succeed(v uint32, fence uint64, end End, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	if n := e.Note(v); n != nil && n.Undo {
		// The attempt deleted what a CREATE had made; the CREATE itself is next.
		n = e.note(v)
		e.log(n, v, End{Outcome: "undone", Message: end.Message}, now)
		n.Undo, n.Observe, n.RetryAt, n.Avoid = false, false, 0, ""
		e.again(v)
		return nil
	} else if n != nil || end.Adopted {
		n = e.note(v)
		n.Adopted, n.RetryAt, n.Observe = end.Adopted, 0, false
	}
	e.finish(v, model.TaskSucceeded, now)
	for _, w := range e.next.Graph.Next(int(v)) {
		p, i := e.page(w)
		if p.status[i] != model.TaskBlocked {
			continue // it did not wait: v was opened a second time
		}
		if p.pending[i]--; p.pending[i] == 0 {
			e.free(w)
		}
	}
	return nil
}

// again makes a held task leasable once more and frees its node.
func (e *Edit) again(v uint32) {
	status := model.TaskReady
	if n := e.Note(v); n != nil && n.Observe {
		status = model.TaskUncertain
	}
	e.setStatus(v, status)
	e.setBusy(v, false)
	e.ready = append(e.ready, v)
}

// Retry ends an attempt that failed and makes the task due again at retryAt.
// With unseen nobody knows what the attempt did: the next one looks first.
func (e *Edit) Retry(v uint32, fence uint64, unseen bool, end End, retryAt, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	n := e.note(v)
	e.log(n, v, end, now)
	n.Failures++
	n.RetryAt = retryAt
	n.Observe = n.Observe || unseen
	e.again(v)
	return nil
}

// Fail ends a task that is out of attempts. With unseen nobody knows what the
// last one did: should the task be opened again, it is looked for first.
func (e *Edit) Fail(v uint32, fence uint64, unseen bool, end End, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	n := e.note(v)
	e.log(n, v, end, now)
	n.Failures++
	n.Observe = n.Observe || unseen
	e.finish(v, model.TaskFailed, now)
	return nil
}

// Lose takes a lease from a holder that fell silent, or gives back one that
// the holder did not start. With observe the task is uncertain: what it does
// may have been done, and is looked for before it is done again.
func (e *Edit) Lose(v uint32, fence uint64, observe bool, end End, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	n := e.note(v)
	e.log(n, v, end, now)
	if end.Outcome != "returned" {
		n.Lost++
	}
	n.Observe = n.Observe || observe
	e.again(v)
	return nil
}

// Cancel ends a task whose operation does not want it any more.
func (e *Edit) Cancel(v uint32, end End, now int64) {
	status := e.next.Status(v)
	if status.Ended() || e.next.Graph.Action[v] == model.Barrier {
		return
	}
	if status.Held() {
		e.log(e.note(v), v, end, now)
		e.finish(v, model.TaskCancelled, now)
		return
	}
	e.setStatus(v, model.TaskCancelled)
	p, i := e.page(v)
	p.ended[i] = now
}

// CancelWaiting cancels every task that no worker holds.
func (e *Edit) CancelWaiting(now int64) {
	for v := range e.next.Graph.Len() {
		if s := e.next.Status(uint32(v)); !s.Held() {
			e.Cancel(uint32(v), End{}, now)
		}
	}
}

// Reopen makes a failed task ready for a new round of attempts.
func (e *Edit) Reopen(v uint32) {
	if e.next.Status(v) != model.TaskFailed {
		return
	}
	n := e.note(v)
	n.Failures, n.RetryAt = 0, 0
	status := model.TaskReady
	if n.Observe {
		status = model.TaskUncertain
	}
	e.setStatus(v, status)
	p, i := e.page(v)
	p.ended[i] = 0
	e.ready = append(e.ready, v)
}

// Recreate ends a failed CONFIRM at v: the CREATE before it, at create, is
// opened again, first to delete what it made; v, and all else that waited for
// it and has not begun, waits once more
// (spec/planner.md, "Retry").
func (e *Edit) Recreate(v, create uint32, fence uint64, end End, retryAt, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	n := e.note(v)
	e.log(n, v, end, now)
	n.Failures++
	e.setStatus(v, model.TaskBlocked)
	e.setBusy(v, false)
	// Whatever has not begun waits for the CREATE once more.
	for _, w := range e.next.Graph.Next(int(create)) {
		if e.next.Status(w) == model.TaskBlocked {
			p, i := e.page(w)
			p.pending[i]++
		}
	}
	c := e.note(create)
	c.Undo, c.RetryAt = true, retryAt
	e.setStatus(create, model.TaskReady)
	e.ready = append(e.ready, create)
	return nil
}
