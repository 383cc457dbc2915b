package sim

import (
	"github.com/coopr/coopr/engine/change/object"
)

// The world is the real state of the machines, of which runtimes only have copies. Acts change it,
// and the oracle reads nothing else.

// truth returns the result of a check (rule 2).
func (s *Sim) truth(d *object.Def) object.State {
	w := &s.world[d.ID]
	if w.content == d.Content || w.content == 0 {
		return w.state
	}
	if out, ok := d.Type.State("outdated"); ok {
		return out
	}
	return w.state
}

// begin starts an act of a runtime and checks S1, S2 and S3.
func (s *Sim) begin(a int, x act) {
	w := &s.world[x.ID]
	d := s.agents[a].runtime.Object(x.ID).Def()
	s.Acts++
	if int(s.owner[x.ID]) != a {
		s.violate("S3: %s acts at a%d, but is a%d's", d.Name, a, s.owner[x.ID])
	}
	if w.acting != 0 && s.q.now < w.actEnd {
		s.violate("S3: %s acts at a%d while an act of a%d runs", d.Name, a, w.acting-1)
	}
	took := s.cfg.CheckTime
	if x.What == object.Run {
		took = s.cfg.MoveTime
		if s.cfg.MoveJitter > 0 {
			took += s.rng.Int64N(s.cfg.MoveJitter + 1)
		}
	}
	w.acting, w.actEnd = int32(a)+1, s.q.now+took
	if x.What == object.Run {
		s.Ran[x.ID]++
		w.moving = true
		if !s.cfg.Lenient {
			s.rely(d, x.Transition)
		}
		if s.cfg.Watch != nil {
			s.cfg.Watch(Step{At: s.q.now, ID: x.ID, Transition: x.Transition, Begin: true})
		}
	}
	s.q.push(event{at: s.q.now + took, kind: ended, agent: int32(a), life: s.agents[a].life, act: x})
}

// rely checks that everything a transition needs is true, and records that it must stay so.
func (s *Sim) rely(d *object.Def, t object.Transition) {
	w := &s.world[d.ID]
	if w.relied > 0 {
		s.violate("S2: %s goes %s while a transition relies on its state", d.Name, d.Type.Actions[t.Action])
	}
	w.trust = w.trust[:0]
	var need func(object.ID, object.State)
	need = func(p object.ID, in object.State) {
		for _, k := range w.trust {
			if k.id == p {
				return
			}
		}
		v := &s.world[p]
		if v.drifted {
			return
		}
		if v.moving || v.state != in {
			s.violate("S1: %s goes %s, but %s is not in %s", d.Name, d.Type.Actions[t.Action], s.follows(p).Name, s.follows(p).Type.States[in])
			return
		}
		v.relied++
		w.trust = append(w.trust, trust{p, in})
		s.follows(p).Granting(in, need)
	}
	d.Moving(t.From, t.To, need)
}

// follows returns the definition that an object follows now.
func (s *Sim) follows(id object.ID) *object.Def {
	if o := s.Object(id); o != nil {
		return o.Def()
	}
	return s.def(id)
}

func (s *Sim) unrely(id object.ID) {
	w := &s.world[id]
	w.moving = false
	for _, k := range w.trust {
		s.world[k.id].relied--
	}
	w.trust = w.trust[:0]
}

// end ends an act and passes its result to the runtime, if that is still alive.
func (s *Sim) end(e *event) {
	x, a := e.act, int(e.agent)
	ag := &s.agents[a]
	w := &s.world[x.ID]
	lives := !ag.dead && ag.life == e.life
	if w.acting == int32(a)+1 && w.actEnd == s.q.now {
		w.acting = 0
	}
	if ag.life != e.life && !ag.dead {
		return // killed with the life of its agent
	}
	if ag.dead && ag.life != e.life {
		return
	}
	var ev object.Event
	if x.What == object.Check {
		if !lives || ag.runtime.Object(x.ID) == nil {
			return
		}
		ev = object.Event{What: object.Checked, State: s.truth(ag.runtime.Object(x.ID).Def())}
	} else {
		ok := !s.failing(x.ID)
		if s.world[x.ID].moving {
			s.unrely(x.ID)
		}
		if ok {
			w.state = x.Transition.To
			w.drifted = false
			d := s.defOf(a, x.ID)
			switch {
			case x.Transition.To == d.Preferred:
				w.content = d.Content
			case !d.Type.Targetable(x.Transition.From):
				w.content = 0 // the outdated content is gone
			}
			s.Transitions++
			s.last = s.q.now
		}
		if s.cfg.Watch != nil {
			s.cfg.Watch(Step{At: s.q.now, ID: x.ID, Transition: x.Transition, OK: ok})
		}
		ev = object.Event{What: object.Done, OK: ok}
	}
	if !lives {
		return
	}
	if err := ag.runtime.Event(x.ID, ev, s.q.now); err != nil {
		s.violate("%v", err)
	}
	s.touch(a)
}

func (s *Sim) defOf(a int, id object.ID) *object.Def {
	if o := s.agents[a].runtime.Object(id); o != nil {
		return o.Def()
	}
	return s.def(id)
}

func (s *Sim) failing(id object.ID) bool {
	if n := s.script[id]; n > 0 {
		s.script[id] = n - 1
		return true
	}
	return s.cfg.Fails > 0 && s.faulty() && s.rng.Float64() < s.cfg.Fails
}

func (s *Sim) tell(id object.ID, ev object.Event) {
	if o := s.Object(id); o == nil {
		return
	}
	a := int(s.owner[id])
	if err := s.agents[a].runtime.Event(id, ev, s.q.now); err != nil {
		s.violate("%v", err)
	}
	s.touch(a)
	s.flush()
}
