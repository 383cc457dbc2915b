package plan

import "github.com/coopr/coopr/engine/model"

// Gate says why a part of a plan is held back. Gates at different levels, and
// different gates at one, know nothing of each other: a task may be leased when
// neither its plan nor its phase nor its step has any.
type Gate uint8

// The gates.
const (
	// GateInterrupt is an operator's, or a canary's own: the part shows WAITING
	// (docs/spec/plans.md §1).
	GateInterrupt Gate = 1 << iota
	// GateCanary holds back what comes behind canaries that were not all
	// released yet (docs/spec/plans.md §3); the part shows PENDING.
	GateCanary

	allGates = GateInterrupt | GateCanary
)

// gates are the gates of a plan, its phases and its steps, by level. shut counts
// the parts that have any.
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

// Gates returns what holds a part back, not counting what holds back a larger part that it
// belongs to.
func (s *State) Gates(p Part) Gate {
	if s.gates.shut == 0 || s.Graph.Has(p) != nil {
		return 0
	}
	return s.gates.get(p)
}

// HeldBack reports whether a gate keeps v from being leased: its own step's, its phase's or
// the plan's.
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

// Hold shuts gates of a part: no task of it is leased any more. What workers
// hold already goes on.
func (e *Edit) Hold(p Part, why Gate) error {
	if err := e.next.Graph.Has(p); err != nil {
		return err
	}
	if was := e.next.gates.get(p); was|why != was {
		e.next.gates.set(p, was|why, e.next.gen)
	}
	return nil
}

// Release opens gates of a part. What may be leased from now on is appended to
// Ready.
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
