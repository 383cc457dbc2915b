package plan

import "github.com/coopr/coopr/engine/model"

// Edit makes the next State from a State. One goroutine uses it, and not after Done. It copies
// as much as it changes, whatever the size of the plan.
type Edit struct {
	next    *State
	ready   []uint32
	revoked []Revoked
	// own is the leaf that was written last; at is its index.
	own *tasks
	at  uint32
	// holder is the session that took a lease last, with its index plus one.
	holder   Holder
	holderAt uint32
	watch    func(v uint32, from, to model.TaskStatus)
}

// Revoked is a lease that an edit took from its holder, which must cancel the work.
type Revoked struct {
	Vertex uint32
	Fence  uint64
}

// Edit starts a change of s.
func (s *State) Edit() *Edit {
	next := *s
	next.gen++
	return &Edit{next: &next}
}

// Watch calls fn for every later change of a task's status, in order, and before the
// consequences of that change. Barriers are not tasks.
func (e *Edit) Watch(fn func(v uint32, from, to model.TaskStatus)) { e.watch = fn }

// Done returns the changed state.
func (e *Edit) Done() *State { return e.next }

// Ready returns the tasks that became leasable in this edit, in order. Some may have been
// leased, held back or blocked since.
func (e *Edit) Ready() []uint32 { return e.ready }

// Revoked returns the leases that this edit took from live workers, because of an order or a
// cancelled task.
func (e *Edit) Revoked() []Revoked { return e.revoked }

// State returns the edit's state so far. The edit owns its columns.
func (e *Edit) State() *State { return e.next }

// tasks returns v's leaf for writing, and v's index in it.
func (e *Edit) tasks(v uint32) (*tasks, uint32) {
	if at := v / taskLeaf; e.own == nil || e.at != at {
		e.own, e.at = e.next.tasks.own(at, e.next.gen), at
	}
	return e.own, v % taskLeaf
}

// runs returns the columns about v's latest attempt for writing.
func (e *Edit) runs(v uint32) (*runs, uint32) {
	t, i := e.tasks(v)
	switch {
	case t.runs == nil:
		t.runs = &runs{}
	case t.runGen != e.next.gen:
		c := *t.runs
		t.runs = &c
	}
	t.runGen = e.next.gen
	return t.runs, i
}

func (e *Edit) setBusy(v uint32, held bool) {
	n := e.next.Graph.Node[v]
	if n < 0 {
		return
	}
	at := &e.next.busy.own(uint32(n)/nodeLeaf, e.next.gen)[n%nodeLeaf]
	*at = 0
	if held {
		*at = v + 1
	}
}

func (e *Edit) setStatus(v uint32, to model.TaskStatus) {
	t, i := e.tasks(v)
	if e.watch != nil && t.status[i] != to {
		e.watch(v, t.status[i], to)
	}
	e.next.counts[t.status[i]]--
	e.next.counts[to]++
	t.status[i] = to
}

// note returns v's note for writing, copied if necessary.
func (e *Edit) note(v uint32) *Note {
	at := &e.next.notes.own(v/taskLeaf, e.next.gen)[v%taskLeaf]
	n := &Note{}
	if *at != nil {
		*n = **at
		n.History = append([]Attempt(nil), n.History...)
	}
	*at = n
	return n
}

// Note returns v's note in the edit's state, or nil.
func (e *Edit) Note(v uint32) *Note { return e.next.Note(v) }

// put sets the status of a task that no worker holds: blocked, or ready if every task that it
// waits for is done. This keeps the order, whatever is done again.
func (e *Edit) put(v uint32) {
	if t, i := e.tasks(v); t.pending[i] > 0 {
		e.setStatus(v, model.TaskBlocked)
		return
	}
	status := model.TaskReady
	if n := e.Note(v); n != nil && n.Observe {
		status = model.TaskUncertain
	}
	e.setStatus(v, status)
	if !e.next.HeldBack(v) {
		e.ready = append(e.ready, v)
	}
}

// free makes a vertex go on once its predecessors are done.
func (e *Edit) free(v uint32) {
	if e.next.Graph.Action[v] != model.Barrier {
		e.put(v)
		return
	}
	t, i := e.tasks(v)
	t.status[i] = model.TaskSucceeded
	e.pass(v)
}

// pass frees the vertices that wait only for v, which is done now. Barriers are done at once,
// without recursion, because chains of them may be long.
func (e *Edit) pass(v uint32) {
	var barriers []uint32
	for {
		for _, w := range e.next.Graph.Next(int(v)) {
			t, i := e.tasks(w)
			if t.pending[i]--; t.pending[i] > 0 || t.status[i] != model.TaskBlocked {
				continue
			}
			if e.next.Graph.Action[w] != model.Barrier {
				e.put(w)
				continue
			}
			t.status[i] = model.TaskSucceeded
			barriers = append(barriers, w)
		}
		if len(barriers) == 0 {
			return
		}
		v, barriers = barriers[len(barriers)-1], barriers[:len(barriers)-1]
	}
}

// unpass makes the vertices behind v, which is no longer done, wait for it again, unless a
// worker holds them.
func (e *Edit) unpass(v uint32) {
	var barriers []uint32
	for {
		for _, w := range e.next.Graph.Next(int(v)) {
			t, i := e.tasks(w)
			t.pending[i]++
			switch {
			case e.next.Graph.Action[w] == model.Barrier:
				if t.status[i] == model.TaskSucceeded {
					t.status[i] = model.TaskBlocked
					barriers = append(barriers, w)
				}
			case waits(t.status[i]):
				e.setStatus(w, model.TaskBlocked)
			}
		}
		if len(barriers) == 0 {
			return
		}
		v, barriers = barriers[len(barriers)-1], barriers[:len(barriers)-1]
	}
}

// index returns the index of a session, which it adds if it is new.
func (e *Edit) index(h Holder) uint32 {
	if e.holderAt > 0 && h == e.holder {
		return e.holderAt - 1
	}
	key := []byte(h.Session)
	at, ok := e.next.bySession.Get(key)
	if !ok {
		n := uint32(e.next.bySession.Len())
		e.next.holders.own(n/holderLeaf, e.next.gen)[n%holderLeaf] = h
		e.next.bySession, _, _ = e.next.bySession.Insert(key, n)
		at = n
	}
	e.holder, e.holderAt = h, at.(uint32)+1
	return e.holderAt - 1
}
