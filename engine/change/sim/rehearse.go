package sim

import (
	"github.com/coopr/coopr/engine/change/object"
)

// Rehearsal is a possible order of the transitions that a new generation causes (rule 22). The
// transitions of one round can happen at the same time.
type Rehearsal struct {
	Rounds [][]Step
	// Stuck lists the objects that would not reach their states.
	Stuck []object.ID
	// Trouble describes violations that happen without any fault; nil if there are none.
	Trouble []string
}

// longRehearsal is the highest number of rounds in a rehearsal.
const longRehearsal = 100_000

// Rehearse simulates the rollout of a generation in a world in which every act succeeds at
// once. The parameter old is the generation in force, or nil. The function known returns the
// known states of its objects. If it is nil, they are in their preferred states.
func Rehearse(old, next *object.Site, known func(object.ID) (object.State, bool)) Rehearsal {
	var r Rehearsal
	last := int64(-1)
	cfg := Config{Site: next, Agents: 1, MoveTime: 1, Host: func(object.ID) int { return 0 }}
	cfg.Watch = func(s Step) {
		if !s.Begin {
			return
		}
		if s.At != last {
			r.Rounds = append(r.Rounds, nil)
			last = s.At
		}
		r.Rounds[len(r.Rounds)-1] = append(r.Rounds[len(r.Rounds)-1], s)
	}
	if old != nil {
		cfg.Site, cfg.Deployed = old, true
		cfg.Initial = func(id object.ID) object.State {
			if known != nil {
				if s, ok := known(id); ok && s != object.Unknown {
					return s
				}
			}
			return old.Defs[id].Preferred
		}
	}
	s := New(cfg)
	if old != nil {
		for s.q.now == 0 && s.Step() { // the checks
		}
		s.Apply(next)
	}
	for len(r.Rounds) < longRehearsal && !s.AtRest() && s.q.now < 10*longRehearsal && s.Step() {
	}
	for i := range next.Defs {
		if next.Defs[i].Name != "" {
			if o := s.Object(object.ID(i)); o == nil || !o.AtRest() {
				r.Stuck = append(r.Stuck, object.ID(i))
			}
		}
	}
	r.Trouble = s.Violations
	return r
}
