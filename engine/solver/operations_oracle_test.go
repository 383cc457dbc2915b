package solver_test

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
)

// oracleNode is a node of a cluster after an operation, as the oracle builds it.
type oracleNode struct {
	solver.ExistingNode
	fresh   bool
	touched bool
}

// mostTries is the number of clusters that the oracle judges before it gives up.
const mostTries = 3000

// operationOracle finds the result of an operation on an existing cluster. It tries everything that
// rule 9 of docs/spec/solver.md permits and judges each try from the definitions alone. It shares
// no code with the solver.
type operationOracle struct {
	in       solver.Input
	services []string // after the operation
	optional []string // those among services that may disappear from all nodes
	best     []oracleNode
	bestCost *big.Rat
	removed  []string
	tries    int
	tooBig   bool
}

// solve reports whether there is a valid result. It fills in the nodes after the operation (best)
// and the removed nodes. It also returns false if there are too many possibilities; then tooBig is
// set.
func (o *operationOracle) solve() bool {
	in := &o.in
	var nodes []oracleNode
	for _, n := range in.Existing {
		n.Services = slices.Clone(n.Services)
		nodes = append(nodes, oracleNode{ExistingNode: n})
	}
	gone := func(id string) bool { return slices.Contains(in.Change.Victims, id) }
	switch in.Change.Kind {
	case solver.RemoveServices:
		for i := range nodes {
			nodes[i].Services = slices.DeleteFunc(nodes[i].Services, func(s string) bool { return slices.Contains(in.Change.Services, s) })
		}
	case solver.Shrink:
		o.services = servicesOf(in.Existing)
		if len(in.Change.Victims) > 0 {
			nodes = slices.DeleteFunc(nodes, func(n oracleNode) bool { return gone(n.ID) })
			o.removed = in.Change.Victims
		} else {
			return o.shrink(nodes, nil, in.Change.Nodes)
		}
	case solver.AddServices:
		o.services = append(servicesOf(in.Existing), in.Change.Services...)
		slices.Sort(o.services)
		o.add(nodes, 0)
		return o.best != nil
	case solver.Grow:
		o.services = servicesOf(in.Existing)
		o.grow(nodes, in.Change.Nodes, 0)
		return o.best != nil
	}
	if o.services == nil {
		for _, n := range nodes {
			o.services = append(o.services, n.Services...)
		}
		slices.Sort(o.services)
		o.services = slices.Compact(o.services)
	}
	o.judge(nodes)
	return o.best != nil
}

// shrink goes from the newest node to the oldest and tries to remove each one before it tries to
// keep it.
func (o *operationOracle) shrink(nodes []oracleNode, gone []string, left int) bool {
	if left == 0 {
		if o.judge(nodes); o.best != nil {
			o.removed = gone
		}
		return o.best != nil
	}
	rest := slices.SortedFunc(slices.Values(nodes), func(a, b oracleNode) int { return b.Number - a.Number })
	for i, n := range rest {
		if len(gone) > 0 && n.Number > o.number(gone[len(gone)-1]) {
			continue // an earlier step kept it
		}
		if o.shrink(slices.Concat(rest[:i], rest[i+1:]), append(slices.Clone(gone), n.ID), left-1) {
			return true
		}
	}
	return false
}

func (o *operationOracle) number(id string) int {
	return o.in.Existing[slices.IndexFunc(o.in.Existing, func(n solver.ExistingNode) bool { return n.ID == id })].Number
}

// add tries every set of the services to be added on node i.
func (o *operationOracle) add(nodes []oracleNode, i int) {
	if i == len(nodes) {
		o.grow(nodes, o.in.Change.Nodes, 0)
		return
	}
	was := nodes[i]
	for set := range 1 << len(o.in.Change.Services) {
		if o.tooBig {
			return
		}
		next := slices.Clone(nodes)
		next[i] = was
		next[i].Services, next[i].touched = slices.Clone(was.Services), set != 0
		for b, s := range o.in.Change.Services {
			if set>>b&1 != 0 {
				next[i].Services = append(next[i].Services, s)
			}
		}
		o.add(next, i+1)
	}
}

// grow adds all combinations of node layouts, regardless of order.
func (o *operationOracle) grow(nodes []oracleNode, left, from int) {
	if left == 0 {
		o.judge(nodes)
		return
	}
	in := &o.in
	for choice := from; !o.tooBig && choice < 1<<len(o.services)*len(in.HardwareTypes)*len(in.ImageTypes); choice++ {
		c := choice
		n := oracleNode{fresh: true}
		n.HardwareType, c = in.HardwareTypes[c%len(in.HardwareTypes)].Name, c/len(in.HardwareTypes)
		n.ImageType, c = in.ImageTypes[c%len(in.ImageTypes)].Name, c/len(in.ImageTypes)
		for b, s := range o.services {
			if c>>b&1 != 0 {
				n.Services = append(n.Services, s)
			}
		}
		if o.mayBeNew(&n) {
			o.grow(append(slices.Clone(nodes), n), left-1, choice)
		}
	}
}

// mayBeNew reports whether a node satisfies the rules that apply to new nodes only.
func (o *operationOracle) mayBeNew(n *oracleNode) bool {
	t := &o.in.Template
	one := func(name, asked, standard string, compatible []string) bool {
		if asked == "" {
			asked = standard
		}
		return (asked == "" || asked == name) && (len(compatible) == 0 || slices.Contains(compatible, name))
	}
	for _, s := range o.services {
		if everywhere(o.in, s) && !slices.Contains(n.Services, s) {
			return false
		}
	}
	return one(n.HardwareType, o.in.HardwareType, t.Defaults.HardwareType, t.Compatibility.HardwareTypes) &&
		one(n.ImageType, o.in.ImageType, t.Defaults.ImageType, t.Compatibility.ImageTypes)
}

// judge records a cluster if it is valid and better than the best one so far.
func (o *operationOracle) judge(nodes []oracleNode) {
	if o.tries++; o.tries > mostTries {
		o.tooBig = true
	}
	if o.tooBig || len(nodes) == 0 || !o.valid(nodes) {
		return
	}
	cost := new(big.Rat)
	for _, n := range nodes {
		if n.fresh && o.costed() {
			cost.Add(cost, o.entry(n.HardwareType, "cost"))
		}
	}
	if o.best == nil || o.better(nodes, cost) {
		o.best, o.bestCost = nodes, cost
	}
}

func (o *operationOracle) costed() bool {
	if c := o.in.Comparator; c != "" {
		return c == solver.ComparatorCost
	}
	return o.in.Change.Kind != solver.Create
}

func (o *operationOracle) entry(hw, key string) *big.Rat {
	for _, h := range o.in.HardwareTypes {
		if h.Name == hw && h.ProviderMap[o.in.Provider][key] != nil {
			r, ok := new(big.Rat).SetString(fmt.Sprint(h.ProviderMap[o.in.Provider][key]))
			if ok {
				return r
			}
		}
	}
	return nil
}

// valid reports whether the nodes satisfy every hard constraint.
func (o *operationOracle) valid(nodes []oracleNode) bool {
	in, t := &o.in, &o.in.Template
	plain := make([]solver.ExistingNode, len(nodes))
	for i, n := range nodes {
		plain[i] = n.ExistingNode
		if in.Change.Kind == solver.Retemplate {
			c := t.Compatibility
			if len(c.HardwareTypes) > 0 && !slices.Contains(c.HardwareTypes, n.HardwareType) ||
				len(c.ImageTypes) > 0 && !slices.Contains(c.ImageTypes, n.ImageType) {
				return false
			}
		}
		for _, s := range in.Change.Services {
			if in.Change.Kind == solver.AddServices && everywhere(*in, s) && !slices.Contains(n.Services, s) {
				return false
			}
		}
		for d, key := range []string{"vcpu", "ram", "disk"} {
			room, sum := o.entry(n.HardwareType, key), new(big.Rat)
			for _, s := range n.Services {
				if r := in.Services[s].Resources; r != nil {
					sum.Add(sum, new(big.Rat).SetFloat64([]float64{r.VCPU, r.RAM, r.Disk}[d])) // halves and quarters are exact
				}
			}
			if room != nil && sum.Cmp(room) > 0 {
				return false
			}
		}
	}
	layout := layoutOf(plain)
	services := slices.DeleteFunc(slices.Clone(o.services), func(s string) bool {
		return slices.Contains(o.optional, s) &&
			!slices.ContainsFunc(plain, func(n solver.ExistingNode) bool { return slices.Contains(n.Services, s) })
	})
	if layoutcase.Broken(t, services, layout, false) != nil ||
		slices.ContainsFunc(in.Exclude, func(x model.Layout) bool { return same(x, layout) }) {
		return false
	}
	return o.spread(nodes, "zone", in.Zones, func(n *oracleNode) *string { return &n.Zone }) &&
		o.spread(nodes, "host", in.Hosts, func(n *oracleNode) *string { return &n.Host })
}

// spread reports whether some distribution of the new nodes over the places is even. It tries all
// of them. Nodes at other places are not counted.
func (o *operationOracle) spread(nodes []oracleNode, word string, places []string, at func(*oracleNode) *string) bool {
	if len(places) == 0 || !slices.ContainsFunc(o.services, func(s string) bool { return o.in.Services[s].Spread == word }) {
		return true
	}
	nodes = slices.Clone(nodes)
	var try func(i int) bool
	try = func(i int) bool {
		if i < len(nodes) {
			if !nodes[i].fresh {
				return try(i + 1)
			}
			for _, p := range places {
				if *at(&nodes[i]) = p; try(i + 1) {
					return true
				}
			}
			return false
		}
		for _, s := range o.services {
			if o.in.Services[s].Spread != word {
				continue
			}
			low, high := len(nodes), 0
			for _, p := range places {
				n := 0
				for j := range nodes {
					if *at(&nodes[j]) == p && slices.Contains(nodes[j].Services, s) {
						n++
					}
				}
				low, high = min(low, n), max(high, n)
			}
			if high-low > 1 {
				return false
			}
		}
		return true
	}
	return try(0)
}

// better reports whether a valid cluster is better than the best one so far: by rule 9, then by
// rule 8.
func (o *operationOracle) better(nodes []oracleNode, cost *big.Rat) bool {
	in := &o.in
	touch := in.Change.Touch
	if touch == "" && in.Comparator == solver.ComparatorOriginal {
		touch = solver.TouchMost
	}
	touched := func(list []oracleNode) (n int) {
		for _, s := range list {
			if s.touched {
				n++
			}
		}
		return n
	}
	if a, b := touched(nodes), touched(o.best); a != b && touch != solver.TouchMost {
		return a < b
	}
	if c := cost.Cmp(o.bestCost); c != 0 {
		return c < 0
	}
	x, y := o.vector(nodes), o.vector(o.best)
	for i := range x {
		if i == len(y) {
			return true
		}
		if c := o.order(&x[i], &y[i]); c != 0 {
			return c < 0
		}
		if x[i].count != y[i].count {
			return x[i].count > y[i].count
		}
	}
	return false
}

// vectorEntry is one element of the vector of counts. Existing nodes of one place form a separate
// element, which comes before new nodes.
type vectorEntry struct {
	oracleNode
	place string
	count int
}

func (o *operationOracle) vector(nodes []oracleNode) []vectorEntry {
	var out []vectorEntry
	for _, n := range nodes {
		e := vectorEntry{oracleNode: n, count: 1}
		e.Services = slices.Sorted(slices.Values(n.Services))
		if !n.fresh {
			e.place = o.placeOf(&n)
		}
		at := slices.IndexFunc(out, func(x vectorEntry) bool { return o.order(&x, &e) == 0 })
		if at < 0 {
			out = append(out, e)
		} else {
			out[at].count++
		}
	}
	slices.SortFunc(out, func(a, b vectorEntry) int { return o.order(&a, &b) })
	return out
}

// placeOf returns the zone and host of a node, each only if the spread of some service depends on
// it.
func (o *operationOracle) placeOf(n *oracleNode) string {
	zone, host := "", ""
	for _, s := range o.services {
		switch o.in.Services[s].Spread {
		case "zone":
			zone = n.Zone
		case "host":
			host = n.Host
		}
	}
	return zone + "\x00" + host
}

func (o *operationOracle) order(a, b *vectorEntry) int {
	worth := func(services []string) (n int64) {
		for _, s := range services {
			n++
			if r := o.in.Ranking; r != nil && r.Worth[s] > 0 {
				n += r.Worth[s] - 1
			}
		}
		return n
	}
	rank := func(e *vectorEntry) int {
		if o.in.Ranking == nil {
			return 0
		}
		for i, k := range o.in.Ranking.Kinds {
			if k.HardwareType == e.HardwareType && k.ImageType == e.ImageType {
				return i
			}
		}
		return 1 << 20
	}
	prefers := func(list []string, name string) int {
		if i := slices.Index(list, name); i >= 0 {
			return i
		}
		return 1 << 20
	}
	p := &o.in.Template.Preferences
	fresh := func(e *vectorEntry) int {
		if e.fresh {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(worth(b.Services), worth(a.Services)),
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(prefers(p.HardwareTypes, a.HardwareType), prefers(p.HardwareTypes, b.HardwareType)),
		cmp.Compare(prefers(p.ImageTypes, a.ImageType), prefers(p.ImageTypes, b.ImageType)),
		cmp.Compare(a.HardwareType, b.HardwareType), cmp.Compare(a.ImageType, b.ImageType),
		slices.Compare(a.Services, b.Services), cmp.Compare(fresh(a), fresh(b)), cmp.Compare(a.place, b.place))
}

func layoutOfNodes(nodes []oracleNode) model.Layout {
	plain := make([]solver.ExistingNode, len(nodes))
	for i, n := range nodes {
		plain[i] = n.ExistingNode
	}
	return layoutOf(plain)
}
