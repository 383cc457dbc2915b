package plan_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// rig carries a plan through its life in small words.
type rig struct {
	t     testing.TB
	s     *plan.State
	fence uint64
}

// serial makes a plan of one phase. Each step has one node with two tasks. The steps run one after
// the other or, with parallel, at the same time.
func serial(t testing.TB, steps int, parallel bool) *rig {
	nodes := make([]string, steps)
	for i := range nodes {
		nodes[i] = string(rune('a' + i))
	}
	b := plan.NewBuilder(nodes, []string{"s"})
	var of []uint32
	for n := range nodes {
		b.Edge(b.Task(model.Configure, n, 0), b.Task(model.Start, n, 0))
		of = append(of, uint32(n), uint32(n))
		if n+1 < steps && !parallel {
			wall := b.Barrier()
			of = append(of, plan.NoStep)
			b.Edge(wall-1, wall)
			b.Edge(wall, wall+1)
		}
	}
	g, err := b.Build()
	if err == nil {
		g, err = g.WithSteps(of, []uint32{uint32(steps)})
	}
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, s: plan.NewState(g)}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) edit(fn func(e *plan.Edit)) *plan.Edit {
	e := r.s.Edit()
	fn(e)
	r.s = e.Done()
	return e
}

func (r *rig) lease(v uint32) {
	r.t.Helper()
	r.fence++
	r.edit(func(e *plan.Edit) {
		r.must(e.Lease(v, r.fence, plan.Holder{Session: "s", Agent: "a"}, int64(r.fence)))
	})
}

// steps returns the steps of what may be leased.
func (r *rig) steps() []uint32 {
	var out []uint32
	for _, v := range r.s.Leasable() {
		out = append(out, r.s.Graph.StepOf(v))
	}
	return slices.Compact(out)
}

// finish does all of a step that is offered.
func (r *rig) finish(step uint32) {
	r.t.Helper()
	for v := range r.s.Graph.In(plan.Step(step)) {
		r.lease(v)
		r.edit(func(e *plan.Edit) { r.must(e.Succeed(v, r.fence, plan.End{}, int64(r.fence))) })
	}
}

func (r *rig) want(why string, steps ...uint32) {
	r.t.Helper()
	if got := r.steps(); !slices.Equal(got, steps) {
		r.t.Fatalf("%s: steps %v may be worked on, want %v", why, got, steps)
	}
}

// docs/spec/plans.md, "What to do differently" 3: order is kept on every run.
func TestRestartKeepsOrder(t *testing.T) {
	r := serial(t, 3, false)
	for run := range 3 {
		for step := range uint32(3) {
			r.want("each run", step)
			r.finish(step)
		}
		if !r.s.Complete() {
			t.Fatalf("run %d is not complete", run)
		}
		r.edit(func(e *plan.Edit) { r.must(e.Reset(plan.Order{})) })
	}
	if n := r.s.Note(0); len(n.History) != 3 || n.History[2].Outcome != "succeeded" || n.Avoid != "" {
		t.Errorf("the history of three runs is %+v", n)
	}
	// A step in the middle of a complete plan is done again by itself.
	for step := range uint32(3) {
		r.finish(step)
	}
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Step(1), plan.Order{})) })
	r.want("one step again", 1)
	r.finish(1)
	if !r.s.Complete() {
		t.Error("it is not complete")
	}
	// The next task has begun, so it continues. Tasks that have not begun wait.
	r.edit(func(e *plan.Edit) { r.must(e.Reset(plan.Order{})) })
	r.finish(0)
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Step(0), plan.Order{})) })
	r.want("the next had not begun", 0)
	r.finish(0)
	r.lease(r.s.Leasable()[0])
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Step(0), plan.Order{})) })
	if r.s.Held() != 1 {
		t.Error("what had begun was touched")
	}
	begun := r.s.Leased("")[0]
	r.edit(func(e *plan.Edit) {
		r.must(e.Retry(begun, r.fence, false, plan.End{}, 0, 1))
		r.must(e.Restart(plan.Step(0), plan.Order{}))
	})
	r.want("the next had begun, but nobody works on it now", 0)
}

// A part that opens is not offered while a larger part is shut.
func TestGatesWithinGates(t *testing.T) {
	r := serial(t, 3, true)
	parts := []plan.Part{plan.Whole(), plan.Phase(0), plan.Step(1)}
	r.edit(func(e *plan.Edit) {
		for _, p := range parts {
			r.must(e.Hold(p, plan.GateInterrupt))
		}
		r.must(e.Hold(plan.Step(1), plan.GateCanary))
	})
	told := func(p plan.Part, gate plan.Gate) []uint32 {
		return r.edit(func(e *plan.Edit) { r.must(e.Release(p, gate)) }).Ready()
	}
	if got := told(plan.Phase(0), plan.GateInterrupt); len(got) > 0 {
		t.Errorf("told of %v, but the plan is shut", got)
	}
	if got := told(plan.Whole(), plan.GateInterrupt); !slices.Equal(got, []uint32{0, 4}) {
		t.Errorf("told of %v", got)
	}
	if got := told(plan.Step(1), plan.GateInterrupt); len(got) > 0 {
		t.Errorf("told of %v, but the step has another gate", got)
	}
	if got := told(plan.Step(1), plan.GateCanary); !slices.Equal(got, []uint32{2}) {
		t.Errorf("told of %v", got)
	}
}

// TestPauseIsBetweenSteps checks that a plan or phase that is held back goes on with the steps that have begun, and begins no other.
func TestPauseIsBetweenSteps(t *testing.T) {
	for _, p := range []plan.Part{plan.Whole(), plan.Phase(0)} {
		t.Run(p.String(), func(t *testing.T) {
			r := serial(t, 3, true)
			succeed := func(v uint32) {
				t.Helper()
				r.edit(func(e *plan.Edit) { r.must(e.Succeed(v, r.fence, plan.End{}, int64(r.fence))) })
			}
			r.lease(0)
			r.edit(func(e *plan.Edit) { r.must(e.Hold(p, plan.GateInterrupt)) })
			r.want("while the first task runs")
			r.edit(func(e *plan.Edit) { r.must(e.Lose(0, r.fence, false, plan.End{}, 2)) })
			r.want("its worker fell silent", 0)
			r.lease(0)
			succeed(0)
			r.want("the step that has begun", 0)
			r.edit(func(e *plan.Edit) {
				if err := e.Lease(2, 9, plan.Holder{Session: "s"}, 9); !errors.Is(err, plan.ErrHeld) {
					t.Errorf("a step that has not begun: %v", err)
				}
			})
			r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Step(0), plan.Order{})) })
			r.want("what is restarted has not begun")
			r.edit(func(e *plan.Edit) { r.must(e.Release(p, plan.GateInterrupt)) })
			r.want("released", 0, 1, 2)
			r.lease(0)
			r.edit(func(e *plan.Edit) {
				r.must(e.Hold(p, plan.GateInterrupt))
				r.must(e.Hold(plan.Step(0), plan.GateInterrupt))
			})
			succeed(0)
			r.want("a gate of its own holds back a step that has begun")
		})
	}
}

// TestPauseWhileACreateIsMadeAgain checks that a step whose machine is made again has begun, even though none of its tasks is done.
func TestPauseWhileACreateIsMadeAgain(t *testing.T) {
	b := plan.NewBuilder([]string{"a"}, nil)
	b.Edge(b.Task(model.Create, 0, plan.None), b.Task(model.Confirm, 0, plan.None))
	g, err := b.Build()
	if err == nil {
		g, err = g.WithSteps([]uint32{0, 0}, []uint32{1})
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: plan.NewState(g)}
	r.lease(0)
	r.edit(func(e *plan.Edit) { r.must(e.Succeed(0, r.fence, plan.End{}, 1)) })
	r.lease(1)
	r.edit(func(e *plan.Edit) {
		r.must(e.Hold(plan.Whole(), plan.GateInterrupt))
		r.must(e.Recreate(1, 0, r.fence, plan.End{}, 0, 2))
	})
	r.want("the machine is deleted and made again", 0)
}

// TestRestartUndoesAndSkips checks that a task is undone and then done again, and that one that is skipped is marked only if it had
// succeeded.
func TestRestartUndoesAndSkips(t *testing.T) {
	r := serial(t, 2, true)
	r.finish(0)
	order := plan.Order{Undo: func(v uint32) bool { return v%2 == 0 }, Skip: func(v uint32) bool { return v%2 == 1 }}
	succeed := func(v uint32) {
		t.Helper()
		r.lease(v)
		r.edit(func(e *plan.Edit) { r.must(e.Succeed(v, r.fence, plan.End{}, 1)) })
	}
	r.lease(2)
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Whole(), order)) })
	if n := r.s.Note(1); !n.Skip || n.Undo {
		t.Errorf("done before: %+v", n)
	}
	if n := r.s.Note(3); n != nil {
		t.Errorf("never begun: %+v", n)
	}
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Whole(), order)) })
	if n := r.s.Note(1); !n.Skip {
		t.Errorf("restarted twice: %+v", n)
	}
	succeed(0)
	r.want("undone", 0, 1)
	if n := r.s.Note(0); n.Undo || n.History[len(n.History)-1].Outcome != "undone" {
		t.Errorf("undone: %+v", n)
	}
	succeed(0)
	succeed(1)
	if n := r.s.Note(1); !n.Skip {
		t.Errorf("skipped: %+v", n)
	}
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Whole(), plan.Order{})) })
	if a, b := r.s.Note(0), r.s.Note(1); a.Undo || b.Skip {
		t.Errorf("restarted without either: %+v %+v", a, b)
	}
}

// TestAdopt checks that a task whose work another operation has done is not done again, whether it waits for its turn, is held back or
// waits for other tasks, and that an order repeats it.
func TestAdopt(t *testing.T) {
	r := serial(t, 2, true)
	r.edit(func(e *plan.Edit) {
		r.must(e.Hold(plan.Whole(), plan.GateInterrupt))
		r.must(e.Adopt(0, 7, 3))
		r.must(e.Adopt(3, 8, 3)) // it waits for others
		r.must(e.Release(plan.Whole(), plan.GateInterrupt))
	})
	for v, fence := range map[uint32]uint64{0: 7, 3: 8} {
		if is := r.s.Task(v); is.Status != model.TaskSucceeded || !is.Note.Adopted || is.Fence != fence || is.EndedAt != 3 || r.s.Inherited(v) {
			t.Errorf("%+v", is)
		}
		r.edit(func(e *plan.Edit) {
			if err := e.Adopt(v, 9, 4); !errors.Is(err, plan.ErrNotReady) {
				t.Errorf("adopted twice: %v", err)
			}
		})
	}
	r.lease(1)
	r.edit(func(e *plan.Edit) {
		if err := e.Adopt(1, 9, 4); !errors.Is(err, plan.ErrNotReady) {
			t.Errorf("a task that a worker holds: %v", err)
		}
		r.must(e.Succeed(1, r.fence, plan.End{}, 5))
	})
	r.lease(2)
	r.edit(func(e *plan.Edit) { r.must(e.Succeed(2, r.fence, plan.End{}, 6)) })
	if !r.s.Complete() {
		t.Errorf("the plan is not complete: %+v", r.s.Progress())
	}
	back, err := plan.DecodeState(r.s.Graph, r.s.Encode())
	if err != nil || !reflect.DeepEqual(back.Task(3), r.s.Task(3)) {
		t.Errorf("read back: %+v, %v", back, err)
	}
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Whole(), plan.Order{})) })
	r.want("restarted", 0, 1)
}

// docs/spec/plans.md, "What to do differently" 6: a late result of an attempt that was
// stopped, restarted or forced changes nothing, and workers lose it.
func TestOrdersMakeLeasesStale(t *testing.T) {
	for name, order := range map[string]func(e *plan.Edit) error{
		"stop":    func(e *plan.Edit) error { return e.Stop(plan.Whole(), plan.Order{Now: 9}) },
		"restart": func(e *plan.Edit) error { return e.Restart(plan.Step(1), plan.Order{Now: 9}) },
		"force":   func(e *plan.Edit) error { return e.ForceComplete(plan.Phase(0), plan.Order{Now: 9}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := serial(t, 3, true)
			r.lease(2)
			if v, held := r.s.Holds("b", "s"); !held || v != 2 {
				t.Fatal("the node is not held")
			}
			e := r.edit(func(e *plan.Edit) { r.must(order(e)) })
			if want := []plan.Revoked{{Vertex: 2, Fence: r.fence}}; !slices.Equal(e.Revoked(), want) {
				t.Errorf("revoked %v, want %v", e.Revoked(), want)
			}
			if _, held := r.s.Holds("b", ""); held {
				t.Error("the node is held still")
			}
			r.edit(func(e *plan.Edit) {
				if err := e.Succeed(2, r.fence, plan.End{}, 10); !errors.Is(err, plan.ErrStaleFence) {
					t.Errorf("the late result gave %v", err)
				}
			})
		})
	}
}

// Gates hold steps back from the first moment on, and the graph does not know:
// STR-06 and STR-08 (docs/spec/plans.md §3).
func TestCanaryGates(t *testing.T) {
	for name, parallel := range map[string]bool{"serial-canary": false, "parallel-canary": true} {
		t.Run(name, func(t *testing.T) {
			r := serial(t, 5, parallel)
			r.edit(func(e *plan.Edit) {
				for step := range uint32(5) {
					gate := plan.GateCanary
					if step < 2 {
						gate = plan.GateInterrupt
					}
					r.must(e.Hold(plan.Step(step), gate))
				}
			})
			r.want("before the first release")
			r.edit(func(e *plan.Edit) {
				if err := e.Lease(0, 1, plan.Holder{Session: "s"}, 1); !errors.Is(err, plan.ErrHeld) {
					t.Errorf("a canary that nobody released: %v", err)
				}
			})
			e := r.edit(func(e *plan.Edit) { r.must(e.Release(plan.Step(0), plan.GateInterrupt)) })
			if !slices.Equal(e.Ready(), []uint32{0}) {
				t.Errorf("told of %v", e.Ready())
			}
			r.want("the first canary", 0)
			r.finish(0)
			r.want("the first is done")
			r.edit(func(e *plan.Edit) {
				r.must(e.Release(plan.Step(1), plan.GateInterrupt))
				r.must(e.Release(plan.Phase(0), plan.GateCanary)) // nothing: steps have the gates
				for step := uint32(2); step < 5; step++ {
					r.must(e.Release(plan.Step(step), plan.GateCanary))
				}
			})
			if parallel {
				r.want("all released", 1, 2, 3, 4)
				return
			}
			for step := uint32(1); step < 5; step++ {
				r.want("in turn", step)
				r.finish(step)
			}
		})
	}
}

// A step that fails in a phase that tolerates it does not stop those behind it.
func TestTolerance(t *testing.T) {
	r := serial(t, 2, false)
	r.lease(0)
	r.edit(func(e *plan.Edit) { r.must(e.FailTolerated(0, r.fence, false, plan.End{Outcome: "fatal"}, 5)) })
	r.want("the failed step is passed", 1)
	if r.s.Status(1) != model.TaskCancelled || r.s.Failures(plan.Phase(0)) != 1 {
		t.Errorf("the rest of the step is %s, %d failures", r.s.Status(1), r.s.Failures(plan.Phase(0)))
	}
	r.edit(func(e *plan.Edit) { e.Reopen(slices.Values([]uint32{0})) })
	if r.s.Status(0) != model.TaskFailed {
		t.Error("a failure that was tolerated was opened again")
	}
	r.finish(1)
	if !r.s.Complete() || r.s.Tolerated() != 2 {
		t.Errorf("complete %t, %d tolerated", r.s.Complete(), r.s.Tolerated())
	}
	r.edit(func(e *plan.Edit) { r.must(e.Restart(plan.Step(0), plan.Order{})) })
	r.want("the operator has it done again", 0)
	r.finish(0)
	if !r.s.Complete() || r.s.Tolerated() != 0 {
		t.Errorf("complete %t, %d tolerated", r.s.Complete(), r.s.Tolerated())
	}
}

// A CONFIRM that fails while an operator has its CREATE done again leaves that
// CREATE alone.
func TestConfirmFailsDuringRestart(t *testing.T) {
	b := plan.NewBuilder([]string{"n"}, nil)
	b.Edge(b.Task(model.Create, 0, plan.None), b.Task(model.Confirm, 0, plan.None))
	g, err := b.Build()
	if err == nil {
		g, err = g.WithSteps([]uint32{0, 1}, []uint32{2})
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: plan.NewState(g)}
	r.finish(0)
	r.lease(1)
	observe := func(a model.Action, was model.TaskStatus) bool {
		return a == model.Create && was == model.TaskSucceeded
	}
	r.edit(func(e *plan.Edit) {
		r.must(e.Restart(plan.Step(0), plan.Order{Observe: observe}))
		r.must(e.Recreate(1, 0, r.fence, plan.End{Outcome: "failed"}, 0, 7))
	})
	if n := r.s.Note(0); r.s.Status(0) != model.TaskUncertain || n.Undo || !n.Observe {
		t.Errorf("CREATE is %s: %+v", r.s.Status(0), n)
	}
	if r.s.Status(1) != model.TaskBlocked {
		t.Errorf("CONFIRM is %s", r.s.Status(1))
	}
}

// Steps that do not fit their graph are refused.
func TestStepsThatDoNotFit(t *testing.T) {
	g := serial(t, 2, true).s.Graph
	for name, steps := range map[string]struct{ of, sizes []uint32 }{
		"too few":     {[]uint32{0}, []uint32{1}},
		"beyond":      {[]uint32{0, 0, 1, 2}, []uint32{1, 1}},
		"very many":   {[]uint32{0, 0, 1, 1}, []uint32{1 << 31, 1 << 31, 1 << 31}},
		"none at all": {[]uint32{0, 0, 0, 0}, nil},
	} {
		if _, err := g.WithSteps(steps.of, steps.sizes); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
