package object

import (
	"fmt"
	"slices"
)

// Reason is one link of the chain of reasons why an object does not move.
type Reason struct {
	ID   ID
	Name string
	Text string
}

// Explain follows the waits of an object to their root. The first Reason is the object itself,
// the last one is what has to happen or to be done. It returns nil for an object at rest. Of
// several roots it takes one that will not go away by itself, then the nearest. The function
// status returns the status of an object, and false if no agent reports on it.
func Explain(id ID, def func(ID) *Def, status func(ID) (Status, bool)) []Reason {
	first, ok := status(id)
	if ok && first.atRest() {
		return nil
	}
	// Breadth first over the waits; every root is compared.
	type step struct {
		id   ID
		from int
		why  string
	}
	steps := []step{{id, -1, ""}}
	index := map[ID]int{id: 0}
	best, weight, ending := 0, -1, ""
	root := func(i, w int, text string) {
		if w > weight {
			best, weight, ending = i, w, text
		}
	}
	for i := 0; i < len(steps); i++ {
		at := steps[i].id
		s, ok := status(at)
		if !ok {
			root(i, 5, "no agent runs it or answers for it, so it counts as holding the locks that it held; "+
				"bring its agent back, or release it with a reason")
			continue
		}
		switch {
		case s.Stuck:
			root(i, 4, fmt.Sprintf("is stuck: its type has no transition from %s to %s", s.Def.Type.States[s.State], s.Def.Type.States[s.Target]))
			continue
		case s.Oscillating:
			root(i, 4, "is oscillating: it makes the same transitions again and again, because others need it in another state than it "+
				"prefers; it is slowed down")
		case s.Phase == Backoff:
			root(i, 3, fmt.Sprintf("failed %d times, and is checked again after a while", s.Failures))
			continue
		case s.Phase == Checking:
			root(i, 1, "is being checked")
			continue
		case s.Phase == Moving:
			root(i, 1, "is on its way to "+s.Def.Type.States[s.To])
			continue
		}
		grow := func(peer ID, why string) {
			if j, seen := index[peer]; seen {
				// The chain is back at an object that waits for this one, so none of them can
				// begin.
				for k := i; k >= 0; k = steps[k].from {
					if k == j {
						root(i, 6, "waits for "+def(peer).Name+", which waits for it: they wait for each other for ever")
					}
				}
				return
			}
			index[peer] = len(steps)
			steps = append(steps, step{peer, i, why})
		}
		for _, w := range s.Waits {
			p := def(w.Peer)
			switch w.Why {
			case Lock:
				grow(w.Peer, fmt.Sprintf("waits for %s in %s", p.Name, p.Type.States[w.State]))
			case Holder:
				grow(w.Peer, fmt.Sprintf("is held in %s by %s", s.Def.Type.States[w.State], p.Name))
			case Silence:
				grow(w.Peer, fmt.Sprintf("has begun a new life and waits for %s to report the locks that it holds", p.Name))
			}
		}
		if len(s.Waits) == 0 {
			for _, a := range s.Asked {
				if a.State == s.Target && s.Target != s.Def.Preferred {
					grow(a.Peer, fmt.Sprintf("is wanted in %s by %s", s.Def.Type.States[a.State], def(a.Peer).Name))
				}
			}
		}
		root(i, 0, "will go on by itself: a message or a moment is all that is missing")
	}
	chain := []Reason{{ID: steps[best].id, Text: ending}}
	for k := best; steps[k].from >= 0; k = steps[k].from {
		chain = append(chain, Reason{ID: steps[steps[k].from].id, Text: steps[k].why})
	}
	slices.Reverse(chain)
	for i := range chain {
		chain[i].Name = def(chain[i].ID).Name
	}
	return chain
}

func (s *Status) atRest() bool {
	return s.Phase == Resting && s.State == s.Target && s.Target == s.Def.Preferred && len(s.Waits) == 0
}
