package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// naive is the slow and obvious plan: after every event it looks at every
// vertex and all that it waits for.
type naive struct {
	g         *plan.Graph
	preds     [][]uint32
	status    []model.TaskStatus
	fence     []uint64
	attempt   []int
	holder    []string
	observe   []bool
	undo      []bool
	retryAt   []int64
	begun     []bool // leased since the beginning of its run
	tolerated []bool
	forced    []bool
	history   []int
	failures  []int
	lost      []int
	gates     map[plan.Part]plan.Gate
	revoked   []plan.Revoked // by the edit under way
}

func newNaive(g *plan.Graph) *naive {
	n := g.Len()
	o := &naive{
		g: g, preds: make([][]uint32, n), status: make([]model.TaskStatus, n), fence: make([]uint64, n), attempt: make([]int, n),
		holder: make([]string, n), observe: make([]bool, n), undo: make([]bool, n), retryAt: make([]int64, n),
		begun: make([]bool, n), tolerated: make([]bool, n), forced: make([]bool, n), history: make([]int, n), failures: make([]int, n), lost: make([]int, n),
		gates: map[plan.Part]plan.Gate{},
	}
	for v := range n {
		for _, w := range g.Next(v) {
			o.preds[w] = append(o.preds[w], uint32(v))
		}
		o.status[v] = model.TaskBlocked
	}
	o.flow()
	return o
}

func (o *naive) done(v uint32) bool { return o.status[v] == model.TaskSucceeded || o.tolerated[v] }

// flow makes each task ready whose predecessors are all done, and blocks each unleased task that
// has a predecessor that is not done.
func (o *naive) flow() {
	for changed := true; changed; {
		changed = false
		for v := range o.g.Len() {
			free := !slices.ContainsFunc(o.preds[v], func(u uint32) bool { return !o.done(u) })
			was := o.status[v]
			switch waits := was == model.TaskReady || was == model.TaskUncertain; {
			case o.g.Action[v] == model.Barrier && free:
				o.status[v] = model.TaskSucceeded
			case o.g.Action[v] == model.Barrier:
				o.status[v] = model.TaskBlocked
			case was == model.TaskBlocked && free:
				o.again(uint32(v))
			case waits && !free:
				o.status[v] = model.TaskBlocked
			}
			changed = changed || was != o.status[v]
		}
	}
}

func (o *naive) waits(v uint32) bool {
	return o.g.Action[v] != model.Barrier && (o.status[v] == model.TaskReady || o.status[v] == model.TaskUncertain)
}

// of reports whether v is in a part.
func (o *naive) of(p plan.Part, v uint32) bool {
	if o.g.Action[v] == model.Barrier {
		return false
	}
	if p == plan.Whole() || o.g.Step == nil {
		return true
	}
	step := o.g.Step[v]
	if step == plan.NoStep {
		return false
	}
	ph := uint32(0)
	for step >= o.g.PhaseOff[ph+1] {
		ph++
	}
	return p == plan.Step(step) || p == plan.Phase(ph)
}

func (o *naive) has(p plan.Part) bool {
	if p == plan.Whole() {
		return true
	}
	if o.g.Step == nil {
		return p == plan.Phase(0) || p == plan.Step(0)
	}
	for ph := range len(o.g.PhaseOff) - 1 {
		for st := o.g.PhaseOff[ph]; st < o.g.PhaseOff[ph+1]; st++ {
			if p == plan.Step(st) {
				return true
			}
		}
		if p == plan.Phase(uint32(ph)) {
			return true
		}
	}
	return false
}

func (o *naive) heldBack(v uint32) bool {
	for p, gate := range o.gates {
		if gate != 0 && (p == plan.Whole() || o.of(p, v)) && (o.isStep(p) || !o.stepBegun(v)) {
			return true
		}
	}
	return false
}

func (o *naive) isStep(p plan.Part) bool { return strings.HasPrefix(p.String(), "step") }

// stepBegun reports whether the step of v goes on while its phase or the plan is held back.
func (o *naive) stepBegun(v uint32) bool {
	for w := range o.g.Len() {
		same := o.g.Step != nil && o.g.Step[v] != plan.NoStep && o.g.Step[v] == o.g.Step[w] && o.g.Action[w] != model.Barrier
		if same && (o.begun[w] || o.failures[w] > 0) {
			return true
		}
	}
	return false
}

func (o *naive) busy(node int32) bool { return o.holds(node, "") }

func (o *naive) holds(node int32, service string) bool {
	for v := range o.g.Len() {
		if s := o.g.ServiceName(v); o.g.Node[v] == node && o.status[v].Held() && (service == "" || s == "" || s == service) {
			return true
		}
	}
	return false
}

func (o *naive) again(v uint32) {
	o.status[v] = model.TaskReady
	if o.observe[v] {
		o.status[v] = model.TaskUncertain
	}
}

// back puts v, which a worker held, where it can be tried again.
func (o *naive) back(v uint32) {
	o.status[v] = model.TaskBlocked
	o.flow()
}

func (o *naive) revoke(v uint32) {
	if o.status[v].Held() {
		o.revoked = append(o.revoked, plan.Revoked{Vertex: v, Fence: o.fence[v]})
		o.history[v]++
	}
}

func (o *naive) cancel(v uint32) {
	if !o.status[v].Ended() && o.g.Action[v] != model.Barrier {
		o.revoke(v)
		o.status[v] = model.TaskCancelled
	}
}

// rewind puts v back to the beginning. flow then decides whether v may continue.
func (o *naive) rewind(v uint32) {
	o.status[v], o.begun[v] = model.TaskBlocked, false
	o.tolerated[v], o.forced[v] = false, false
}

func (o *naive) logSuccess(v uint32) {
	if o.status[v] == model.TaskSucceeded && !o.forced[v] {
		o.history[v]++
	}
}

func (o *naive) restart(p plan.Part) {
	for v := range uint32(o.g.Len()) {
		if o.of(p, v) {
			o.observe[v] = o.observe[v] || o.attempt[v] > 0 && observe(o.g.Action[v], o.status[v])
			o.revoke(v)
			o.logSuccess(v)
			o.rewind(v)
			o.retryAt[v], o.failures[v], o.lost[v] = 0, 0, 0
		}
	}
	o.flow()
}

// observe is a rule like that of the state machine.
func observe(a model.Action, was model.TaskStatus) bool { return a == model.Create || was.Held() }

// draw draws a vertex, most often one that something can happen to.
func (o *naive) draw(t *rapid.T) uint32 {
	var apt []uint32
	aim := rapid.IntRange(0, 4).Draw(t, "aim")
	for v := range uint32(o.g.Len()) {
		switch {
		case aim == 0, aim < 3 && o.status[v].Held(), aim >= 3 && o.waits(v) && !o.heldBack(v):
			apt = append(apt, v)
		}
	}
	if len(apt) == 0 {
		apt = seq(o.g.Len())
	}
	return rapid.SampledFrom(apt).Draw(t, "vertex")
}

// step draws an event and gives it to both.
func (o *naive) step(t *rapid.T, e *plan.Edit, index uint64, now int64) {
	v := o.draw(t)
	fence := o.fence[v]
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		fence += uint64(rapid.IntRange(1, 3).Draw(t, "off"))
	}
	held := o.status[v].Held() && fence == o.fence[v]
	check := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", o.g.Name(int(v)), err, want)
		}
	}
	stale := func() error {
		if held {
			return nil
		}
		return plan.ErrStaleFence
	}
	unseen := rapid.Bool().Draw(t, "unseen")
	retryAt := now + int64(rapid.IntRange(-5, 30).Draw(t, "retry"))
	switch rapid.IntRange(0, 14).Draw(t, "event") {
	case 0, 1, 2, 3:
		h := plan.Holder{Session: fmt.Sprint("s", rapid.IntRange(0, 2).Draw(t, "session")), Agent: "x"}
		err := e.Lease(v, index, h, now)
		switch {
		case !o.waits(v):
			check(err, plan.ErrNotReady)
		case o.heldBack(v):
			check(err, plan.ErrHeld)
		case o.retryAt[v] > now:
			check(err, plan.ErrNotReady)
		case o.g.Node[v] >= 0 && o.busy(o.g.Node[v]):
			check(err, plan.ErrNodeBusy)
		default:
			check(err, nil)
			o.status[v], o.fence[v], o.holder[v], o.begun[v] = model.TaskLeased, index, h.Session, true
			o.attempt[v]++
		}
	case 4:
		check(e.Start(v, fence), stale())
		if held {
			o.status[v] = model.TaskRunning
		}
	case 5, 6, 7:
		check(e.Succeed(v, fence, plan.End{}, now), stale())
		if !held {
			return
		}
		if o.undo[v] {
			o.undo[v], o.observe[v], o.retryAt[v] = false, false, 0
			o.history[v]++
			o.back(v)
			return
		}
		o.status[v], o.observe[v], o.retryAt[v] = model.TaskSucceeded, false, 0
		o.flow()
	case 8:
		if create, ok := o.g.Before(v, model.Create); ok && o.g.Action[v] == model.Confirm {
			check(e.Recreate(v, create, fence, plan.End{}, retryAt, now), stale())
			if held {
				o.history[v]++
				o.failures[v]++
				if o.done(create) {
					o.undo[create], o.retryAt[create] = true, retryAt
					o.logSuccess(create)
					o.rewind(create)
				}
				o.rewind(v)
				o.flow()
			}
			return
		}
		check(e.Retry(v, fence, unseen, plan.End{}, retryAt, now), stale())
		if held {
			o.history[v]++
			o.failures[v]++
			o.observe[v] = o.observe[v] || unseen
			o.retryAt[v] = retryAt
			o.back(v)
		}
	case 9:
		check(e.Lose(v, fence, unseen, plan.End{Outcome: "lost"}, now), stale())
		if held {
			o.history[v]++
			o.lost[v]++
			o.observe[v] = o.observe[v] || unseen
			o.back(v)
		}
	case 10:
		check(e.Fail(v, fence, unseen, plan.End{}, now), stale())
		if held {
			o.fail(v, unseen)
		}
	case 11:
		e.Reopen(slices.Values([]uint32{v}))
		if o.status[v] == model.TaskFailed && !o.tolerated[v] {
			o.retryAt[v], o.failures[v] = 0, 0
			o.rewind(v)
			o.flow()
		}
	case 12:
		switch rapid.IntRange(0, 9).Draw(t, "end") {
		case 0:
			e.CancelWaiting(now)
			for w := range uint32(o.g.Len()) {
				if !o.status[w].Held() {
					o.cancel(w)
				}
			}
		case 1:
			e.Cancel(v, plan.End{}, now)
			o.cancel(v)
		case 2:
			e.Revive(plan.Order{Observe: observe, Now: now}, false)
			o.revive()
		}
	case 13:
		want := stale()
		noStep := o.g.Step == nil || o.g.Step[v] == plan.NoStep
		if held && noStep {
			want = plan.ErrNoPart
		}
		check(e.FailTolerated(v, fence, unseen, plan.End{}, now), want)
		if held && !noStep {
			o.fail(v, unseen)
			for w := range uint32(o.g.Len()) {
				if o.of(plan.Step(o.g.Step[v]), w) {
					o.cancel(w)
					o.tolerated[w] = !o.done(w) || o.tolerated[w]
				}
			}
			o.flow()
		}
	case 14:
		o.order(t, e, now)
	}
}

func (o *naive) revive() {
	for v := range uint32(o.g.Len()) {
		switch cancelled := o.status[v] == model.TaskCancelled; {
		case o.done(v), !cancelled && o.status[v] != model.TaskFailed:
			continue
		case cancelled:
			o.observe[v] = o.observe[v] || o.attempt[v] > 0 && observe(o.g.Action[v], model.TaskRunning)
		default:
			o.retryAt[v], o.failures[v] = 0, 0
		}
		o.rewind(v)
	}
	o.flow()
}

func (o *naive) fail(v uint32, unseen bool) {
	o.history[v]++
	o.failures[v]++
	o.observe[v] = o.observe[v] || unseen
	o.status[v] = model.TaskFailed
}

// order draws an order about a part, which may not be there, and gives it to both.
func (o *naive) order(t *rapid.T, e *plan.Edit, now int64) {
	i := rapid.Uint32Range(0, 4).Draw(t, "index")
	p := []plan.Part{plan.Whole(), plan.Phase(i), plan.Step(i), plan.Step(i)}[rapid.IntRange(0, 3).Draw(t, "level")]
	gate := plan.Gate(rapid.IntRange(1, 3).Draw(t, "gate"))
	ord := plan.Order{End: plan.End{Outcome: "cancelled"}, Observe: observe, Now: now}
	var err error
	switch order := rapid.IntRange(0, 9).Draw(t, "order"); {
	case order < 3:
		if err = e.Hold(p, gate); o.has(p) {
			o.gates[p] |= gate
		}
	case order < 6:
		if err = e.Release(p, gate); o.has(p) {
			o.gates[p] &^= gate
		}
	case order < 7:
		if err = e.Stop(p, ord); o.has(p) {
			o.gates[p] |= plan.GateInterrupt
			o.restart(p)
		}
	case order < 8:
		if err = e.Restart(p, ord); o.has(p) {
			o.restart(p)
		}
	default:
		err = e.ForceComplete(p, ord)
		for v := range uint32(o.g.Len()) {
			if o.has(p) && o.of(p, v) && o.status[v] != model.TaskSucceeded {
				o.revoke(v)
				o.status[v], o.forced[v], o.tolerated[v] = model.TaskSucceeded, true, false
			}
		}
		o.flow()
	}
	if o.has(p) != (err == nil) || (err != nil && !errors.Is(err, plan.ErrNoPart)) {
		t.Fatalf("order about %s: %v", p, err)
	}
}

func (o *naive) compare(t *rapid.T, s *plan.State) {
	t.Helper()
	var counts [model.TaskStatuses]int
	var leasable, leased []uint32
	tolerated, complete := 0, true
	for v := range uint32(o.g.Len()) {
		complete = complete && o.done(v)
		if got := s.Status(v); got != o.status[v] {
			t.Fatalf("%s (%d) is %s, want %s", o.g.Name(int(v)), v, got, o.status[v])
		}
		if o.g.Action[v] == model.Barrier {
			continue
		}
		counts[o.status[v]]++
		if o.tolerated[v] {
			tolerated++
		}
		if got := s.HeldBack(v); got != o.heldBack(v) {
			t.Fatalf("%s (%d) is held back: %t", o.g.Name(int(v)), v, got)
		}
		if o.waits(v) && !o.heldBack(v) {
			leasable = append(leasable, v)
		}
		if o.status[v].Held() {
			leased = append(leased, v)
		}
		task := s.Task(v)
		if task.Fence != o.fence[v] || task.Attempt != o.attempt[v] || task.Holder.Session != o.holder[v] {
			t.Fatalf("%s: %+v, want fence %d, attempt %d", o.g.Name(int(v)), task, o.fence[v], o.attempt[v])
		}
		if task.Forced != o.forced[v] || task.Tolerated != o.tolerated[v] || (task.LeasedAt != 0) != o.begun[v] {
			t.Fatalf("%s: %+v, want forced %t, tolerated %t, begun %t", o.g.Name(int(v)), task, o.forced[v], o.tolerated[v], o.begun[v])
		}
		var note plan.Note
		if task.Note != nil {
			note = *task.Note
		}
		if len(note.History) != o.history[v] || note.Failures != o.failures[v] || note.Lost != o.lost[v] || note.RetryAt != o.retryAt[v] || note.Undo != o.undo[v] || note.Observe != o.observe[v] {
			t.Fatalf("%s: %+v, want history of %d, %d failures, %d lost, retry at %d, undo %t, observe %t", o.g.Name(int(v)), note,
				o.history[v], o.failures[v], o.lost[v], o.retryAt[v], o.undo[v], o.observe[v])
		}
	}
	for st := range counts {
		if got := s.Count(model.TaskStatus(st)); got != counts[st] {
			t.Fatalf("%d tasks count as %s, want %d", got, model.TaskStatus(st), counts[st])
		}
	}
	if got := s.Leasable(); !slices.Equal(got, leasable) {
		t.Fatalf("leasable %v, want %v", got, leasable)
	}
	if got := s.Leased(""); !slices.Equal(got, leased) {
		t.Fatalf("leased %v, want %v", got, leased)
	}
	for _, session := range []string{"s0", "s1", "s2"} {
		want := slices.DeleteFunc(slices.Clone(leased), func(v uint32) bool { return o.holder[v] != session })
		if got := s.Leased(session); !slices.Equal(got, want) {
			t.Fatalf("%s leased %v, want %v", session, got, want)
		}
	}
	if s.Held() != len(leased) || s.Complete() != complete || s.Tolerated() != tolerated {
		t.Fatalf("held %d of %d, complete %t, want %t, tolerated %d of %d", s.Held(), len(leased), s.Complete(), complete, s.Tolerated(), tolerated)
	}
	for node, id := range o.g.Nodes {
		if _, got := s.Busy(int32(node)); got != o.busy(int32(node)) {
			t.Fatalf("node %d busy %t", node, got)
		}
		for _, service := range []string{"", "a", "b"} {
			if _, got := s.Holds(id, service); got != o.holds(int32(node), service) {
				t.Fatalf("node %s held for %q: %t", id, service, got)
			}
		}
	}
	if _, held := s.Holds("elsewhere", ""); held {
		t.Fatal("it holds a node that it does not have")
	}
	o.compareParts(t, s)
}

func (o *naive) compareParts(t *rapid.T, s *plan.State) {
	t.Helper()
	parts := []plan.Part{plan.Whole()}
	for i := range uint32(10) {
		parts = append(parts, plan.Phase(i), plan.Step(i))
	}
	for _, p := range parts {
		if has := o.g.Has(p) == nil; has != o.has(p) || s.Gates(p) != o.gates[p] {
			t.Fatalf("%s: there %t, gates %d, want %d", p, has, s.Gates(p), o.gates[p])
		}
		if !o.has(p) {
			continue
		}
		var want []uint32
		failures := 0
		for v := range uint32(o.g.Len()) {
			if o.of(p, v) {
				want = append(want, v)
				if o.status[v] == model.TaskFailed {
					failures++
				}
			}
		}
		got := slices.Sorted(o.g.In(p))
		if !slices.Equal(got, want) || s.Failures(p) != failures {
			t.Fatalf("%s has %v, %d failed, want %v, %d", p, got, s.Failures(p), want, failures)
		}
	}
}
