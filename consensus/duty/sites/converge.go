package sites

import (
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

// convergence finds out whether a site has converged. Reports of different runtimes are
// not of the same moment: each may be true when it is sent while no moment exists at which
// all objects are settled, as one object drives another. Therefore, once all objects are
// reported as settled, the leader calls all runtimes twice. Each runtime answers whether its objects
// are settled, and how often they stopped being so. A runtime that gives the same answer
// twice was settled all the time between, and so at the moment between the last answer to
// the first call and the second call. If all runtimes do, all objects were settled then.
type convergence struct {
	// counted is the version of the record that good and all belong to. all is the number
	// of objects, good the number of those that are reported to be settled.
	counted   uint64
	good, all int
	// call is the number of the call that is under way, 0 for none. answers are those to
	// it, before those to the previous call (nil if it is the first); both by agent.
	call            uint64
	answers, before map[string]*pb.Calm
	// converged is the version of the record under which all objects were settled at
	// once; 0 if they were not.
	converged uint64
}

// fits reports whether an object is settled in its present life, in the generation that
// is in force.
func fits(r *site.Record, id object.ID, o *pb.ObjectReport) bool {
	return o != nil && int(id) < len(r.Lives) && r.Lives[id].Host >= 0 && r.Lives[id].Inc == o.Inc && o.AtRest && !o.Removing &&
		o.Generation == r.Generation
}

// recount replaces the report of an object in the count.
func (s *known) recount(r *site.Record, old, o *pb.ObjectReport) {
	if s.counted != r.Version {
		return // converge counts all objects
	}
	id := object.ID(o.Id)
	if fits(r, id, old) {
		s.good--
	}
	if fits(r, id, o) {
		s.good++
	}
	if s.good < s.all {
		s.converged = 0
	}
}

// answer takes a runtime's answer to a call; nil if the report has none. It reports
// whether converge has something to do now.
func (s *known) answer(agent string, c *pb.Calm) bool {
	if c != nil && c.Call == s.call && s.call != 0 {
		s.answers[agent] = c
		return true
	}
	return s.good == s.all && s.call == 0 && s.converged == 0
}

// converge calls the runtimes if it is time to, under the next number. It reports whether
// the site has converged just now.
func (s *known) converge(r *site.Record, next func() uint64) bool {
	if s.counted != r.Version {
		s.convergence = convergence{counted: r.Version}
		for i, l := range r.Lives {
			if l.Host < 0 {
				continue
			}
			s.all++
			if fits(r, object.ID(i), s.reports[object.ID(i)]) {
				s.good++
			}
		}
	}
	if r.Next != 0 || s.good < s.all {
		s.call, s.answers, s.before = 0, nil, nil
		return false
	}
	if s.converged == r.Version {
		return false
	}
	if s.call != 0 {
		calm, same := true, s.before != nil
		for _, h := range r.Hosts {
			a, b := s.answers[h.Agent], s.before[h.Agent]
			if a == nil {
				return false // the runtime will answer, or lose its hosts
			}
			calm = calm && a.AtRest
			same = same && b != nil && a.Stirs == b.Stirs
		}
		if calm && same {
			s.converged, s.call, s.answers, s.before = r.Version, 0, nil, nil
			return true
		}
		if s.before = s.answers; !calm {
			s.before = nil
		}
	}
	s.call, s.answers = next(), map[string]*pb.Calm{}
	return false
}
