package operation

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/planner"
)

// differences tells planner.Diff what a cluster is and what it is to be. What
// runs is known by the marks that operations left: what has the marks of the
// snapshot is as it was then, all else as the cluster's record says now.
type differences struct {
	now, then         *model.Cluster // then: the snapshot's, for a rollback
	old               map[string]*model.Node
	change            change
	target            *model.Cluster
	is, was, shall    *expansions // nil: cannot be told
	definitions       map[string]uint64
	bySum             map[uint64]model.Service
	targetDefinitions map[string]uint64
	oldDefinitions    map[string]uint64
	leaves            map[string]bool
}

func newDifferences(p *Prepared, at Standing, c change, after *expansions) *differences {
	d := &differences{now: at.Cluster, change: c, target: &p.Cluster, shall: after, old: map[string]*model.Node{}, bySum: map[uint64]model.Service{}, leaves: map[string]bool{}}
	for i := range p.Nodes {
		if p.Nodes[i].Leaves {
			d.leaves[p.Nodes[i].ID] = true
		}
	}
	if x, err := expand(at.Cluster, at.Nodes, nil); err == nil {
		d.is = x // else nobody can tell what they have: all of it is configured anew
	}
	d.definitions, d.targetDefinitions = d.sums(at.Cluster), d.sums(&p.Cluster)
	if c.back != nil {
		d.then = c.back.State
		if x, err := expand(d.then, c.back.Nodes, nil); err == nil {
			d.was = x
		}
		d.oldDefinitions = d.sums(d.then)
		for _, n := range c.back.Nodes {
			d.old[n.ID] = n
		}
	}
	return d
}

func (d *differences) sums(cl *model.Cluster) map[string]uint64 {
	out := map[string]uint64{}
	for name, s := range cl.Definitions {
		b, err := json.Marshal(substance(s))
		if err != nil {
			continue // 0: differs from all
		}
		out[name] = sum(append(b, name...))
		d.bySum[out[name]] = s
	}
	return out
}

// sum is never 0, which means unknown.
func sum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64() | 1
}

// definition finds what a DiffService stands for.
func (d *differences) definition(s planner.DiffService) model.Service {
	if def, ok := d.bySum[s.Definition]; ok {
		return def
	}
	if def, ok := d.target.Definitions[s.Name]; ok {
		return def
	}
	return d.now.Definitions[s.Name]
}

// from gives the nodes as they are.
func (d *differences) from(nodes []*model.Node) []planner.DiffNode {
	out := make([]planner.DiffNode, len(nodes))
	for i, n := range nodes {
		out[i] = planner.DiffNode{ID: n.ID, Created: n.Created, Confirmed: n.Confirmed, Broken: n.Broken, Machine: machine(n)}
		if d.change.made[n.ID] {
			out[i].Machine ^= 1 << 63 // it is to be another
		}
		if d.change.gone[n.ID] && (d.change.made[n.ID] || d.leaves[n.ID]) {
			out[i].Broken = true
		}
		for _, s := range n.Services {
			out[i].Services = append(out[i].Services, d.standing(n, s))
		}
	}
	return out
}

// standing gives one service as it is.
func (d *differences) standing(n *model.Node, service string) planner.DiffService {
	mark := n.Marks[service]
	s := planner.DiffService{
		Name: service, State: n.States[service], Initialized: mark.Initialized,
		Definition: d.definitions[service], Config: d.is.sum(n.Number, service),
	}
	if old := d.old[n.ID]; old != nil {
		if was, ok := old.Marks[service]; ok {
			if was.Installed == mark.Installed {
				s.Definition = d.oldDefinitions[service]
			}
			if s.Config = 0; was.Configured == mark.Configured {
				s.Config = d.was.sum(n.Number, service)
			}
		}
	}
	switch s.State {
	case model.Install.String() + "?":
		s.Definition = 0
	case model.Configure.String() + "?":
		s.Config = 0
	}
	return s
}

func machine(n *model.Node) uint64 {
	return sum([]byte(strings.Join([]string{n.HardwareType, n.ImageType, n.Flavor, n.Image}, "\x00")))
}

// to gives the nodes as they are to be.
func (d *differences) to(nodes []*model.Node) []planner.DiffNode {
	var out []planner.DiffNode
	for _, n := range nodes {
		made := d.change.made[n.ID]
		if n.Leaves || !n.Created && !made {
			continue
		}
		t := planner.DiffNode{ID: n.ID, Created: true, Machine: machine(n)}
		for _, s := range n.Services {
			if slices.Contains(n.Leaving, s) {
				continue
			}
			t.Services = append(t.Services, planner.DiffService{
				Name: s, State: d.goal(n, s, made), Definition: d.targetDefinitions[s], Config: d.shall.sum(n.Number, s),
			})
		}
		out = append(out, t)
	}
	return out
}

// goal gives the state that a service is to come to: that of the snapshot, that
// which it has, or for what comes, that it runs.
func (d *differences) goal(n *model.Node, service string, made bool) string {
	state, has := n.States[service]
	if old := d.old[n.ID]; old != nil {
		state, has = old.States[service]
	}
	switch state {
	case model.Install.String(), model.Configure.String(), model.Initialize.String(), model.Stop.String():
		if !made || d.then != nil {
			return state
		}
	case model.Stop.String() + "?":
		if !made || d.then != nil {
			return model.Stop.String()
		}
	case "":
		if !has && d.then != nil {
			return "" // it never came to anything then
		}
	}
	return model.Start.String()
}
