package sites

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// known holds the controller's data of a site beyond the replicated state.
type known struct {
	epoch       uint64
	generations map[uint64]*generation
	reports     map[object.ID]*pb.ObjectReport
	probe       uint64 // the number of the last probe of all objects; 0 for none
	probed      map[object.ID]*pb.Probed
	// heard and committed are the numbers of the last events of runtimes that have arrived, and that are committed, by process.
	heard, committed map[string]uint64
	// refs are the names of the encrypted values in the generations that are kept, by number and host.
	refs map[uint64]map[string][]string
	convergence
}

// generation is a generation of a site, decoded and compiled.
type generation struct {
	*site.Generation
	doc  *site.Document
	site *object.Site
}

// known returns the controller's data of a site. A site that was deleted and created again is
// another one. The caller holds c.mu.
func (c *Controller) known(key state.SiteKey, r *site.Record) *known {
	s := c.sites[key]
	if s == nil || s.epoch != r.Epoch {
		s = &known{
			epoch:       r.Epoch,
			generations: map[uint64]*generation{},
			reports:     map[object.ID]*pb.ObjectReport{},
			probed:      map[object.ID]*pb.Probed{},
			heard:       map[string]uint64{},
			committed:   map[string]uint64{},
		}
		c.sites[key] = s
	}
	return s
}

// generation returns a generation of the site.
func (s *known) generation(v *state.View, r *site.Record, number uint64) (*generation, error) {
	if g := s.generations[number]; g != nil {
		return g, nil
	}
	stored, ok := v.Generation(r.Tenant, r.Name, number)
	if !ok {
		return nil, problem.New(problem.NotFound, "generation %d of site %s is not kept", number, r.Name)
	}
	g := &generation{Generation: stored, doc: &site.Document{}}
	if err := json.Unmarshal(stored.Document, g.doc); err != nil {
		return nil, fmt.Errorf("generation %d of site %s: %w", number, r.Name, err)
	}
	part := site.Part{Generation: number, Document: g.doc, IDs: stored.IDs}
	var err error
	if g.site, err = compile.Part(&part); err != nil {
		return nil, fmt.Errorf("generation %d of site %s: %w", number, r.Name, err)
	}
	for n := range s.generations {
		if n != r.Generation && n != r.Next {
			delete(s.generations, n)
		}
	}
	s.generations[number] = g
	return g, nil
}

// away reports whether an object that is to be removed has reached its preRemove state:
// the object reported so, it never ran, or an operator released it.
func (s *known) away(r *site.Record, id object.ID) bool {
	if int(id) >= len(r.Lives) || r.Lives[id].Host < 0 || r.Lives[id].Inc == 0 {
		return true
	}
	if slices.ContainsFunc(r.Released, func(x site.Release) bool { return x.ID == id && r.Holds(x) }) {
		return true
	}
	o := s.reports[id]
	return o != nil && o.Inc == r.Lives[id].Inc && o.Removing && o.AtRest
}
