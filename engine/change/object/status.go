package object

import (
	"fmt"
	"strings"
)

// Status is the state of an object as it is shown to users.
type Status struct {
	ID          ID
	Def         *Def `json:"-"`
	State       State
	Target      State
	Phase       Phase
	To          State // Moving
	Incarnation uint32
	Failures    int
	Drifts      int
	// Stuck is true if the type has no way from State to Target (rule 17).
	Stuck bool
	// Oscillating is true if the object has made too many transitions in a row without a new
	// generation and is slowed down (rule 27).
	Oscillating bool
	Removing    bool
	// Until is the end of a backoff, on the clock of Handle.
	Until int64
	Waits []Wait
	// Asked lists the requests of other objects.
	Asked []Wait
}

// Wait is one thing that an object waits for, and the object concerned.
type Wait struct {
	Why   Why
	Peer  ID
	State State // state of the peer (Lock) or of the object itself (Holder)
}

// Why is the reason of a wait.
type Why uint8

// The reasons.
const (
	// Lock: the object waits for the peer to grant it a state.
	Lock Why = iota
	// Holder: the peer still holds a lock of the object.
	Holder
	// Silence: the peer has not reported yet which locks of the object it holds.
	Silence
)

// Status returns the object's activity and its waits.
func (o *Object) Status() Status {
	r := o.few()
	s := Status{
		ID:          o.def.ID,
		Def:         o.def,
		State:       o.state,
		Target:      o.target,
		Phase:       o.phase,
		To:          o.to,
		Incarnation: o.inc,
		Failures: int(
			r.failures,
		),
		Drifts:      int(r.drifts),
		Stuck:       o.stuck(),
		Oscillating: o.turns > manyTurns,
		Removing:    o.removing,
		Until:       r.until,
	}
	if o.phase == Moving {
		return s
	}
	if o.phase == Resting {
		for i := range o.out {
			if l := &o.out[i]; l.want != Unknown && l.flags&held == 0 {
				s.Waits = append(s.Waits, Wait{Lock, o.def.Out[i], l.want})
			}
		}
	}
	for i := range o.in {
		l := &o.in[i]
		if l.want != Unknown {
			s.Asked = append(s.Asked, Wait{Holder, l.peer, l.want})
		}
		switch {
		case l.flags&silent != 0:
			s.Waits = append(s.Waits, Wait{Why: Silence, Peer: l.peer})
		case l.flags&granted != 0 && o.calling:
			s.Waits = append(s.Waits, Wait{Holder, l.peer, o.lent})
		}
	}
	return s
}

// Text returns the status in one line, such as "svcB: up, wants down; waits for svcA in down".
// The function def returns the definitions of neighbours.
func (s Status) Text(def func(ID) *Def) string {
	states := s.Def.Type.States
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", s.Def.Name, states[s.State])
	if s.Target != s.State {
		fmt.Fprintf(&b, ", wants %s", states[s.Target])
	}
	if s.Removing {
		b.WriteString(" as it is being removed")
	}
	switch s.Phase {
	case Moving:
		fmt.Fprintf(&b, "; on its way to %s", states[s.To])
	case Checking:
		b.WriteString("; is being checked")
	case Backoff:
		fmt.Fprintf(&b, "; failed %d times, is checked again after a while", s.Failures)
	}
	if s.Stuck {
		fmt.Fprintf(&b, "; stuck: no transition from %s to %s", states[s.State], states[s.Target])
	}
	if s.Oscillating {
		b.WriteString("; oscillating: made the same transitions again and again, and is slowed down")
	}
	for _, w := range s.Waits {
		switch w.Why {
		case Lock:
			fmt.Fprintf(&b, "; waits for %s in %s", def(w.Peer).Name, def(w.Peer).Type.States[w.State])
		case Holder:
			fmt.Fprintf(&b, "; %s still holds it in %s", def(w.Peer).Name, states[w.State])
		case Silence:
			fmt.Fprintf(&b, "; %s has not reported the locks that it holds", def(w.Peer).Name)
		}
	}
	return b.String()
}
