package solver_test

import (
	"context"
	"errors"
	"slices"
	"sort"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
)

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
	return l
}

func servicesOf(nodes []solver.ExistingNode) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Services...)
	}
	sort.Strings(all)
	return slices.Compact(all)
}

// everywhere reports whether a service has no constraint, so that it is on every node.
func everywhere(in solver.Input, s string) bool {
	_, has := in.Template.Constraints.Services[s]
	for _, set := range slices.Concat(in.Template.Constraints.Layout.MustCoexist, in.Template.Constraints.Layout.CantCoexist) {
		has = has || slices.Contains(set, s)
	}
	return !has
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
	if err != nil || len(a.Changed) != 2 || !slices.Equal(a.Changed[0].Remove, []string{"b"}) ||
		!slices.Equal(a.Services, []string{"a", "base"}) {
		t.Errorf("removing b: %+v, %v", a, err)
	}
	a, err = solve(solver.Change{Kind: solver.Shrink, Victims: []string{"y"}})
	if err != nil || !slices.Equal(a.Removed, []string{"y"}) || a.Layout.Nodes() != 2 {
		t.Errorf("removing node y: %+v, %v", a, err)
	}
	if _, err = solve(solver.Change{Kind: solver.Shrink, Victims: []string{"x", "q"}}); err == nil {
		t.Error("node q is not of the cluster")
	}
	if a, err = solve(solver.Change{Kind: solver.Shrink, Nodes: 1}); err != nil || !slices.Equal(a.Removed, []string{"z"}) {
		t.Errorf("shrinking by one: %+v, %v", a, err)
	}
	a, err = solve(solver.Change{Kind: solver.Replace, Victims: []string{"y"}})
	if err != nil || !same(a.Layout, layoutOf(in.Existing)) || a.New.Nodes() != 1 || !slices.Equal(a.Removed, []string{"y"}) {
		t.Errorf("replacing y: %+v, %v", a, err)
	}
	if a, err = solve(solver.Change{Kind: solver.Retemplate}); err != nil || !same(a.Layout, layoutOf(in.Existing)) || len(a.Changed) > 0 {
		t.Errorf("the same template: %+v, %v", a, err)
	}
	in.Template.Constraints.Services["b"] = model.ServiceConstraint{Quantities: model.Quantities{Max: whole(1)}}
	var u *solver.Unsolvable
	_, err = solve(solver.Change{Kind: solver.Retemplate})
	if !errors.As(err, &u) || len(u.Conflict) != 1 || u.Conflict[0].Path != "constraints.services.b.quantities.max" {
		t.Errorf("a template that does not fit: %v", err)
	}
	in.Template.Constraints.Services["b"] = model.ServiceConstraint{}
	in.Template.Constraints.Services["c"] = model.ServiceConstraint{Quantities: model.Quantities{Min: whole(4)}}
	in.Services["c"] = model.Service{Base: model.Base{Name: "c"}}
	_, err = solve(solver.Change{Kind: solver.AddServices, Services: []string{"c"}})
	if !errors.As(err, &u) || !slices.Contains(u.Hints, "with 1 new node instead of 0 it has a solution") {
		t.Errorf("a service that needs a fourth node: %v", err)
	}
	a, err = solve(solver.Change{Kind: solver.AddServices, Services: []string{"c"}, Nodes: 1})
	if err != nil || a.New.Nodes() != 1 || len(a.Changed) != 3 {
		t.Errorf("with a fourth node: %+v, %v", a, err)
	}
}
