package sites

import (
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

// settling finds out whether a site has converged. What homes report is not of one
// moment: what one said a while ago and what another says now may both be true
// and still nothing be at rest, as one drives the other. So when all reports say
// settled, all homes are called twice. Each answers whether its objects are
// settled and how often they have not been. Who gives the same answer twice was
// settled all the time between, also at the moment between the last answer to
// the first call and the second call: then all were settled at once.
type settling struct {
	// counted is the version of the record that good and all are of: how many
	// objects are reported to be where they should be, and how many there are.
	counted   uint64
	good, all int
	// call is the number of the call under way, 0 for none; answers are by agent,
	// before those of the call before it (nil: it is the first).
	call            uint64
	answers, before map[string]*pb.Calm
	// converged is the version of the record under which all were settled at once;
	// 0: not so.
	converged uint64
}

// fits says whether an object is reported to be settled in the generation that is
// in force, in its present life.
func fits(r *site.Record, id object.ID, o *pb.ObjectReport) bool {
	return o != nil && int(id) < len(r.Lives) && r.Lives[id].Host >= 0 && r.Lives[id].Inc == o.Inc && o.Settled && !o.Removing && o.Generation == r.Generation
}

// recount takes a report in the place of an older one.
func (s *known) recount(r *site.Record, old, o *pb.ObjectReport) {
	if s.counted != r.Version {
		return // all are counted then
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

// heard takes a home's answer to a call, where it gives one, and says whether there
// is anything to do now.
func (s *known) heard(agent string, c *pb.Calm) bool {
	if c != nil && c.Call == s.call && s.call != 0 {
		s.answers[agent] = c
		return true
	}
	return s.good == s.all && s.call == 0 && s.converged == 0
}

// settle calls the homes when it is time to, under the next number, and says whether
// the site has converged just now.
func (s *known) settle(r *site.Record, next func() uint64) bool {
	if s.counted != r.Version {
		s.settling = settling{counted: r.Version}
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
				return false // it will answer, or lose its hosts
			}
			calm = calm && a.Settled
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
