package plan

import "github.com/coopr/coopr/engine/model"

// Gate is a reason why a part of a plan is held back. Gates at different levels, and different
// gates at the same level, are independent: a task may be leased only if its plan, its phase
// and its step have none.
type Gate uint8

// The gates.
const (
	// GateInterrupt is set by an operator or for a canary. A plan, phase or step with this gate
	// is shown as WAITING (docs/spec/plans.md §1).
	GateInterrupt Gate = 1 << iota
	// GateCanary holds back the steps behind canaries that have not all been released
	// (docs/spec/plans.md §3). A step with this gate is shown as PENDING.
	GateCanary

	allGates = GateInterrupt | GateCanary
)

// gates are the gates of a plan, its phases and its steps, by level. shut counts the parts
// that have gates.
type gates struct {
	levels [levelStep + 1]table[[gateLeaf]Gate]
	shut   int
}

func (g *gates) get(p Part) Gate {
	if l := g.levels[p.level].get(p.index / gateLeaf); l != nil {
		return l[p.index%gateLeaf]
	}
	return 0
}

func (g *gates) set(p Part, to Gate, gen uint64) {
	at := &g.levels[p.level].own(p.index/gateLeaf, gen)[p.index%gateLeaf]
	switch {
	case *at == 0 && to != 0:
		g.shut++
	case *at != 0 && to == 0:
		g.shut--
	}
	*at = to
}

// Gates returns the gates of a part, without those of the larger parts that contain it.
func (s *State) Gates(p Part) Gate {
	if s.gates.shut == 0 || s.Graph.Has(p) != nil {
		return 0
	}
	return s.gates.get(p)
}

// Gated reports whether any part of the plan is held back.
func (s *State) Gated() bool { return s.gates.shut > 0 }

// HeldBack reports whether a gate of v's step, its phase or the plan keeps v from being
// leased. A gate of the phase or of the plan is one between steps: a step that has begun goes
// on to its end (docs/spec/plans.md §4).
func (s *State) HeldBack(v uint32) bool {
	if s.gates.shut == 0 {
		return false
	}
	if at := s.Graph.StepOf(v); at != NoStep && s.gates.get(Step(at)) != 0 {
		return true
	}
	return s.Halted(v) && !s.Begun(s.Graph.StepOf(v))
}

// Halted reports whether v's phase or the plan has a gate.
func (s *State) Halted(v uint32) bool {
	if s.gates.shut == 0 {
		return false
	}
	at := s.Graph.StepOf(v)
	return s.gates.get(Whole()) != 0 || at != NoStep && s.gates.get(Phase(s.Graph.PhaseOf(at))) != 0
}

// Begun reports whether a task of a step has been leased since the step was last reset. A plan
// without steps has none that have begun.
func (s *State) Begun(step uint32) bool {
	if s.Graph.Step == nil || step == NoStep {
		return false
	}
	for v := range s.Graph.In(Step(step)) {
		t, i := s.leaf(v)
		if t.runs != nil && t.runs.leased[i] > 0 {
			return true
		}
		if n := s.Note(v); n != nil && n.Failures > 0 { // its CREATE is made again
			return true
		}
	}
	return false
}

// Hold sets gates of a part: its tasks are no longer leased. Tasks that workers hold already
// go on. With a gate of the plan or of a phase, steps that have begun do so, too.
func (e *Edit) Hold(p Part, why Gate) error {
	if err := e.next.Graph.Has(p); err != nil {
		return err
	}
	if was := e.next.gates.get(p); was|why != was {
		e.next.gates.set(p, was|why, e.next.gen)
	}
	return nil
}

// Release removes gates of a part. Tasks that become leasable are appended to Ready.
func (e *Edit) Release(p Part, why Gate) error {
	if err := e.next.Graph.Has(p); err != nil {
		return err
	}
	was := e.next.gates.get(p)
	if was&why == 0 {
		return nil
	}
	e.next.gates.set(p, was&^why, e.next.gen)
	if was&^why != 0 || e.next.counts[model.TaskReady]+e.next.counts[model.TaskUncertain] == 0 {
		return nil
	}
	for v := range e.next.Graph.In(p) {
		if waits(e.next.Status(v)) && !e.next.HeldBack(v) {
			e.ready = append(e.ready, v)
		}
	}
	return nil
}
