package sim

import (
	"github.com/coopr/coopr/engine/change/object"
)

// Lease is how long the leader waits before it gives the objects of a home that
// it does not hear to another one. The home stops Margin before that.
const (
	Lease  = 400
	Margin = 50
)

// Crash kills an agent now. What its home ran goes on until its lease ends, or
// ends sooner. After that the leader starts the objects anew: on the same agent,
// or spread over others where move is set.
func (s *Sim) Crash(a int, move bool) {
	ag := &s.agents[a]
	if ag.leaving {
		return
	}
	s.retire(a)
	ag.dead, ag.leaving = true, true
	s.revive(a, move)
}

// Cut takes an agent's connection to the leader away. Its home goes on until it
// must stop; then the leader does as after a crash.
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

// retire counts what a home has done and kills its acts at the end of its lease.
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

// revive is what the leader does once a home's lease has ended.
func (s *Sim) revive(a int, move bool) {
	s.At(s.q.now+Lease, func() {
		ag := &s.agents[a]
		for i := range s.world {
			w := &s.world[i]
			if w.acting == int32(a)+1 {
				// Killed in the middle: perhaps it had its effect already.
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
