package solver_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
	"github.com/coopr/coopr/testing/original"
)

func TestConformance(t *testing.T) {
	for _, f := range []struct {
		name string
		run  func(string) ([]layoutcase.Result, error)
	}{{"solver-cases.json", layoutcase.Solver}, {"add-services-cases.json", layoutcase.AddServices}} {
		results, err := f.run(filepath.Join("../../testing/conformance/testdata", f.name))
		if err != nil {
			t.Fatal(err)
		}
		if len(results) == 0 {
			t.Errorf("%s has no case", f.name)
		}
		for _, r := range results {
			if !r.OK {
				t.Errorf("%s: %s:\nexpected %s\ncame     %s", f.name, r.Name, r.Expected, r.Came)
			}
		}
	}
}

// definitions reads a folder of definitions in the original's format.
func definitions(t testing.TB, dir string) model.Set {
	t.Helper()
	set := model.Set{}
	for _, kind := range []model.Kind{model.KindHardwareType, model.KindImageType, model.KindService, model.KindClusterTemplate} {
		files, err := filepath.Glob(filepath.Join(dir, string(kind), "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			d, err := decode.Definition(kind, b)
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			set.Add(d)
		}
	}
	return set
}

// templateInput returns the input that creates a cluster from a template of a set.
func templateInput(t testing.TB, set model.Set, name string, nodes int) solver.Input {
	t.Helper()
	template, err := model.ResolveTemplate(*set[model.KindClusterTemplate][name].Value.(*model.ClusterTemplate), set)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	in := solver.Input{Template: template, Nodes: nodes, Services: map[string]model.Service{}}
	for n, d := range set[model.KindService] {
		in.Services[n] = *d.Value.(*model.Service)
	}
	for _, d := range set[model.KindHardwareType] {
		in.HardwareTypes = append(in.HardwareTypes, *d.Value.(*model.HardwareType))
	}
	for _, d := range set[model.KindImageType] {
		in.ImageTypes = append(in.ImageTypes, *d.Value.(*model.ImageType))
	}
	return in
}

// TestShippedTemplates solves every template of the original at several sizes. Each result must be
// a layout that satisfies every rule, or a refusal that the definitions explain.
func TestShippedTemplates(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(original.Dir(t), "templates-*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no folders of templates: %v", err)
	}
	// Templates that name missing definitions, with their expected faults.
	faulty := map[string]string{
		"docker-base":             "not compatible",
		"cdap-standalone-docker":  "does not exist",
		"coopr-standalone-docker": "does not exist",
	}
	for _, dir := range dirs {
		set := definitions(t, dir)
		for name, d := range set[model.KindClusterTemplate] {
			template := d.Value.(*model.ClusterTemplate)
			least, most := 1, model.MaxClusterSize
			if s := template.Constraints.Size; s != nil {
				if s.Min != nil {
					least = int(*s.Min)
				}
				if s.Max != nil {
					most = int(*s.Max)
				}
			}
			for _, n := range []int{least, 3, 5, 10, 50, 1000} {
				in := templateInput(t, set, name, n)
				a, err := solver.Solve(context.Background(), in)
				var u *solver.Unsolvable
				var f model.Faults
				switch {
				case errors.As(err, &f):
					want, ok := faulty[name]
					if !ok || !strings.Contains(err.Error(), want) {
						t.Errorf("%s/%s: %v", filepath.Base(dir), name, err)
					}
				case errors.As(err, &u):
					if n >= least && n <= most {
						t.Errorf("%s/%s with %d nodes: %v", filepath.Base(dir), name, n, err)
					} else if len(u.Conflict) != 1 || !strings.HasPrefix(u.Conflict[0].Path, "constraints.size") {
						t.Errorf("%s/%s with %d nodes: the size alone is at fault, not %v", filepath.Base(dir), name, n, u.Conflict)
					}
				case err != nil:
					t.Errorf("%s/%s with %d nodes: %v", filepath.Base(dir), name, n, err)
				default:
					if n < least || n > most {
						t.Errorf("%s/%s with %d nodes: the size does not allow them", filepath.Base(dir), name, n)
					}
					if a.Layout.Nodes() != n {
						t.Errorf("%s/%s: %d nodes instead of %d", filepath.Base(dir), name, a.Layout.Nodes(), n)
					}
					if broken := layoutcase.Broken(&in.Template, a.Services, a.Layout, true); broken != nil {
						t.Errorf("%s/%s with %d nodes: %v", filepath.Base(dir), name, n, broken)
					}
				}
			}
		}
	}
}

// TestKnownExplanations checks the exact words of a few refusals.
func TestKnownExplanations(t *testing.T) {
	one := model.ServiceConstraint{Quantities: model.Quantities{Min: whole(1), Max: whole(1)}}
	base := func() solver.Input {
		in := solver.Input{Provider: "p", Nodes: 3, Wanted: []string{"a", "b"}, Services: layoutcase.Services([]string{"a", "b"})}
		in.HardwareTypes, in.ImageTypes = layoutcase.Types([]string{"h"}, []string{"i"}, "p")
		in.Template.Constraints.Services = map[string]model.ServiceConstraint{"a": one, "b": one}
		return in
	}
	for _, c := range []struct {
		name string
		edit func(in *solver.Input)
		want []string
		hint string
	}{
		{"too many nodes for their services", func(in *solver.Input) {},
			[]string{"constraints.services.a.quantities.max", "constraints.services.b.quantities.max"},
			"with 2 nodes instead of 3 it has a solution"},
		{"must and may not share", func(in *solver.Input) {
			in.Template.Constraints.Layout = model.LayoutConstraints{MustCoexist: [][]string{{"a", "b"}}, CantCoexist: [][]string{{"b", "a"}}}
		}, []string{"constraints.layout.mustcoexist[0]", "constraints.layout.cantcoexist[0]"}, ""},
		{"the hardware asked for", func(in *solver.Input) {
			in.Nodes, in.HardwareType = 2, "h"
			hw, _ := layoutcase.Types([]string{"big"}, nil, "p")
			in.HardwareTypes = append(in.HardwareTypes, hw...)
			in.Template.Constraints.Services["a"] = model.ServiceConstraint{HardwareTypes: []string{"big"}}
		}, []string{"hardwaretype", "constraints.services.a.hardwaretypes"}, ""},
		{"the size", func(in *solver.Input) {
			in.Nodes = 2
			in.Template.Constraints.Size = &model.Size{Min: whole(4)}
		}, []string{"constraints.size.min"}, ""},
	} {
		in := base()
		c.edit(&in)
		_, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if !errors.As(err, &u) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, k := range u.Conflict {
			got = append(got, k.Path)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the conflict is %v, not %v", c.name, got, c.want)
		}
		if c.hint != "" && !slices.Contains(u.Hints, c.hint) {
			t.Errorf("%s: the hints are %q", c.name, u.Hints)
		}
	}
}

// TestEveryFaultAtOnce checks that Solve reports all faults of an input together.
func TestEveryFaultAtOnce(t *testing.T) {
	in := solver.Input{Provider: "p", Nodes: 0, Wanted: []string{"a", "nope", "x"}, Comparator: "best", Services: map[string]model.Service{
		"a": {Base: model.Base{Name: "a"}, Dependencies: model.Dependencies{Conflicts: []string{"x"},
			Install: model.Needs{Requires: []string{"b"}}}},
		"x": {Base: model.Base{Name: "x"}, Dependencies: model.Dependencies{Runtime: model.Needs{Requires: []string{"y"}}}},
		"y": {Base: model.Base{Name: "y"}},
	}}
	in.Template.Compatibility.Services = []string{"a"}
	_, err := solver.Solve(context.Background(), in)
	var f model.Faults
	if !errors.As(err, &f) {
		t.Fatal(err)
	}
	for _, want := range []string{"nodes", "services[1]", "services[2]", "comparator", "hardwaretype", "imagetype",
		"services.a.dependencies.install.requires[0]", "services.a.dependencies.conflicts[0]", "services.x.dependencies.runtime.requires[0]"} {
		if !slices.ContainsFunc(f, func(f *model.Fault) bool { return f.Path == want }) {
			t.Errorf("no fault at %s in:\n%v", want, f)
		}
	}
}

func TestCycle(t *testing.T) {
	needs := func(s string) model.Dependencies {
		return model.Dependencies{Runtime: model.Needs{Requires: []string{s}}}
	}
	in := solver.Input{Provider: "p", Nodes: 1, Wanted: []string{"a", "b", "c"}, Services: map[string]model.Service{
		"a": {Dependencies: needs("b")}, "b": {Dependencies: needs("sea")},
		"c": {Dependencies: model.Dependencies{Provides: []string{"sea"}, Runtime: model.Needs{Uses: []string{"a"}}}},
	}}
	in.HardwareTypes, in.ImageTypes = layoutcase.Types([]string{"h"}, []string{"i"}, "p")
	_, err := solver.Solve(context.Background(), in)
	if err == nil || !strings.Contains(err.Error(), "a → b → c → a") {
		t.Errorf("the cycle is not named: %v", err)
	}
}

func TestBudgetAndContext(t *testing.T) {
	in := layered(40, 40)
	in.Budget = 3
	if _, err := solver.Solve(context.Background(), in); !errors.Is(err, solver.ErrBudget) {
		t.Errorf("a budget of three steps: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	in.Budget = 0
	if _, err := solver.Solve(ctx, in); !errors.Is(err, solver.ErrBudget) || !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// TestParity solves services that exclude each other, on numbers of nodes to which their steps
// cannot add up. The solver must find that out without trying all counts.
func TestParity(t *testing.T) {
	for _, c := range []struct{ services, nodes, step int }{{3, 51, 2}, {7, 51, 2}, {4, 1001, 2}, {5, 1000, 3}} {
		in := exclusive(layered(c.services, c.nodes), 1)
		for s, q := range in.Template.Constraints.Services {
			q.Quantities = model.Quantities{Step: whole(c.step)}
			in.Template.Constraints.Services[s] = q
		}
		_, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if !errors.As(err, &u) || !u.Minimal || len(u.Conflict) != c.services*(c.services-1)/2+c.services {
			t.Errorf("%d services, %d nodes, multiples of %d: %v", c.services, c.nodes, c.step, err)
		}
	}
}
