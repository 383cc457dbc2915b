package plan

import "github.com/coopr/coopr/engine/model"

// Order is what is to be known of an order about a part of a plan.
type Order struct {
	// End is written to the history of attempts that the order takes from workers.
	End End
	// Look says which tasks that are put back to the beginning have to be looked
	// for before they are done again, by their action and the status they had;
	// nil: none.
	Observe func(model.Action, model.TaskStatus) bool
	// Now is Unix milliseconds.
	Now int64
}

// done reports whether what waits for v may go on.
func (e *Edit) done(v uint32) bool {
	t, i := e.next.leaf(v)
	return t.done(i)
}

// undone makes v, which is done, a task that is not, whose status is still to be
// given, and whatever comes behind it and nobody works on wait for it.
func (e *Edit) undone(v uint32) {
	t, i := e.tasks(v)
	if t.tolerated>>i&1 > 0 {
		e.next.tolerated--
	}
	t.tolerated &^= 1 << i
	t.forced &^= 1 << i
	e.unpass(v)
}

// rewind puts v, which nobody holds, back to the beginning of a run.
func (e *Edit) rewind(v uint32) {
	if t, _ := e.tasks(v); t.runs != nil {
		r, i := e.runs(v)
		r.leased[i], r.ended[i] = 0, 0
	}
	e.put(v)
}

// ForceComplete makes every task of a part count as succeeded. Workers lose those
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
	// Only now, so that nothing of the part is made ready on the way.
	for _, v := range passed {
		e.pass(v)
	}
	return nil
}

// Restart puts every task of a part back to the beginning: it waits for what
// is not done before it, so that order is kept on every run (docs/spec/plans.md, "What
// to do differently" 3). Histories are kept. Workers lose what they hold of it.
// What waits for the part waits once more, unless workers hold it or it is done:
// that, and what comes behind that, goes on.
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
	for _, v := range touched {
		e.rewind(v)
	}
	return nil
}

// forget takes from v's note what is about the run that ends.
func (e *Edit) forget(v uint32, o Order) {
	t := e.next.Task(v)
	observe := o.Observe != nil && t.Attempt > 0 && o.Observe(e.next.Graph.Action[v], t.Status)
	if t.Note == nil && t.LeasedAt == 0 && !observe {
		return
	}
	n := e.note(v)
	e.logSuccess(n, v)
	n.Failures, n.Lost, n.RetryAt, n.Adopted = 0, 0, 0, false
	n.Observe = n.Observe || observe
}

// Reset puts the whole plan back to the beginning, as Restart does.
func (e *Edit) Reset(o Order) error { return e.Restart(Whole(), o) }

// Stop takes a part's tasks from their workers, puts all of them back to the
// beginning and holds the part back.
func (e *Edit) Stop(p Part, o Order) error {
	if err := e.Hold(p, GateInterrupt); err != nil {
		return err
	}
	return e.Restart(p, o)
}
