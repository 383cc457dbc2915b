package layoutcase

import (
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// mostTries bounds the search of exists; beyond it the result is unknown.
const mostTries = 20_000

// exists searches for a layout by trying all of them, so that a refusal can be checked. It returns
// the first one that it finds.
func exists(in *solver.Input) (model.Layout, bool) {
	s := search{in: in, services: in.Wanted, fresh: len(in.Existing) == 0}
	for _, n := range in.Existing {
		s.services = append(s.services, n.Services...)
	}
	s.services = append(slices.Clone(s.services), in.Change.Services...)
	slices.Sort(s.services)
	s.services = slices.Compact(s.services)
	if s.fresh {
		s.listNodes()
		s.create(0, in.Nodes, nil)
	} else {
		s.add(0, nil)
	}
	return s.found, s.found != nil
}

type search struct {
	in       *solver.Input
	services []string
	fresh    bool
	nodes    []model.NodeGroup // that a new node may be
	tries    int
	found    model.Layout
}

// over reports whether the search has ended.
func (s *search) over() bool { return s.found != nil || s.tries > mostTries }

func (s *search) judge(l model.Layout) {
	if s.tries++; !s.over() && len(Broken(&s.in.Template, s.services, l, s.fresh)) == 0 {
		s.found = slices.Clone(l)
	}
}

func (s *search) listNodes() {
	if len(s.services) > 12 {
		s.tries = mostTries + 1
		return
	}
	for _, h := range s.in.HardwareTypes {
		for _, i := range s.in.ImageTypes {
			for set := range 1 << len(s.services) {
				g := model.NodeGroup{HardwareType: h.Name, ImageType: i.Name, Services: s.pick(s.services, set)}
				if len(brokenNode(&s.in.Template, s.services, g)) == 0 {
					s.nodes = append(s.nodes, g)
				}
			}
		}
	}
}

func (s *search) pick(from []string, set int) []string {
	var out []string
	for b, name := range from {
		if set>>b&1 != 0 {
			out = append(out, name)
		}
	}
	return out
}

// create tries every number of nodes of every node layout from at on.
func (s *search) create(at, left int, l model.Layout) {
	if s.over() || left > 0 && at == len(s.nodes) {
		return
	}
	if left == 0 {
		s.judge(l)
		return
	}
	for n := left; n >= 0 && !s.over(); n-- {
		next := l
		if n > 0 {
			g := s.nodes[at]
			g.Count = n
			next = append(l[:len(l):len(l)], g)
		}
		s.tries++
		s.create(at+1, left-n, next)
	}
}

// add tries every set of the added services on every node from at on.
func (s *search) add(at int, l model.Layout) {
	if s.over() {
		return
	}
	if at == len(s.in.Existing) {
		s.judge(l)
		return
	}
	n := s.in.Existing[at]
	for set := range 1 << min(len(s.in.Change.Services), 20) {
		s.add(at+1, append(l[:len(l):len(l)], model.NodeGroup{Count: 1, HardwareType: n.HardwareType, ImageType: n.ImageType,
			Services: slices.Concat(n.Services, s.pick(s.in.Change.Services, set))}))
	}
}
