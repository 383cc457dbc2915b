package plan

import "github.com/coopr/coopr/engine/model"

// Order has the details of an order about a part of a plan.
type Order struct {
	// End is recorded in the history of attempts that the order takes from workers.
	End End
	// Observe reports whether a task that is reset must be observed before it is done again, by
	// its action and its previous status. Nil means no task.
	Observe func(model.Action, model.TaskStatus) bool
	// Undo reports whether a task that is reset is undone before it is done again, see Note.Undo.
	// Skip reports whether a task that has succeeded and is reset is not done again, see
	// Note.Skip. It is asked again if a task that is marked so is reset once more. Nil means no
	// task.
	Undo, Skip func(v uint32) bool
	// Now is Unix milliseconds.
	Now int64
}

// done reports whether the vertices that wait for v may go on.
func (e *Edit) done(v uint32) bool {
	t, i := e.next.leaf(v)
	return t.done(i)
}

// undone makes the done vertex v count as not done; the caller sets its new status. The vertices
// that depend on v wait for it again, unless a worker holds them.
func (e *Edit) undone(v uint32) {
	t, i := e.tasks(v)
	if t.tolerated>>i&1 > 0 {
		e.next.tolerated--
	}
	t.tolerated &^= 1 << i
	t.forced &^= 1 << i
	e.unpass(v)
}

// rewind resets tasks, which no worker holds, to the beginning of a run. All are reset before the
// first becomes ready: whether a gate holds a task back depends on the others of its step.
func (e *Edit) rewind(tasks ...uint32) {
	for _, v := range tasks {
		if t, _ := e.tasks(v); t.runs != nil {
			r, i := e.runs(v)
			r.leased[i], r.ended[i] = 0, 0
		}
	}
	for _, v := range tasks {
		e.put(v)
	}
}

// ForceComplete makes every task of a part count as succeeded. Workers lose the tasks of it
// that they hold.
func (e *Edit) ForceComplete(p Part, o Order) error {
	if err := e.next.Graph.Has(p); err != nil {
		return err
	}
	var passed []uint32
	for v := range e.next.Graph.In(p) {
		status := e.next.Status(v)
		if status == model.TaskSucceeded {
			continue
		}
		if status.Held() {
			e.revoke(v, o.End, o.Now)
		}
		t, i := e.tasks(v)
		if t.tolerated>>i&1 > 0 {
			t.tolerated &^= 1 << i
			e.next.tolerated--
		} else {
			passed = append(passed, v)
		}
		t.forced |= 1 << i
		e.finish(v, model.TaskSucceeded, o.Now)
	}
	// Free successors only now, so that nothing within the part becomes ready in between.
	for _, v := range passed {
		e.pass(v)
	}
	return nil
}

// Inherit makes tasks of a new plan count as succeeded that were done before it began.
func (e *Edit) Inherit(vs []uint32, now int64) error {
	for _, v := range vs {
		if int(v) >= e.next.Graph.Len() || e.next.Graph.Action[v] == model.Barrier || e.next.Status(v).Held() || e.next.Status(v).Ended() {
			return ErrNoPart
		}
		e.finish(v, model.TaskSucceeded, now)
	}
	for _, v := range vs {
		e.pass(v)
	}
	return nil
}

// Restart resets every task of a part. Each then waits for the unfinished tasks before it, so
// order is kept in every run (docs/spec/plans.md, "What to do differently" 3). Histories are
// kept. Workers lose the tasks of the part that they hold. Tasks behind the part wait again,
// unless workers hold them or they are done: those, and the tasks behind them, go on.
func (e *Edit) Restart(p Part, o Order) error {
	if err := e.next.Graph.Has(p); err != nil {
		return err
	}
	var touched, again []uint32
	for v := range e.next.Graph.In(p) {
		status, n := e.next.Status(v), e.Note(v)
		if status == model.TaskBlocked && n == nil {
			continue
		}
		if status.Held() {
			e.revoke(v, o.End, o.Now)
			e.setBusy(v, false)
		}
		if e.done(v) {
			again = append(again, v)
		}
		e.forget(v, o)
		e.setStatus(v, model.TaskBlocked)
		touched = append(touched, v)
	}
	for _, v := range again {
		e.undone(v)
	}
	e.rewind(touched...)
	return nil
}

// forget removes from v's note what concerns the ended run.
func (e *Edit) forget(v uint32, o Order) {
	t := e.next.Task(v)
	observe := o.Observe != nil && t.Attempt > 0 && o.Observe(e.next.Graph.Action[v], t.Status)
	undo := o.Undo != nil && o.Undo(v)
	had := t.Status == model.TaskSucceeded && !t.Forced || t.Note != nil && t.Note.Skip // an order before this one may have reset it
	skip := had && o.Skip != nil && o.Skip(v)
	if t.Note == nil && t.LeasedAt == 0 && !observe && !undo {
		return
	}
	n := e.note(v)
	e.logSuccess(n, v)
	n.Failures, n.Lost, n.RetryAt, n.Adopted, n.Skip = 0, 0, 0, false, skip
	n.Observe = n.Observe || observe
	n.Undo = undo || n.Undo && e.next.Graph.Action[v] == model.Create
}

// Revive lets a plan whose operation gave up go on: the tasks that were cancelled wait for their turn again, and those that failed have a
// new round of attempts. What was tolerated stays, unless tolerated is true.
func (e *Edit) Revive(o Order, tolerated bool) {
	g := e.next.Graph
	if tolerated && e.next.tolerated > 0 {
		e.intolerant(o)
	}
	var again []uint32
	for v := range uint32(g.Len()) {
		if g.Action[v] == model.Barrier || e.done(v) {
			continue
		}
		switch e.next.Status(v) {
		case model.TaskCancelled:
			e.unsure(v, o)
		case model.TaskFailed:
			e.retry(v)
		default:
			continue
		}
		again = append(again, v)
	}
	e.rewind(again...)
}

// unsure has a cancelled task observed, if its last attempt may have been cancelled at any point.
func (e *Edit) unsure(v uint32, o Order) {
	if e.next.Task(v).Attempt > 0 && o.Observe != nil && o.Observe(e.next.Graph.Action[v], model.TaskRunning) {
		e.note(v).Observe = true
	}
}

// intolerant makes the tasks whose failure was tolerated wait for their turn again.
func (e *Edit) intolerant(o Order) {
	var again []uint32
	for v := range uint32(e.next.Graph.Len()) {
		switch t := e.next.Task(v); {
		case !t.Tolerated:
			continue
		case t.Status == model.TaskFailed:
			e.retry(v)
		default:
			e.unsure(v, o)
		}
		e.setStatus(v, model.TaskBlocked)
		again = append(again, v)
	}
	for _, v := range again {
		e.undone(v)
	}
	e.rewind(again...)
}

// Reset restarts the whole plan.
func (e *Edit) Reset(o Order) error { return e.Restart(Whole(), o) }

// Stop takes a part's tasks from their workers, resets all of them and holds the part back.
func (e *Edit) Stop(p Part, o Order) error {
	if err := e.Hold(p, GateInterrupt); err != nil {
		return err
	}
	return e.Restart(p, o)
}
