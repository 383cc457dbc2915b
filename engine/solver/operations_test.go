package solver_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
)

// standing is a node of a cluster after an operation, in the oracle's hands.
type standing struct {
	solver.ExistingNode
	fresh   bool
	touched bool
}

// mostTries is how much the oracle looks at before it gives up.
const mostTries = 3000

// operationOracle answers what an operation on an existing cluster comes to, by
// trying everything that rule 9 of spec/solver.md leaves open, and judging each
// try from the definitions alone. It shares no code with the solver.
type operationOracle struct {
	in       solver.Input
	services []string // after the operation
	optional []string // of them those that need not stay on any node
	best     []standing
	bestCost *big.Rat
	removed  []string
	tries    int
	tooBig   bool
}

// solve gives the nodes after the operation and those that go; false where
// nothing is valid, or there is too much to try.
func (o *operationOracle) solve() bool {
	in := &o.in
	var nodes []standing
	for _, n := range in.Existing {
		n.Services = slices.Clone(n.Services)
		nodes = append(nodes, standing{ExistingNode: n})
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
			nodes = slices.DeleteFunc(nodes, func(n standing) bool { return gone(n.ID) })
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

// shrink goes from the newest node to the oldest, and takes each away before it
// tries to leave it.
func (o *operationOracle) shrink(nodes []standing, gone []string, left int) bool {
	if left == 0 {
		if o.judge(nodes); o.best != nil {
			o.removed = gone
		}
		return o.best != nil
	}
	rest := slices.SortedFunc(slices.Values(nodes), func(a, b standing) int { return b.Number - a.Number })
	for i, n := range rest {
		if len(gone) > 0 && n.Number > o.number(gone[len(gone)-1]) {
			continue // it was left
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

// add gives node i every set of the services to be added.
func (o *operationOracle) add(nodes []standing, i int) {
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

// grow adds every node layout there is, in any order.
func (o *operationOracle) grow(nodes []standing, left, from int) {
	if left == 0 {
		o.judge(nodes)
		return
	}
	in := &o.in
	for choice := from; !o.tooBig && choice < 1<<len(o.services)*len(in.HardwareTypes)*len(in.ImageTypes); choice++ {
		c := choice
		n := standing{fresh: true}
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

// mayBeNew asks what holds for new nodes only.
func (o *operationOracle) mayBeNew(n *standing) bool {
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

// judge keeps a cluster that is valid and better than the best so far.
func (o *operationOracle) judge(nodes []standing) {
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

// valid asks for every hard constraint.
func (o *operationOracle) valid(nodes []standing) bool {
	in, t := &o.in, &o.in.Template
	plain := make([]solver.ExistingNode, len(nodes))
	for i, n := range nodes {
		plain[i] = n.ExistingNode
		if in.Change.Kind == solver.Retemplate {
			c := t.Compatibility
			if len(c.HardwareTypes) > 0 && !slices.Contains(c.HardwareTypes, n.HardwareType) || len(c.ImageTypes) > 0 && !slices.Contains(c.ImageTypes, n.ImageType) {
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
		return slices.Contains(o.optional, s) && !slices.ContainsFunc(plain, func(n solver.ExistingNode) bool { return slices.Contains(n.Services, s) })
	})
	if layoutcase.Broken(t, services, layout, false) != nil || slices.ContainsFunc(in.Exclude, func(x model.Layout) bool { return same(x, layout) }) {
		return false
	}
	return o.spread(nodes, "zone", in.Zones, func(n *standing) *string { return &n.Zone }) &&
		o.spread(nodes, "host", in.Hosts, func(n *standing) *string { return &n.Host })
}

// spread puts new nodes into every place there is. Nodes whose place is not
// among them are not counted.
func (o *operationOracle) spread(nodes []standing, word string, places []string, at func(*standing) *string) bool {
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

// better compares two valid clusters: rule 9, then rule 8.
func (o *operationOracle) better(nodes []standing, cost *big.Rat) bool {
	in := &o.in
	touch := in.Change.Touch
	if touch == "" && in.Comparator == solver.ComparatorOriginal {
		touch = solver.TouchMost
	}
	touched := func(list []standing) (n int) {
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

// vectorEntry is one element of the vector of counts. Existing nodes of one place
// are an element of their own, and come before new ones.
type vectorEntry struct {
	standing
	place string
	count int
}

func (o *operationOracle) vector(nodes []standing) []vectorEntry {
	var out []vectorEntry
	for _, n := range nodes {
		e := vectorEntry{standing: n, count: 1}
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

// placeOf tells where a node is, as far as a service's spread asks.
func (o *operationOracle) placeOf(n *standing) string {
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

func layoutOfStanding(nodes []standing) model.Layout {
	plain := make([]solver.ExistingNode, len(nodes))
	for i, n := range nodes {
		plain[i] = n.ExistingNode
	}
	return layoutOf(plain)
}

// randomOperation makes a random operation, with every kind of constraint, on
// a cluster that was solved for the same rules or, now and then, for none.
func randomOperation(r *rand.Rand) (solver.Input, bool) {
	in := randomInput(r)
	all := slices.Clone(in.Wanted)
	cut := 1 + r.IntN(len(all))
	in.Wanted = all[:cut]
	start := in
	if r.IntN(4) == 0 { // the cluster is older than most of its rules
		start.Template.Constraints.Services, start.Zones, start.Hosts = nil, nil, nil
	}
	a, err := solver.Solve(context.Background(), start)
	if err != nil {
		return in, false
	}
	place := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return append(list[:len(list):len(list)], "elsewhere")[r.IntN(len(list)+r.IntN(20)/19)]
	}
	for g, group := range a.Layout {
		var zones, hosts []string
		for _, p := range a.Placement {
			for range p.Count {
				switch {
				case p.Group != g:
				case p.Zone != "":
					zones = append(zones, p.Zone)
				case p.Host != "":
					hosts = append(hosts, p.Host)
				}
			}
		}
		for i := range group.Count {
			n := solver.ExistingNode{HardwareType: group.HardwareType, ImageType: group.ImageType, Services: group.Services, Zone: place(in.Zones), Host: place(in.Hosts)}
			if i < len(zones) {
				n.Zone = zones[i]
			}
			if i < len(hosts) {
				n.Host = hosts[i]
			}
			in.Existing = append(in.Existing, n)
		}
	}
	r.Shuffle(len(in.Existing), func(i, j int) { in.Existing[i], in.Existing[j] = in.Existing[j], in.Existing[i] })
	for i := range in.Existing {
		in.Existing[i].ID, in.Existing[i].Number = fmt.Sprint("n", i), 1000+i
	}
	if len(in.Existing) > 4 {
		return in, false
	}
	in.Wanted, in.Nodes = nil, 0
	victim := func() []string { return []string{in.Existing[r.IntN(len(in.Existing))].ID} }
	c := &in.Change
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		if cut == len(all) {
			return in, false
		}
		c.Kind, c.Services, c.Nodes = solver.AddServices, all[cut:min(len(all), cut+1+r.IntN(2))], r.IntN(3)/2
		c.Touch = []solver.Touch{"", solver.TouchFewest, solver.TouchMost}[r.IntN(3)]
	case 4, 5:
		c.Kind, c.Nodes = solver.Grow, 1+r.IntN(2)
	case 6:
		c.Kind, c.Nodes = solver.Shrink, 1+r.IntN(2)
	case 7:
		c.Kind, c.Victims = []solver.ChangeKind{solver.Shrink, solver.Replace}[r.IntN(2)], victim()
	case 8:
		c.Kind, c.Services = solver.RemoveServices, all[:1+r.IntN(cut)]
	case 9:
		c.Kind = solver.Retemplate
	}
	if r.IntN(6) == 0 && c.Kind != solver.Create {
		if a, err := solver.Solve(context.Background(), in); err == nil {
			in.Exclude = append(in.Exclude, a.Layout)
		}
	}
	return in, true
}

// TestOperationsAgainstOracle compares every operation with plain enumeration:
// the same "no", the same layout, the same nodes that go.
func TestOperationsAgainstOracle(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 24000)
	type tally struct{ solved, refused int }
	seen := map[solver.ChangeKind]*tally{}
	skipped := 0
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(seed, 31))
		in, ok := randomOperation(r)
		if !ok {
			skipped++
			continue
		}
		o := &operationOracle{in: in}
		found := o.solve()
		if o.tooBig {
			skipped++
			continue
		}
		a, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		var faults model.Faults
		if errors.As(err, &faults) {
			skipped++ // wrong in itself: told before solving
			continue
		}
		if err != nil && !errors.As(err, &u) {
			t.Fatalf("seed %d: %v\n%s", seed, err, dumpChange(in))
		}
		if found != (a != nil) {
			t.Fatalf("seed %d: %s: %v, %v; by enumeration %v\n%s", seed, in.Change.Kind, a, err, layoutOfStanding(o.best), dumpChange(in))
		}
		n := seen[in.Change.Kind]
		if n == nil {
			n = &tally{}
			seen[in.Change.Kind] = n
		}
		if a == nil {
			n.refused++
			if len(u.Conflict) == 0 {
				t.Fatalf("seed %d: no conflict is named\n%s", seed, dumpChange(in))
			}
			continue
		}
		n.solved++
		if want := layoutOfStanding(o.best); !same(a.Layout, want) {
			t.Fatalf("seed %d: %s:\n got %v\nwant %v\n%s", seed, in.Change.Kind, a.Layout, want, dumpChange(in))
		}
		if in.Change.Kind == solver.Shrink && !slices.Equal(a.Removed, o.removed) {
			t.Fatalf("seed %d: removed %v instead of %v\n%s", seed, a.Removed, o.removed, dumpChange(in))
		}
		checkAnswer(t, seed, in, a)
	}
	for kind, n := range seen {
		t.Logf("%s: %d changes, %d refusals", kind, n.solved, n.refused)
		if to-from >= 2000 && (n.solved < 10 || n.refused < 3) {
			t.Errorf("%s: one-sided: %d changes, %d refusals", kind, n.solved, n.refused)
		}
	}
	t.Logf("%d left out", skipped)
	if to-from >= 2000 && len(seen) != 6 {
		t.Errorf("only %d kinds of operation", len(seen))
	}
}

// TestOperationExplanationsAreMinimal takes each member out of an operation's
// conflict: what is left can hold together, and all of it cannot.
func TestOperationExplanationsAreMinimal(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 8000)
	explained := 0
	for seed := from; seed < to; seed++ {
		in, ok := randomOperation(rand.New(rand.NewPCG(seed, 32)))
		if !ok {
			continue
		}
		_, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if !errors.As(err, &u) {
			continue
		}
		if !u.Minimal {
			t.Fatalf("seed %d: %v is not minimal\n%s", seed, u, dumpChange(in))
		}
		explained++
		for _, but := range append(u.Conflict, solver.Constraint{}) {
			o := &operationOracle{in: in}
			for _, path := range paths(in) {
				if path == but.Path || !names(u, path) {
					o.in = without(o.in, path)
				}
			}
			// That services stay is a reason only where it is the only one.
			for _, s := range servicesOf(in.Existing) {
				if path := "services." + s; strings.Count(u.Conflict[0].Path, ".") == 1 && strings.HasPrefix(u.Conflict[0].Path, "services.") && (path == but.Path || !names(u, path)) {
					o.optional = append(o.optional, s)
				}
			}
			if found := o.solve(); found != (but.Path != "") && !o.tooBig {
				t.Fatalf("seed %d: without %q what is left of the conflict can hold together: %v\n%v\n%s", seed, but.Path, found, u, dumpChange(in))
			}
		}
	}
	t.Logf("%d explanations", explained)
	if to-from >= 2000 && explained < int(to-from)/40 {
		t.Errorf("only %d operations that cannot be", explained)
	}
}

func names(u *solver.Unsolvable, path string) bool {
	return slices.ContainsFunc(u.Conflict, func(c solver.Constraint) bool { return c.Path == path })
}

// checkAnswer asks that what an answer says of single nodes comes to its layout.
func checkAnswer(t *testing.T, seed uint64, in solver.Input, a *solver.Answer) {
	t.Helper()
	var nodes []solver.ExistingNode
	for _, n := range in.Existing {
		if slices.Contains(a.Removed, n.ID) {
			continue
		}
		for _, c := range a.Changed {
			if c.ID == n.ID {
				n.Services = slices.DeleteFunc(append(slices.Clone(n.Services), c.Add...), func(s string) bool { return slices.Contains(c.Remove, s) })
			}
		}
		nodes = append(nodes, n)
	}
	for _, g := range a.New {
		for _, p := range a.Places(g) {
			nodes = append(nodes, solver.ExistingNode{HardwareType: g.HardwareType, ImageType: g.ImageType, Services: g.Services, Zone: p.Zone, Host: p.Host})
		}
	}
	for _, s := range a.Services {
		if in.Change.Kind == solver.Replace {
			break // the new nodes are where the old ones were
		}
		places, at := in.Zones, func(n *solver.ExistingNode) string { return n.Zone }
		if in.Services[s].Spread == "host" {
			places, at = in.Hosts, func(n *solver.ExistingNode) string { return n.Host }
		}
		var counts []int
		for _, p := range places {
			n := 0
			for i := range nodes {
				if at(&nodes[i]) == p && slices.Contains(nodes[i].Services, s) {
					n++
				}
			}
			counts = append(counts, n)
		}
		if in.Services[s].Spread != "" && len(counts) > 0 && slices.Max(counts)-slices.Min(counts) > 1 {
			t.Fatalf("seed %d: %s is spread as %v over %v\n%s", seed, s, counts, places, dumpChange(in))
		}
	}
	if !same(layoutOf(nodes), a.Layout) {
		t.Fatalf("seed %d: the nodes come to %v, the layout is %v\n%s", seed, layoutOf(nodes), a.Layout, dumpChange(in))
	}
}

func dumpChange(in solver.Input) string {
	b, _ := json.MarshalIndent(struct {
		Existing []solver.ExistingNode
		Change   solver.Change
		Ranking  *model.Ranking
		Hosts    []string
	}{in.Existing, in.Change, in.Ranking, in.Hosts}, "", " ")
	return string(b) + "\n" + dump(in)
}
