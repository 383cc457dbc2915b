package sites

import (
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

// convergence finds out whether a site has converged. Reports of different runtimes are not of the
// same moment: each may be true when it is sent although all objects were never at rest at one
// moment, because a change of one object makes another one move. Therefore, once all objects are
// reported as at rest, the leader calls all runtimes twice. Each runtime answers whether its objects
// are at rest, and how often they have left rest so far. If both answers of a runtime are the same,
// its objects were at rest from the first to the second. If that is so for all runtimes, all objects
// were at rest at the moment between the last answer to the first call and the second call.
type convergence struct {
	// counted is the version of the record that good and all belong to. all is the number of
	// objects, good the number of those that are reported as at rest.
	counted   uint64
	good, all int
	// call is the number of the call that is under way, 0 for none. answers are those to
	// it, before those to the previous call (nil if it is the first); both by agent.
	call            uint64
	answers, before map[string]*pb.Calm
	// converged is the version of the record under which all objects were at rest at one moment; 0
	// if they were not.
	converged uint64
}

// fits reports whether an object is at rest in its present life, in the generation that is in
// force.
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
