package sim

import (
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
)

// Apply rolls out a new generation as the leader does: host after host in the order of rule
// 25, each once its removed objects are in their preRemove states. The previous generation
// must be in force already.
func (s *Sim) Apply(next *object.Site) {
	s.grow(len(next.Defs))
	plan := compile.NewPlan(s.site, next)
	s.next, s.turned = next, map[string]bool{}
	s.enact(plan, 0)
}

// enact switches the groups of hosts from index n on whose removed objects are in their
// preRemove states, and tries the rest again later.
func (s *Sim) enact(plan *compile.Plan, n int) {
	for _, id := range plan.Removed {
		if o := s.Object(id); o != nil && !o.Status().Removing {
			s.tell(id, object.Event{What: object.Removing})
		}
	}
	hosts := map[string]bool{} // that switch now
	for ; n < len(plan.Groups); n++ {
		g := &plan.Groups[n]
		for _, id := range g.Removed {
			if o := s.Object(id); o == nil || !o.AtRest() {
				s.turn(hosts)
				s.At(s.q.now+1, func() { s.enact(plan, n) })
				return
			}
		}
		for _, id := range g.Removed {
			s.owner[id] = -1
		}
		for _, h := range g.Hosts {
			hosts[h], s.turned[h] = true, true
		}
	}
	s.turn(hosts)
	s.site, s.next, s.turned = s.next, nil, nil
	s.flush()
}

// turn switches hosts.
func (s *Sim) turn(hosts map[string]bool) {
	if len(hosts) == 0 {
		return
	}
	for a := range s.agents {
		if !s.agents[a].dead {
			s.agents[a].runtime.Switch(s.next, hosts, s.q.now)
			s.touch(a)
		}
	}
	for i := range s.next.Defs {
		d := &s.next.Defs[i]
		if d.Name == "" || s.owner[i] >= 0 || !s.turned[d.Host] {
			continue
		}
		s.world[i] = truth{state: d.Type.Priority[0]}
		s.owner[i] = int32(s.place(d.ID))
		s.incs[i]++
		if !s.agents[s.owner[i]].dead {
			s.start(d.ID)
		}
	}
}
