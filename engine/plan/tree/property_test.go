package tree

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// world is a random plan in progress, with its graph before compilation as an independent
// reference.
type world struct {
	base  *plan.Graph
	d     *Draft
	s     *plan.State
	now   int64
	fence uint64
}

var kinds = []Strategy{
	{}, {Kind: Parallel}, {Kind: Dependency}, {Canary: 2}, {Kind: Parallel, Canary: 2}, {Kind: Dependency, Canary: 1},
	{Kind: Batch, Size: 2}, {Kind: Batch, Size: 50, Percent: true, MaxFailures: 1}, {Canary: 3},
}

// drawWorld draws a random graph and assigns its tasks to random phases and steps.
func drawWorld(t *rapid.T) *world {
	n := rapid.IntRange(1, 14).Draw(t, "tasks")
	nodes := []string{"a", "b", "c", "d", "e", "f"}
	b := plan.NewBuilder(nodes, []string{"s"})
	for range n {
		b.Task(model.Start, rapid.IntRange(0, len(nodes)-1).Draw(t, "node"), 0)
	}
	for v := 1; v < n; v++ {
		if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
			b.Edge(uint32(rapid.IntRange(0, v-1).Draw(t, "from")), uint32(v))
		}
	}
	base, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := newDraft(base, "x", rapid.SampledFrom([]Strategy{{}, {Kind: Parallel}, {Kind: Dependency}}).Draw(t, "plan"))
	for v := 0; v < n; v++ {
		if len(d.Phases) == 0 || rapid.IntRange(0, 5).Draw(t, "new phase") == 0 {
			d.phase(Phase{Name: "p", Strategy: rapid.SampledFrom(kinds).Draw(t, "strategy")})
		}
		if p := d.Phases[len(d.Phases)-1]; p.First == p.End || rapid.IntRange(0, 2).Draw(t, "same step") > 0 {
			d.step()
		}
		d.Step[v] = d.steps() - 1
	}
	if rapid.IntRange(0, 4).Draw(t, "mix") == 0 { // most of these contradict their graph
		d.Step = rapid.Permutation(d.Step).Draw(t, "steps")
	}
	g, err := d.Compile(base)
	var order *OrderError
	switch {
	case errors.As(err, &order):
		if len(order.Cycle) == 0 {
			t.Fatalf("no cycle in %v", err)
		}
		t.Skip("the order contradicts the graph")
	case err != nil:
		t.Fatal(err)
	}
	w := &world{base: base, d: d, s: plan.NewState(g), now: 1}
	w.gates(Arm(w.view(), rapid.Bool().Draw(t, "custom")))
	return w
}

func (w *world) view() *View { return ViewOf(&w.d.Tree, w.s, w.now) }

func (w *world) edit(f func(e *plan.Edit) error) error {
	e := w.s.Edit()
	err := f(e)
	w.s = e.Done()
	return err
}

func (w *world) gates(changes []Change) {
	_ = w.edit(func(e *plan.Edit) error {
		for _, c := range changes {
			if c.Shut {
				_ = e.Hold(c.Part, c.Gate)
			} else {
				_ = e.Release(c.Part, c.Gate)
			}
		}
		return nil
	})
}

// free reports whether v is due: no gate holds it back, and it does not wait for its next attempt.
func (w *world) free(v uint32) bool {
	n := w.s.Note(v)
	return !w.s.HeldBack(v) && (n == nil || n.RetryAt <= w.now)
}

// waits reports, for each step, whether all of its remaining tasks wait for something. It uses the
// graph before compilation.
func (w *world) waits(steps []Child) []bool {
	over := func(v uint32) bool { t := w.s.Task(v); return t.Status == model.TaskSucceeded || t.Tolerated }
	blocked := make([]bool, w.base.Len())
	for v := range w.base.Len() {
		for _, x := range w.base.Next(v) {
			blocked[x] = blocked[x] || !over(uint32(v))
		}
	}
	out := make([]bool, len(steps))
	for i := range out {
		out[i] = true
	}
	for v, s := range w.d.Step {
		if !over(uint32(v)) && !blocked[v] {
			out[s] = false
		}
	}
	for _, p := range w.d.Phases {
		for s := p.First + 1; s < p.End && p.Strategy.Kind == Dependency; s++ {
			if w.nodeOf(s) >= 0 && w.nodeOf(s) == w.nodeOf(s-1) {
				// Each step of a node waits for all earlier steps of that node.
				for b := s - 1; ; b-- {
					out[s] = out[s] || !steps[b].over()
					if b == p.First || w.nodeOf(b-1) != w.nodeOf(s) {
						break
					}
				}
			}
		}
	}
	return out
}

func (w *world) nodeOf(step uint32) int32 {
	for v, s := range w.d.Step {
		if s == step {
			return w.base.Node[v]
		}
	}
	return plan.None
}

// check compares the leasable tasks with the candidates of the pure tree.
func (w *world) check(t *rapid.T) {
	v := w.view()
	for i, wait := range w.waits(v.Steps) {
		v.Steps[i].Waits = wait
	}
	candidate := map[uint32]bool{}
	for _, s := range v.Candidates(nil) {
		candidate[s] = true
	}
	// After a failure that is not tolerated, the operation's policy decides, and the tree offers
	// fewer steps than the graph.
	failed := false
	for x := range w.base.Len() {
		task := w.s.Task(uint32(x))
		failed = failed || task.Status == model.TaskFailed && !task.Tolerated
	}
	leasable := map[uint32]bool{}
	for _, x := range w.s.Leasable() {
		if !w.free(x) {
			continue
		}
		step := w.s.Graph.StepOf(x)
		leasable[step] = true
		// A task that was leased before goes on, even if an earlier one was restarted.
		if !candidate[step] && !failed && w.s.Task(x).LeasedAt == 0 {
			t.Fatalf("%s of step %d may be leased, but is not a candidate (%s)", w.s.Graph.Name(int(x)), step, v.letters())
		}
	}
	for s := range candidate {
		if st := v.Steps[s].Status; (st == Pending || st == Prepared) && !leasable[s] {
			t.Fatalf("step %d is a candidate, but nothing of it may be leased (%s)", s, v.letters())
		}
	}
	if st := v.Status(); (st == Complete) != !slices.ContainsFunc(v.Steps, func(c Child) bool { return c.Status != Complete }) {
		t.Fatalf("the plan is %s over %s", st, v.letters())
	} else if st == Error && len(v.Failed) == 0 {
		t.Fatalf("ERROR without an error (%s)", v.letters())
	}
}

// inOrder fails the test unless task x comes after all tasks for which it must wait.
func (w *world) inOrder(t *rapid.T, x uint32) {
	v := w.view()
	step := w.s.Graph.StepOf(x)
	phase := v.phaseOf(step)
	p := v.Phases[phase]
	if v.Strategy.Kind == Serial && !allOver(v.Steps[:p.First]) {
		t.Fatalf("%s is leased before an earlier phase is over (%s)", w.s.Graph.Name(int(x)), v.letters())
	}
	before := step
	if p.Strategy.Kind == Batch {
		size := uint32(p.Strategy.batch(int(p.End - p.First)))
		before = p.First + (step-p.First)/size*size
	}
	if (p.Strategy.Kind == Serial || p.Strategy.Kind == Batch) && !allOver(v.Steps[p.First:before]) {
		t.Fatalf("%s is leased before an earlier step is over (%s)", w.s.Graph.Name(int(x)), v.letters())
	}
	if (v.Interrupted || v.Held[phase]) && !v.Steps[step].GoesOn || v.Steps[step].Interrupted || v.Steps[step].Behind {
		t.Fatalf("%s is leased though it is held back", w.s.Graph.Name(int(x)))
	}
}

// one triggers one random event: a lease, a result, an order or a change of leader.
func (w *world) one(t *rapid.T) {
	var free []uint32
	for _, x := range w.s.Leasable() {
		if n := w.s.Graph.Node[x]; w.free(x) {
			if _, busy := w.s.Busy(n); !busy {
				free = append(free, x)
			}
		}
	}
	held := w.s.Leased("")
	w.now += 10
	order := plan.Order{Now: w.now, Observe: func(model.Action, model.TaskStatus) bool { return rapid.Bool().Draw(t, "observe") }}
	switch what := rapid.IntRange(0, 12).Draw(t, "what"); {
	case what == 12:
		w.anotherLeader(t)
	case what < 5 && len(free) > 0:
		x := rapid.SampledFrom(free).Draw(t, "lease")
		if w.s.Task(x).LeasedAt == 0 {
			w.inOrder(t, x)
		}
		w.fence++
		if err := w.edit(func(e *plan.Edit) error { return e.Lease(x, w.fence, plan.Holder{Session: "s"}, w.now) }); err != nil {
			t.Fatal(err)
		}
	case what < 9 && len(held) > 0:
		x := rapid.SampledFrom(held).Draw(t, "result")
		fence := w.s.Fence(x)
		err := w.edit(func(e *plan.Edit) error {
			switch rapid.IntRange(0, 9).Draw(t, "outcome") {
			case 0:
				return e.Retry(x, fence, false, plan.End{}, w.now+25, w.now)
			case 1:
				if !w.d.Tolerates(w.s, x) {
					return e.Fail(x, fence, false, plan.End{Message: "broken"}, w.now)
				}
				return e.FailTolerated(x, fence, false, plan.End{Message: "broken"}, w.now)
			case 2:
				return e.Start(x, fence)
			}
			return e.Succeed(x, fence, plan.End{}, w.now)
		})
		if err != nil {
			t.Fatal(err)
		}
	case what >= 9:
		v := w.view()
		commands := []string{"start", "stop", "interrupt", "continue", "continue", "continue", "forceComplete", "restart"}
		o := Order{Command: rapid.SampledFrom(commands).Draw(t, "order"), Plan: "x"}
		if rapid.Bool().Draw(t, "of a phase") {
			p := rapid.IntRange(0, len(v.Phases)-1).Draw(t, "phase")
			o.Phase = v.PhaseID(p)
			if o.Command == "start" || o.Command == "stop" {
				o.Phase = ""
			} else if (o.Command == "forceComplete" || o.Command == "restart") && rapid.Bool().Draw(t, "of a step") {
				o.Step = v.StepID(p, rapid.IntRange(0, len(v.steps(p))-1).Draw(t, "step"))
			}
		}
		r := Give([]*View{v}, o)
		if r.Code != CodeOK && r.Code != CodeAlready {
			t.Fatalf("%+v: %+v", o, r)
		}
		w.gates(r.Gates)
		err := w.edit(func(e *plan.Edit) error {
			for _, p := range r.Complete {
				if err := e.ForceComplete(p, order); err != nil {
					return err
				}
			}
			for _, p := range r.Restart {
				if err := e.Restart(p, order); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// anotherLeader encodes the graph and the state and decodes them again, as for a new leader.
func (w *world) anotherLeader(t *rapid.T) {
	before := w.view().Info()
	g, err := plan.DecodeGraph(w.s.Graph.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if w.s, err = plan.DecodeState(g, w.s.Encode()); err != nil {
		t.Fatal(err)
	}
	if err := w.d.Fits(g); err != nil {
		t.Fatal(err)
	}
	if after := w.view().Info(); !reflect.DeepEqual(before, after) {
		t.Fatalf("%v\nbecame\n%v", before, after)
	}
}

// TestGraphAndTreeAgree checks, after random events and orders, that the tasks that can be leased
// under the compiled graph and its gates are those that the tree offers, and that the order holds,
// including after restarts.
func TestGraphAndTreeAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.check(t)
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			w.one(t)
			w.check(t)
		}
	})
}
