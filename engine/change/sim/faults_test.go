package sim

import (
	"github.com/coopr/coopr/engine/change/object"
)

// Lease is how long the leader waits for a silent agent before it gives its objects to another
// one. The agent's runtime stops Margin before that.
const (
	Lease  = 400
	Margin = 50
)

// Crash kills an agent now. Acts that it started go on until its lease ends at the latest. Then the
// leader starts the objects again: on the same agent, or spread over others if move is set.
func (s *Sim) Crash(a int, move bool) {
	ag := &s.agents[a]
	if ag.leaving {
		return
	}
	s.retire(a)
	ag.dead, ag.leaving = true, true
	s.revive(a, move)
}

// Cut breaks an agent's connection to the leader. Its runtime goes on until it must stop. Then
// the leader acts as after a crash.
func (s *Sim) Cut(a int, move bool) {
	if s.agents[a].leaving {
		return
	}
	s.agents[a].leaving = true
	s.At(s.q.now+Lease-Margin, func() {
		if ag := &s.agents[a]; !ag.dead {
			s.retire(a)
			ag.dead = true
		}
	})
	s.revive(a, move)
}

// retire adds up the counters of a runtime and replaces it by an empty one.
func (s *Sim) retire(a int) {
	h := s.agents[a].runtime
	for k, n := range h.Sent {
		s.sent[k] += n
	}
	s.packets += h.Packets
	s.rode += h.Rode
	s.decisions += h.Decisions
	s.agents[a].runtime = s.newRuntime(a)
}

// revive does what the leader does once an agent's lease has ended.
func (s *Sim) revive(a int, move bool) {
	s.At(s.q.now+Lease, func() {
		ag := &s.agents[a]
		for i := range s.world {
			w := &s.world[i]
			if w.acting == int32(a)+1 {
				// It is killed in the middle of the act, which may already have had its
				// effect.
				if w.moving {
					s.unrely(object.ID(i))
					d := s.def(object.ID(i))
					if s.rng.IntN(2) == 0 {
						w.state = d.Type.Priority[s.rng.IntN(2)]
					}
				}
				w.acting = 0
			}
		}
		ag.life++
		ag.dead, ag.leaving = false, false
		s.timers[a] = 0
		var back []object.ID
		for i := range s.owner {
			if s.owner[i] != int32(a) {
				continue
			}
			id := object.ID(i)
			if move {
				s.owner[i] = int32(s.rng.IntN(len(s.agents)))
				if s.agents[s.owner[i]].leaving {
					s.owner[i] = int32(a)
				}
			}
			s.incs[i]++
			back = append(back, id)
		}
		for _, id := range back {
			s.start(id)
		}
		s.flush()
	})
}

// FailNext makes the next n transitions of an object fail.
func (s *Sim) FailNext(id object.ID, n int) {
	if s.script == nil {
		s.script = map[object.ID]int{}
	}
	s.script[id] = n
}

// Drift changes an object by hand, without the knowledge of its runtime.
func (s *Sim) Drift(id object.ID, state object.State, content uint64) {
	w := &s.world[id]
	w.state, w.drifted = state, true
	if content != 0 {
		w.content = content
	}
}

// Probe makes an object's runtime check for drift.
func (s *Sim) Probe(id object.ID) { s.tell(id, object.Event{What: object.Probe}) }

// World returns the true state of an object.
func (s *Sim) World(id object.ID) object.State { return s.truth(s.def(id)) }

// Now returns the current time.
func (s *Sim) Now() int64 { return s.q.now }

// Run processes events until a time.
func (s *Sim) Run(until int64) {
	s.At(until, func() {})
	for s.q.now < until && s.Step() {
	}
}

// Generation returns the number of the generation that is in force everywhere.
func (s *Sim) Generation() uint64 { return s.site.Generation }

// Decisions returns the number of events that objects have handled.
func (s *Sim) Decisions() int {
	n := s.decisions
	for i := range s.agents {
		n += s.agents[i].runtime.Decisions
	}
	return n
}
