package plan

import (
	"iter"

	"github.com/coopr/coopr/engine/model"
)

// Lease grants v to a session. It refuses a task that is not ready (or uncertain), that a gate
// holds back, whose next attempt is not due at now, or whose node another task holds.
func (e *Edit) Lease(v uint32, fence uint64, h Holder, now int64) error {
	if int(v) >= e.next.Graph.Len() {
		return ErrNoVertex
	}
	if e.next.Graph.Action[v] == model.Barrier || !waits(e.next.Status(v)) {
		return ErrNotReady
	}
	if e.next.HeldBack(v) {
		return ErrHeld
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
	t, i := e.tasks(v)
	if t.attempt[i] < 255 {
		t.attempt[i]++
	}
	r, _ := e.runs(v)
	r.fence[i], r.holder[i], r.leased[i], r.ended[i] = fence, e.index(h), now, 0
	return nil
}

// held checks that fence is the fence of v's current lease.
func (e *Edit) held(v uint32, fence uint64) error {
	if int(v) >= e.next.Graph.Len() {
		return ErrNoVertex
	}
	if !e.next.Valid(v, fence) {
		return ErrStaleFence
	}
	return nil
}

// Start records that the holder has begun to work.
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
	r, i := e.runs(v)
	r.holder[i] = e.index(h)
	return nil
}

// End is the end of an attempt.
type End struct {
	Outcome string // "succeeded", "failed", "lost", "returned", "cancelled"
	Message string
	LogTail string
	Adopted bool
}

// log appends the latest attempt at v to its history.
func (e *Edit) log(n *Note, v uint32, end End, now int64) {
	t := e.next.Task(v)
	n.History = append(n.History, Attempt{
		Number: t.Attempt, Fence: t.Fence, Agent: t.Holder.Agent, Outcome: end.Outcome,
		Message: end.Message, LogTail: end.LogTail, Leased: t.LeasedAt, Ended: now,
	})
	n.Avoid = t.Holder.Agent
}

// logSuccess appends v's latest attempt to its history if it was a success, because v begins
// another run.
func (e *Edit) logSuccess(n *Note, v uint32) {
	if t := e.next.Task(v); t.Status == model.TaskSucceeded && !t.Forced {
		e.log(n, v, End{Outcome: "succeeded"}, t.EndedAt)
		n.Avoid = ""
	}
}

// finish sets the last status of v.
func (e *Edit) finish(v uint32, status model.TaskStatus, now int64) {
	if e.next.Status(v).Held() {
		e.setBusy(v, false)
	}
	e.setStatus(v, status)
	r, i := e.runs(v)
	r.ended[i] = now
}

// again takes a task from its holder and frees its node.
func (e *Edit) again(v uint32) {
	e.setBusy(v, false)
	e.put(v)
}

// Succeed ends v with success, and makes ready the tasks that waited only for it.
func (e *Edit) Succeed(v uint32, fence uint64, end End, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	if n := e.Note(v); n != nil && n.Undo {
		// The attempt deleted the result of a CREATE. The CREATE itself is next.
		n = e.note(v)
		e.log(n, v, End{Outcome: Undone, Message: end.Message}, now)
		n.Undo, n.Observe, n.RetryAt, n.Avoid = false, false, 0, ""
		e.again(v)
		return nil
	} else if n != nil || end.Adopted {
		n = e.note(v)
		n.Adopted, n.RetryAt, n.Observe = end.Adopted, 0, false
	}
	e.finish(v, model.TaskSucceeded, now)
	e.pass(v)
	return nil
}

// Adopt makes a task that no worker holds count as succeeded, because another operation has done its work. The fence orders it among the
// attempts of other operations.
func (e *Edit) Adopt(v uint32, fence uint64, now int64) error {
	if int(v) >= e.next.Graph.Len() {
		return ErrNoVertex
	}
	if status := e.next.Status(v); e.next.Graph.Action[v] == model.Barrier || status.Held() || status.Ended() {
		return ErrNotReady
	}
	t, i := e.tasks(v)
	if t.attempt[i] < 255 {
		t.attempt[i]++
	}
	r, _ := e.runs(v)
	r.fence[i], r.holder[i], r.leased[i] = fence, e.index(Holder{}), now
	n := e.note(v)
	n.Adopted, n.RetryAt, n.Observe, n.Undo = true, 0, false, false
	e.finish(v, model.TaskSucceeded, now)
	e.pass(v)
	return nil
}

// Retry ends a failed attempt and makes the task due again at retryAt. With unseen, the effect
// of the attempt is unknown, so the next one observes first.
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

// Fail ends a task that is out of attempts. If unseen is true, the effect of the last attempt is
// unknown: should the task be reopened, it is observed first.
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

// FailTolerated ends a task that is out of attempts in a phase that tolerates it. It cancels
// the unfinished tasks of the same step, and the tasks that waited for the step go on
// (max_failures, docs/spec/planner.md "Graph" 4). It refuses a task that is in no step with
// ErrNoPart.
func (e *Edit) FailTolerated(v uint32, fence uint64, unseen bool, end End, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	g := e.next.Graph
	if g.Step == nil || g.Step[v] == NoStep {
		return ErrNoPart
	}
	if err := e.Fail(v, fence, unseen, end, now); err != nil {
		return err
	}
	var passed []uint32
	for w := range g.In(Step(g.Step[v])) {
		e.Cancel(w, End{Outcome: "cancelled", Message: g.Name(int(v)) + " failed"}, now)
		if !e.done(w) {
			t, i := e.tasks(w)
			t.tolerated |= 1 << i
			e.next.tolerated++
			passed = append(passed, w)
		}
	}
	// All tasks of the step have ended by now, so none of them is freed.
	for _, w := range passed {
		e.pass(w)
	}
	return nil
}

// Lose takes a lease from a holder that fell silent, or returns one that the holder did not
// start. With observe the task becomes uncertain: its work may have been done, so that is
// checked before it is done again.
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

// Cancel ends a task that its operation no longer wants.
func (e *Edit) Cancel(v uint32, end End, now int64) {
	status := e.next.Status(v)
	if status.Ended() || e.next.Graph.Action[v] == model.Barrier {
		return
	}
	if status.Held() {
		e.revoke(v, end, now)
	}
	e.finish(v, model.TaskCancelled, now)
}

// revoke records that v's attempt is no longer wanted. The caller still changes v's status.
func (e *Edit) revoke(v uint32, end End, now int64) {
	e.log(e.note(v), v, end, now)
	e.revoked = append(e.revoked, Revoked{v, e.next.Fence(v)})
}

// CancelWaiting cancels every task that no worker holds.
func (e *Edit) CancelWaiting(now int64) {
	if c := &e.next.counts; c[model.TaskBlocked]+c[model.TaskReady]+c[model.TaskUncertain] == 0 {
		return
	}
	for v := range e.next.Graph.Len() {
		if s := e.next.Status(uint32(v)); !s.Held() {
			e.Cancel(uint32(v), End{}, now)
		}
	}
}

// Observe has every task that has not succeeded observed before it is done: it may have been done
// without a record in this plan.
func (e *Edit) Observe() {
	for i := range e.next.Graph.Len() {
		v := uint32(i)
		status := e.next.Status(v)
		if e.next.Graph.Action[v] == model.Barrier || status == model.TaskSucceeded {
			continue
		}
		e.note(v).Observe = true
		if status == model.TaskReady {
			e.setStatus(v, model.TaskUncertain)
		}
	}
}

// Reopen makes those of some tasks that have failed ready for a new round of attempts, each once
// the tasks that it waits for are done. A tolerated failure stays.
func (e *Edit) Reopen(tasks iter.Seq[uint32]) {
	var again []uint32
	for v := range tasks {
		if e.next.Status(v) == model.TaskFailed && !e.done(v) {
			e.retry(v)
			again = append(again, v)
		}
	}
	e.rewind(again...)
}

// retry forgets the failures of v; the caller rewinds it.
func (e *Edit) retry(v uint32) {
	n := e.note(v)
	n.Failures, n.RetryAt = 0, 0
}

// Recreate ends a failed CONFIRM at v. It opens the CREATE before it, at create, again, which
// first deletes what it made. The task v, and all other tasks that waited for that CREATE and
// that no worker holds, wait again (docs/spec/planner.md, "Retry"). A CREATE that is running
// again already is left alone.
func (e *Edit) Recreate(v, create uint32, fence uint64, end End, retryAt, now int64) error {
	if err := e.held(v, fence); err != nil {
		return err
	}
	n := e.note(v)
	e.log(n, v, end, now)
	n.Failures++
	e.setBusy(v, false)
	if e.done(create) {
		c := e.note(create)
		e.logSuccess(c, create)
		c.Undo, c.RetryAt = true, retryAt
		e.undone(create)
		e.rewind(create)
	}
	e.rewind(v)
	return nil
}
