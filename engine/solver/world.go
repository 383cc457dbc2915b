package solver

import (
	"fmt"
	"math/big"
	"slices"
	"sort"

	"github.com/coopr/coopr/engine/model"
)

// world is a parsed input: the services on the cluster after the operation, the nodes that exist
// and those to be created, and every rule.
type world struct {
	in       Input
	provider string
	services []string        // on the cluster after the operation, sorted
	limited  map[string]bool // services with a constraint in the template
	free     []string        // services without one, sorted
	adding   map[string]bool // services that the operation puts on existing nodes
	// tracked are services without constraints that are counted nevertheless, because an operation
	// on existing nodes could leave too few nodes with them.
	tracked map[string]bool

	hardware   []machine
	images     []string
	offeredHW  []bool
	offeredImg []bool
	wantedHW   string
	wantedImg  string

	nodes  int64 // after the operation
	fresh  int64 // new ones among nodes
	shrink int64 // number of nodes to choose and remove
	groups []*group

	comparator string
	ranking    *model.Ranking // the comparator's order, if the comparator is a plugin's
	touch      Touch
	costs      map[pair]int64 // scaled, with the least cost subtracted; nil: costs do not count
	rules      []rule
	faults     model.Faults
	meter      *meter
}

// group is a set of equal existing nodes, newest first.
type group struct {
	hw, img  string
	services []string
	count    int64
	nodes    []*ExistingNode
}

// understand returns the world of an input, or an error with all faults of the input.
func understand(in Input, m *meter) (*world, error) {
	w := &world{in: in, provider: in.provider(), meter: m, limited: map[string]bool{}, adding: map[string]bool{}, tracked: map[string]bool{}}
	if w.provider == "" {
		w.fault("provider", "no provider is named, and template %s has no default", in.Template.Name)
	}
	w.findTypes()
	existing := w.operation()
	if (w.fresh > 0 || in.Change.Kind == Create) && w.provider != "" {
		w.checkTypes()
	}
	if w.nodes > in.maxNodes() {
		w.fault("nodes", "%d nodes are more than the %d that one cluster may have", w.nodes, in.maxNodes())
	} else if w.nodes < 1 {
		w.fault("nodes", "a cluster has at least 1 node, not %d", w.nodes)
	}
	for _, s := range w.services {
		if constrained(&in.Template, s) {
			w.limited[s] = true
		} else {
			w.free = append(w.free, s)
		}
	}
	w.form(existing)
	if in.Change.Kind == Replace {
		w.checkReplaced()
	}
	w.compare()
	w.collect()
	w.track()
	w.checkNumbers()
	if n := len(w.limited) + len(w.tracked); n > maxItems-1 {
		w.fault("services", "%d services with constraints are more than the %d that one cluster may have", n, maxItems-1)
	}
	return w, w.faults.Err()
}

// form groups the nodes that stay and adds their types to the known types.
func (w *world) form(existing []*ExistingNode) {
	w.offeredHW, w.offeredImg = make([]bool, len(w.hardware)), make([]bool, len(w.images))
	for i := range w.offeredHW {
		w.offeredHW[i] = true
	}
	for i := range w.offeredImg {
		w.offeredImg[i] = true
	}
	sort.SliceStable(existing, func(i, j int) bool { return existing[i].Number > existing[j].Number })
	byKey := map[string]*group{}
	for _, n := range existing {
		services := sortedUnique(n.Services)
		k := key(n.HardwareType, n.ImageType, services) + "\x00\x00" + w.placesOf(n)
		g := byKey[k]
		if g == nil {
			g = &group{hw: n.HardwareType, img: n.ImageType, services: services}
			byKey[k] = g
			w.groups = append(w.groups, g)
			if !slices.ContainsFunc(w.hardware, func(m machine) bool { return m.name == n.HardwareType }) {
				w.hardware = append(w.hardware, machine{name: n.HardwareType})
				w.offeredHW = append(w.offeredHW, false)
			}
			if !slices.Contains(w.images, n.ImageType) {
				w.images = append(w.images, n.ImageType)
				w.offeredImg = append(w.offeredImg, false)
			}
		}
		g.count++
		g.nodes = append(g.nodes, n)
	}
	sort.SliceStable(w.groups, func(i, j int) bool {
		a, b := w.groups[i], w.groups[j]
		x, y := key(a.hw, a.img, a.services), key(b.hw, b.img, b.services)
		if x != y {
			return x < y
		}
		return w.placesOf(a.nodes[0]) < w.placesOf(b.nodes[0])
	})
}

// checkReplaced records a fault if the provider no longer offers the types of a node that is to be
// replaced.
func (w *world) checkReplaced() {
	for i, id := range w.in.Change.Victims {
		for _, n := range w.in.Existing {
			if n.ID != id {
				continue
			}
			at := fmt.Sprintf("change.victims[%d]", i)
			if j := slices.IndexFunc(w.hardware, func(m machine) bool { return m.name == n.HardwareType }); !w.offeredHW[j] {
				w.fault(at, "node %s has hardware type %s, which provider %s does not have any more", id, n.HardwareType, w.provider)
			}
			if !w.offeredImg[slices.Index(w.images, n.ImageType)] {
				w.fault(at, "node %s has image type %s, which provider %s does not have any more", id, n.ImageType, w.provider)
			}
		}
	}
}

// track finds the services without constraints that must be counted.
func (w *world) track() {
	if w.in.Change.Kind == Create {
		return // they are on every node
	}
	for _, s := range w.free {
		w.tracked[s] = w.in.Change.Kind == Shrink
	}
	for i := range w.rules {
		if r := &w.rules[i]; r.kind == ruleRequires && slices.Contains(w.free, r.other) {
			w.tracked[r.other] = true
		}
	}
}

// placesOf returns the zone and host of a node, each only if the spread of some service depends on
// it.
func (w *world) placesOf(n *ExistingNode) string {
	at := [2]string{}
	for _, s := range w.services {
		switch w.in.Services[s].Spread {
		case "zone":
			at[0] = n.Zone
		case "host":
			at[1] = n.Host
		}
	}
	return at[0] + "\x00" + at[1]
}

// takes returns the amount of one capacity that a service takes, or nil if it declares no
// resources.
func (w *world) takes(s string, d int) *big.Rat {
	r := w.in.Services[s].Resources
	if r == nil {
		return nil
	}
	v, _ := decimal([dimensions]float64{r.VCPU, r.RAM, r.Disk}[d])
	return v
}

// checkNumbers records a fault for resources that cannot be added up exactly.
func (w *world) checkNumbers() {
	for d := range dimensions {
		var all []*big.Rat
		for _, s := range w.services {
			if v := w.takes(s, d); v != nil {
				if v.Sign() < 0 {
					w.fault("services."+s+".resources."+capacities[d], "must not be negative")
				}
				all = append(all, v)
			}
		}
		if len(all) == 0 {
			continue
		}
		for h := range w.hardware {
			all = append(all, w.hardware[h].room[d])
		}
		if _, ok := whole(all); !ok {
			w.fault("services", "the amounts of %s are too great, or too finely divided, to be added up exactly", capacities[d])
		}
	}
}

// operation determines the services and the number of nodes after the operation, checks the names
// in the request, and returns the existing nodes that stay.
func (w *world) operation() []*ExistingNode {
	in, c := &w.in, &w.in.Change
	nodes := make([]*ExistingNode, len(in.Existing))
	for i := range in.Existing {
		n := in.Existing[i]
		nodes[i] = &n
	}
	var have []string
	for _, n := range nodes {
		have = append(have, n.Services...)
	}
	have = sortedUnique(have)
	switch c.Kind {
	case Create:
		w.create()
		return nil
	case AddServices:
		return w.addServices(nodes, have)
	case Grow:
		w.services = have
		if c.Nodes < 1 {
			w.fault("change.nodes", "growing takes at least 1 node, not %d", c.Nodes)
		}
		w.fresh = int64(c.Nodes)
		w.check(nil, "")
	case Shrink:
		return w.shrinkNodes(nodes, have)
	case RemoveServices:
		return w.removeServices(nodes, have)
	case Replace:
		w.services = have
		w.victims(nodes)
	case Retemplate:
		w.services = have
		w.check(nil, "")
		w.checkNamed(have, "services")
	default:
		w.fault("change.kind", "there is no change %q", c.Kind)
	}
	w.nodes = int64(len(nodes)) + w.fresh
	return nodes
}

func (w *world) create() {
	in := &w.in
	named, path := in.Wanted, "services"
	if len(named) == 0 {
		path = "template.defaults.services"
		for _, d := range in.Template.Defaults.Services {
			named = append(named, d.Name)
		}
	}
	if len(named) == 0 {
		w.fault("services", "no services are named, and template %s has no defaults", in.Template.Name)
	}
	w.services = sortedUnique(named)
	w.nodes, w.fresh = int64(in.Nodes), int64(in.Nodes)
	w.check(named, path)
}

func (w *world) addServices(nodes []*ExistingNode, have []string) []*ExistingNode {
	c := &w.in.Change
	if len(c.Services) == 0 {
		w.fault("change.services", "names no service to add")
	}
	for i, s := range c.Services {
		if slices.Contains(have, s) {
			w.fault(fmt.Sprintf("change.services[%d]", i), "service %s is on the cluster already", s)
		}
		w.adding[s] = true
	}
	if c.Nodes < 0 {
		w.fault("change.nodes", "must not be negative")
	}
	w.services = sortedUnique(append(have, c.Services...))
	w.fresh = int64(max(0, c.Nodes))
	w.nodes = int64(len(nodes)) + w.fresh
	w.check(c.Services, "change.services")
	return nodes
}

func (w *world) removeServices(nodes []*ExistingNode, have []string) []*ExistingNode {
	c := &w.in.Change
	if len(c.Services) == 0 {
		w.fault("change.services", "names no service to remove")
	}
	for i, s := range c.Services {
		if !slices.Contains(have, s) {
			w.fault(fmt.Sprintf("change.services[%d]", i), "service %s is not on the cluster", s)
		}
	}
	gone := func(s string) bool { return slices.Contains(c.Services, s) }
	w.services = slices.DeleteFunc(slices.Clone(have), gone)
	if len(w.services) == 0 {
		w.fault("change.services", "no service would be left: delete the cluster instead")
	}
	bare := 0
	for _, n := range nodes {
		n.Services = slices.DeleteFunc(slices.Clone(n.Services), gone)
		if len(n.Services) == 0 {
			bare++
		}
	}
	if bare > 0 && len(w.services) > 0 {
		w.fault("change.services", "%s would be left without any service: remove them too, by shrinking first", nodesWord(bare))
	}
	w.nodes = int64(len(nodes))
	w.check(nil, "")
	return nodes
}

func (w *world) shrinkNodes(nodes []*ExistingNode, have []string) []*ExistingNode {
	c := &w.in.Change
	w.services = have
	if len(c.Victims) > 0 {
		gone := w.victims(nodes)
		if c.Nodes != 0 && c.Nodes != len(c.Victims) {
			w.fault("change.nodes", "is %d, but %d nodes are named", c.Nodes, len(c.Victims))
		}
		nodes = slices.DeleteFunc(nodes, func(n *ExistingNode) bool { return gone[n.ID] })
	} else {
		if c.Nodes < 1 {
			w.fault("change.nodes", "shrinking takes at least 1 node, not %d", c.Nodes)
		}
		w.shrink = int64(max(0, c.Nodes))
	}
	w.nodes = int64(len(nodes)) - w.shrink
	w.check(nil, "")
	return nodes
}

// victims checks the nodes that the change names, and returns their ids.
func (w *world) victims(nodes []*ExistingNode) map[string]bool {
	named := map[string]bool{}
	if len(w.in.Change.Victims) == 0 {
		w.fault("change.victims", "names no node")
	}
	for i, id := range w.in.Change.Victims {
		at := fmt.Sprintf("change.victims[%d]", i)
		if named[id] {
			w.fault(at, "node %s is named twice", id)
		}
		named[id] = true
		if !slices.ContainsFunc(nodes, func(n *ExistingNode) bool { return n.ID == id }) {
			w.fault(at, "node %s is not of this cluster", id)
		}
	}
	return named
}
