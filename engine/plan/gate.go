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
// leased.
func (s *State) HeldBack(v uint32) bool {
	switch {
	case s.gates.shut == 0:
		return false
	case s.gates.get(Whole()) != 0:
		return true
	}
	at := s.Graph.StepOf(v)
	return at != NoStep && (s.gates.get(Step(at)) != 0 || s.gates.get(Phase(s.Graph.PhaseOf(at))) != 0)
}

// Hold sets gates of a part: its tasks are no longer leased. Tasks that workers hold already
// go on.
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
