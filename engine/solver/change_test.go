package solver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
)

// randomCluster makes a random input whose existing nodes are a solution for
// some of its services; false where there is none. Numbers are mixed, so that
// equal nodes are of different ages.
func randomCluster(r *rand.Rand) (solver.Input, []string, bool) {
	in := randomInput(r)
	in.Comparator, in.Zones, in.HardwareType, in.ImageType = solver.ComparatorOriginal, nil, "", ""
	in.Template.Compatibility = model.Compatibility{}
	in.Template.Preferences = model.Preferences{}
	in.Template.Constraints.Size = nil
	for n, s := range in.Services {
		s.Resources, s.Spread = nil, ""
		in.Services[n] = s
	}
	have := 1 + r.IntN(len(in.Wanted))
	all := in.Wanted
	in.Wanted = all[:have]
	a, err := solver.Solve(context.Background(), in)
	if err != nil {
		return in, nil, false
	}
	for _, g := range a.Layout {
		for range g.Count {
			in.Existing = append(in.Existing, solver.ExistingNode{HardwareType: g.HardwareType, ImageType: g.ImageType, Services: g.Services})
		}
	}
	r.Shuffle(len(in.Existing), func(i, j int) { in.Existing[i], in.Existing[j] = in.Existing[j], in.Existing[i] })
	for i := range in.Existing {
		in.Existing[i].ID, in.Existing[i].Number = fmt.Sprint("n", i), 1000+i
	}
	in.Wanted, in.Nodes = nil, 0
	return in, all[have:], true
}

func layoutOf(nodes []solver.ExistingNode) model.Layout {
	var l model.Layout
	for _, n := range nodes {
		s := slices.Clone(n.Services)
		sort.Strings(s)
		at := slices.IndexFunc(l, func(g model.NodeGroup) bool {
			return g.HardwareType == n.HardwareType && g.ImageType == n.ImageType && slices.Equal(g.Services, s)
		})
		if at < 0 {
			at = len(l)
			l = append(l, model.NodeGroup{HardwareType: n.HardwareType, ImageType: n.ImageType, Services: s})
		}
		l[at].Count++
	}
	sort.Slice(l, func(i, j int) bool { return groupOrder(l[i], l[j]) < 0 })
	return l
}

// groupOrder is the comparator "original" without preferences.
func groupOrder(a, b model.NodeGroup) int {
	if len(a.Services) != len(b.Services) {
		return len(b.Services) - len(a.Services)
	}
	if a.HardwareType != b.HardwareType {
		return slices.Compare([]string{a.HardwareType}, []string{b.HardwareType})
	}
	if a.ImageType != b.ImageType {
		return slices.Compare([]string{a.ImageType}, []string{b.ImageType})
	}
	return slices.Compare(a.Services, b.Services)
}

// greater tells whether the counts of a are lexicographically greater.
func greater(a, b model.Layout) bool {
	for i := range a {
		if i == len(b) {
			return true
		}
		if o := groupOrder(a[i], b[i]); o != 0 {
			return o < 0
		}
		if a[i].Count != b[i].Count {
			return a[i].Count > b[i].Count
		}
	}
	return false
}

func servicesOf(nodes []solver.ExistingNode) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Services...)
	}
	sort.Strings(all)
	return slices.Compact(all)
}

func TestAddServicesAgainstOracle(t *testing.T) {
	from, to := seeds(t, 4000)
	solved, refused := 0, 0
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(seed, 11))
		in, add, ok := randomCluster(r)
		if !ok || len(add) == 0 || len(add) > 2 || len(in.Existing) > 4 {
			continue
		}
		in.Change = solver.Change{Kind: solver.AddServices, Services: add, Touch: []solver.Touch{solver.TouchFewest, solver.TouchMost}[seed%2]}
		after := append(servicesOf(in.Existing), add...)
		sort.Strings(after)
		var best model.Layout
		bestTouched := 0
		nodes := slices.Clone(in.Existing)
		var walk func(i, touched int)
		walk = func(i, touched int) {
			if i == len(nodes) {
				l := layoutOf(nodes)
				for _, s := range add { // without constraints: on every node
					if everywhere(in, s) && slices.ContainsFunc(l, func(g model.NodeGroup) bool { return !slices.Contains(g.Services, s) }) {
						return
					}
				}
				if layoutcase.Broken(&in.Template, after, l, false) != nil {
					return
				}
				if best == nil || in.Change.Touch == solver.TouchFewest && touched < bestTouched ||
					(in.Change.Touch == solver.TouchMost || touched == bestTouched) && greater(l, best) {
					best, bestTouched = l, touched
				}
				return
			}
			for set := range 1 << len(add) {
				s := slices.Clone(in.Existing[i].Services)
				for b, name := range add {
					if set>>b&1 != 0 {
						s = append(s, name)
					}
				}
				nodes[i].Services = s
				more := 0
				if set != 0 {
					more = 1
				}
				walk(i+1, touched+more)
			}
		}
		walk(0, 0)
		a, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if err != nil && !errors.As(err, &u) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if (a != nil) != (best != nil) {
			t.Fatalf("seed %d: adding %v to %v: a layout: %v (%v), by enumeration %v\n%s", seed, add, layoutOf(in.Existing), a != nil, err, best, dump(in))
		}
		if a == nil {
			refused++
			if len(u.Conflict) == 0 {
				t.Fatalf("seed %d: no conflict is named", seed)
			}
			continue
		}
		solved++
		if canonical(a.Layout) != canonical(best) {
			t.Fatalf("seed %d: adding %v to %v (%s):\n got %v\nwant %v\n%s", seed, add, layoutOf(in.Existing), in.Change.Touch, a.Layout, best, dump(in))
		}
		// The changes by node are those of the layout.
		applied := slices.Clone(in.Existing)
		for _, c := range a.Changed {
			i := slices.IndexFunc(applied, func(n solver.ExistingNode) bool { return n.ID == c.ID })
			applied[i].Services = append(slices.Clone(applied[i].Services), c.Add...)
		}
		if canonical(layoutOf(applied)) != canonical(a.Layout) {
			t.Fatalf("seed %d: the changes give %v, the layout is %v", seed, layoutOf(applied), a.Layout)
		}
	}
	t.Logf("%d changes, %d refusals", solved, refused)
	if from+1 < to && (solved < int(to-from)/20 || refused < int(to-from)/100) {
		t.Errorf("one-sided: %d changes, %d refusals", solved, refused)
	}
}

// everywhere tells whether a service has no constraint.
func everywhere(in solver.Input, s string) bool {
	_, has := in.Template.Constraints.Services[s]
	for _, set := range slices.Concat(in.Template.Constraints.Layout.MustCoexist, in.Template.Constraints.Layout.CantCoexist) {
		has = has || slices.Contains(set, s)
	}
	return !has
}

func TestShrinkAgainstOracle(t *testing.T) {
	from, to := seeds(t, 3000)
	solved, refused := 0, 0
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(seed, 12))
		in, _, ok := randomCluster(r)
		if !ok || len(in.Existing) < 2 {
			continue
		}
		in.Change = solver.Change{Kind: solver.Shrink, Nodes: 1 + r.IntN(len(in.Existing)-1)}
		all := servicesOf(in.Existing)
		// Subsets in the order that prefers the newest node, then the next.
		n := len(in.Existing)
		var want []string
		var walk func(i int, gone []string, left []solver.ExistingNode) bool
		walk = func(i int, gone []string, left []solver.ExistingNode) bool {
			if i < 0 {
				if len(gone) != in.Change.Nodes || layoutcase.Broken(&in.Template, all, layoutOf(left), false) != nil {
					return false
				}
				want = slices.Clone(gone)
				return true
			}
			node := in.Existing[i]
			return walk(i-1, append(slices.Clone(gone), node.ID), left) || walk(i-1, gone, append(slices.Clone(left), node))
		}
		walk(n-1, nil, nil)
		a, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if err != nil && !errors.As(err, &u) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if (a != nil) != (want != nil) {
			t.Fatalf("seed %d: %v by %d: %v, %v, by enumeration %v\n%s", seed, layoutOf(in.Existing), in.Change.Nodes, a, err, want, dump(in))
		}
		if a == nil {
			refused++
			continue
		}
		solved++
		if !slices.Equal(a.Removed, want) {
			t.Fatalf("seed %d: %v by %d: removed %v instead of %v\n%s", seed, in.Existing, in.Change.Nodes, a.Removed, want, dump(in))
		}
	}
	t.Logf("%d changes, %d refusals", solved, refused)
}

// TestGrowAgainstOracle compares with solving the whole anew where the existing
// nodes are fixed: every multiset of new nodes is tried.
func TestGrowAgainstOracle(t *testing.T) {
	from, to := seeds(t, 2000)
	solved, refused := 0, 0
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(seed, 13))
		in, _, ok := randomCluster(r)
		all := servicesOf(in.Existing)
		if !ok || len(all) > 4 {
			continue
		}
		k := 1 + r.IntN(2)
		in.Change = solver.Change{Kind: solver.Grow, Nodes: k}
		var best model.Layout
		var walk func(left int, nodes []solver.ExistingNode, from int)
		walk = func(left int, nodes []solver.ExistingNode, from int) {
			if left == 0 {
				l := layoutOf(nodes)
				for _, n := range nodes[len(in.Existing):] {
					for _, s := range all {
						if everywhere(in, s) && !slices.Contains(n.Services, s) {
							return
						}
					}
				}
				if layoutcase.Broken(&in.Template, all, l, false) == nil && (best == nil || greater(l, best)) {
					best = l
				}
				return
			}
			for choice := from; choice < 1<<len(all)*len(in.HardwareTypes)*len(in.ImageTypes); choice++ {
				c := choice
				n := solver.ExistingNode{HardwareType: in.HardwareTypes[c%len(in.HardwareTypes)].Name}
				c /= len(in.HardwareTypes)
				n.ImageType = in.ImageTypes[c%len(in.ImageTypes)].Name
				c /= len(in.ImageTypes)
				for b, s := range all {
					if c>>b&1 != 0 {
						n.Services = append(n.Services, s)
					}
				}
				walk(left-1, append(slices.Clone(nodes), n), choice)
			}
		}
		walk(k, in.Existing, 0)
		a, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if err != nil && !errors.As(err, &u) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if (a != nil) != (best != nil) {
			t.Fatalf("seed %d: %v grown by %d: %v, by enumeration %v\n%s", seed, layoutOf(in.Existing), k, err, best, dump(in))
		}
		if a == nil {
			refused++
			continue
		}
		solved++
		if canonical(a.Layout) != canonical(best) || a.New.Nodes() != k {
			t.Fatalf("seed %d: %v grown by %d:\n got %v\nwant %v\n%s", seed, layoutOf(in.Existing), k, a.Layout, best, dump(in))
		}
	}
	t.Logf("%d changes, %d refusals", solved, refused)
}

func TestOtherChanges(t *testing.T) {
	one := model.ServiceConstraint{Quantities: model.Quantities{Min: whole(1), Max: whole(1)}}
	in := solver.Input{Provider: "p", Services: layoutcase.Services([]string{"a", "b", "base"})}
	in.HardwareTypes, in.ImageTypes = layoutcase.Types([]string{"h"}, []string{"i"}, "p")
	in.Template.Constraints.Services = map[string]model.ServiceConstraint{"a": one, "b": {}}
	in.Existing = []solver.ExistingNode{
		{ID: "x", Number: 1000, HardwareType: "h", ImageType: "i", Services: []string{"a", "base"}},
		{ID: "y", Number: 1001, HardwareType: "h", ImageType: "i", Services: []string{"base", "b"}},
		{ID: "z", Number: 1002, HardwareType: "h", ImageType: "i", Services: []string{"b", "base"}},
	}
	solve := func(c solver.Change) (*solver.Answer, error) {
		in := in
		in.Change = c
		return solver.Solve(context.Background(), in)
	}
	a, err := solve(solver.Change{Kind: solver.RemoveServices, Services: []string{"b"}})
	if err != nil || len(a.Changed) != 2 || !slices.Equal(a.Changed[0].Remove, []string{"b"}) || !slices.Equal(a.Services, []string{"a", "base"}) {
		t.Errorf("removing b: %+v, %v", a, err)
	}
	if a, err = solve(solver.Change{Kind: solver.Shrink, Victims: []string{"y"}}); err != nil || !slices.Equal(a.Removed, []string{"y"}) || a.Layout.Nodes() != 2 {
		t.Errorf("removing node y: %+v, %v", a, err)
	}
	if _, err = solve(solver.Change{Kind: solver.Shrink, Victims: []string{"x", "q"}}); err == nil {
		t.Error("node q is not of the cluster")
	}
	if a, err = solve(solver.Change{Kind: solver.Shrink, Nodes: 1}); err != nil || !slices.Equal(a.Removed, []string{"z"}) {
		t.Errorf("shrinking by one: %+v, %v", a, err)
	}
	if a, err = solve(solver.Change{Kind: solver.Replace, Victims: []string{"y"}}); err != nil || !same(a.Layout, layoutOf(in.Existing)) || a.New.Nodes() != 1 || !slices.Equal(a.Removed, []string{"y"}) {
		t.Errorf("replacing y: %+v, %v", a, err)
	}
	if a, err = solve(solver.Change{Kind: solver.Retemplate}); err != nil || !same(a.Layout, layoutOf(in.Existing)) || len(a.Changed) > 0 {
		t.Errorf("the same template: %+v, %v", a, err)
	}
	in.Template.Constraints.Services["b"] = model.ServiceConstraint{Quantities: model.Quantities{Max: whole(1)}}
	var u *solver.Unsolvable
	if _, err = solve(solver.Change{Kind: solver.Retemplate}); !errors.As(err, &u) || len(u.Conflict) != 1 || u.Conflict[0].Path != "constraints.services.b.quantities.max" {
		t.Errorf("a template that does not fit: %v", err)
	}
	in.Template.Constraints.Services["b"] = model.ServiceConstraint{}
	in.Template.Constraints.Services["c"] = model.ServiceConstraint{Quantities: model.Quantities{Min: whole(4)}}
	in.Services["c"] = model.Service{Base: model.Base{Name: "c"}}
	if _, err = solve(solver.Change{Kind: solver.AddServices, Services: []string{"c"}}); !errors.As(err, &u) || !slices.Contains(u.Hints, "with 1 new node instead of 0 it has a solution") {
		t.Errorf("a service that needs a fourth node: %v", err)
	}
	if a, err = solve(solver.Change{Kind: solver.AddServices, Services: []string{"c"}, Nodes: 1}); err != nil || a.New.Nodes() != 1 || len(a.Changed) != 3 {
		t.Errorf("with a fourth node: %+v, %v", a, err)
	}
}
