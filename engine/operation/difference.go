package operation

import (
	"encoding/json"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/planner"
)

// differences is the input of planner.Diff: the current state of a cluster and its new one. The
// current state comes from the marks that operations left: a mark names the target that a service
// was built from and configured with, either the cluster's or an earlier one.
type differences struct {
	now, then         *model.Cluster // then: the snapshot's cluster, for a rollback
	keeps             bool           // services at earlier targets are left there
	same              bool           // macros have had the same values since all services were at one target
	configs           map[config]*expansions
	old               map[string]*model.Node
	change            change
	target            *model.Cluster
	is, was, shall    *expansions // nil: unknown
	definitions       map[string]uint64
	bySum             map[uint64]model.Service
	targetDefinitions map[string]uint64
	earlier           map[definedBy]uint64
	leaves            map[string]bool
	nodes             [2][]*model.Node // current, future
	backs             map[string]map[string]model.Mark
}

// untouched is the sum in place of a configuration that a rollback does not change, or returns to
// the state in which an operation before its snapshot left it.
const untouched = 2 // real sums are odd

func newDifferences(p *Prepared, at Input, c change, after *expansions) *differences {
	d := &differences{
		now:     at.Cluster,
		change:  c,
		target:  &p.Cluster,
		shall:   after,
		old:     map[string]*model.Node{},
		bySum:   map[uint64]model.Service{},
		leaves:  map[string]bool{},
		keeps:   p.only != nil,
		same:    at.Complete != nil && len(at.Complete.State.Earlier) == 0 && alike(at.Complete.Nodes, at.Nodes),
		configs: map[config]*expansions{},
		earlier: map[definedBy]uint64{},
		backs:   map[string]map[string]model.Mark{},
	}
	d.nodes[0], d.nodes[1] = at.Nodes, pointers(p.Nodes)
	for i := range p.Nodes {
		if p.Nodes[i].Leaves {
			d.leaves[p.Nodes[i].ID] = true
		}
		d.backs[p.Nodes[i].ID] = p.Nodes[i].Back
	}
	if x, err := expand(at.Cluster, at.Nodes, nil); err == nil {
		d.is = x // otherwise unknown: everything is configured again
	}
	d.definitions, d.targetDefinitions = d.sums(at.Cluster), d.sums(&p.Cluster)
	if c.back != nil {
		d.then = c.back.State
		if x, err := expand(d.then, c.back.Nodes, nil); err == nil {
			d.was = x
		}
		for _, n := range c.back.Nodes {
			d.old[n.ID] = n
		}
	}
	return d
}

// alike reports whether macros have the same values with these nodes as with those.
func alike(these, those []*model.Node) bool {
	return reflect.DeepEqual(known(these, staying), known(those, staying))
}

func (d *differences) sums(cl *model.Cluster) map[string]uint64 {
	out := map[string]uint64{}
	for name, s := range cl.Definitions {
		out[name] = d.sum(name, s)
	}
	return out
}

// sum returns a hash of a definition, or 0, which never matches, if it cannot be encoded.
func (d *differences) sum(name string, s model.Service) uint64 {
	b, err := json.Marshal(s.Substance())
	if err != nil {
		return 0
	}
	n := sum(append(b, name...))
	d.bySum[n] = s
	return n
}

// definedBy identifies a definition of a service: the one of the cluster's target with this number.
// config identifies a configuration: place is an index into the cluster's earlier targets, or -1
// for the configuration in the cluster's record.
type (
	definedBy struct {
		cluster    *model.Cluster
		service    string
		definition int
	}
	config struct {
		cluster *model.Cluster
		place   int
	}
)

// built returns a hash of the definition that a service with mark m was built from, or 0 if the
// definition is unknown.
func (d *differences) built(cl *model.Cluster, m model.Mark, service string) uint64 {
	k := definedBy{cl, service, m.Definition}
	out, ok := d.earlier[k]
	if !ok {
		if s, known := cl.DefinitionAt(m, service); known || d.keeps {
			out = d.sum(service, s)
		}
		d.earlier[k] = out
	}
	return out
}

// configured returns a hash of the configuration that a service with mark m has on node n. Macros
// are expanded for the future nodes if cl is the target, and for the current nodes otherwise. It
// returns 0 if the configuration is unknown, for example because it refers to nodes that may have
// changed.
func (d *differences) configured(cl *model.Cluster, m model.Mark, n *model.Node, service string) uint64 {
	k := config{cl, cl.ConfiguredAt(m)}
	x, ok := d.configs[k]
	if !ok {
		with, nodes, unknown := *cl, d.nodes[0], map[string]bool(nil)
		if k.place >= 0 {
			with.Config = cl.Earlier[k.place].Config
		}
		if cl == d.target {
			nodes, unknown = d.nodes[1], d.change.made
		}
		var err error
		if x, err = expand(&with, nodes, unknown); err != nil {
			x = nil
		}
		d.configs[k] = x
	}
	s, _ := cl.DefinitionAt(m, service)
	if x == nil || !d.keeps && !d.same && len(x.scope(scopeOf(s)).refs.Services) > 0 {
		return 0
	}
	return x.of(n.Number, s)
}

// sum returns a hash that is never 0, which means unknown.
func sum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64() | 1
}

// definition returns the definition whose sum a DiffService has.
func (d *differences) definition(s planner.DiffService) model.Service {
	if def, ok := d.bySum[s.Definition]; ok {
		return def
	}
	if def, ok := d.target.Definitions[s.Name]; ok {
		return def
	}
	return d.now.Definitions[s.Name]
}

// from returns the current nodes.
func (d *differences) from(nodes []*model.Node) []planner.DiffNode {
	out := make([]planner.DiffNode, len(nodes))
	for i, n := range nodes {
		out[i] = planner.DiffNode{ID: n.ID, Created: n.Created, Confirmed: n.Confirmed, Broken: n.Broken, Machine: machine(n)}
		if d.change.made[n.ID] {
			out[i].Machine ^= 1 << 63 // different from the current machine
		}
		if d.change.gone[n.ID] && (d.change.made[n.ID] || d.leaves[n.ID]) {
			out[i].Broken = true
		}
		for _, s := range n.Services {
			out[i].Services = append(out[i].Services, d.current(n, s))
		}
	}
	return out
}

// current returns the current state of one service.
func (d *differences) current(n *model.Node, service string) planner.DiffService {
	mark := n.Marks[service]
	s := planner.DiffService{Name: service, State: n.States[service], Initialized: mark.Initialized}
	if len(d.now.Earlier) == 0 {
		s.Definition, s.Config = d.definitions[service], d.is.sum(n.Number, service)
	} else {
		s.Definition, s.Config = d.built(d.now, mark, service), d.configured(d.now, mark, n, service)
	}
	if old := d.old[n.ID]; old != nil {
		if was, ok := old.Marks[service]; ok {
			_, back := d.backs[n.ID][service]
			switch s.Config = 0; {
			case was.Configured == mark.Configured && back:
				s.Config = untouched
			case was.Configured == mark.Configured:
				s.Config = d.was.sum(n.Number, service)
			}
		}
	}
	if s.State == model.Install.String()+"?" {
		s.Definition = 0
	}
	if s.State == model.Configure.String()+"?" || mark.Config == model.HalfConfigured {
		s.Config = 0
	}
	return s
}

func machine(n *model.Node) uint64 {
	return sum([]byte(strings.Join([]string{n.HardwareType, n.ImageType, n.Flavor, n.Image}, "\x00")))
}

// to returns the future nodes.
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
			shall := planner.DiffService{Name: s, State: d.goal(n, s, made), Definition: d.targetDefinitions[s], Config: d.shall.sum(n.Number, s)}
			if back, ok := n.Back[s]; ok {
				shall.Definition = d.built(d.target, back, s)
				if shall.Config = untouched; d.keeps {
					shall.Config = d.configured(d.target, back, n, s)
				}
			}
			t.Services = append(t.Services, shall)
		}
		out = append(out, t)
	}
	return out
}

// goal returns the state that a service is to reach. A rollback leads back to the state at its
// snapshot. Every other operation leaves a stopped service stopped, and completes and starts a
// service that has come only part of the way.
func (d *differences) goal(n *model.Node, service string, made bool) string {
	state, has := n.States[service]
	if old := d.old[n.ID]; old != nil {
		state, has = old.States[service]
	}
	if g := n.Marks[service].Goal; g != "" && d.then == nil && !d.keeps {
		return g
	}
	switch state {
	case model.Install.String(), model.Configure.String(), model.Initialize.String():
		if d.then != nil || d.keeps && !made {
			return state
		}
	case model.Stop.String():
		if !made || d.then != nil {
			return state
		}
	case model.Stop.String() + "?":
		if !made || d.then != nil {
			return model.Stop.String()
		}
	case "":
		if !has && d.then != nil {
			return "" // at the snapshot it had never reached any state
		}
	}
	return model.Start.String()
}
