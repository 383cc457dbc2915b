package solver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
)

// TestOrderDoesNotMatter shuffles every list whose order has no meaning. The answer, or the
// conflict of the refusal, must stay the same.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 4000)
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(seed, 21))
		in := randomInput(r)
		if seed%2 == 0 {
			ok := false
			if in, ok = randomOperation(r); !ok {
				continue
			}
		}
		want := outcome(in)
		for range 3 {
			o := in
			o.Wanted, o.HardwareTypes, o.ImageTypes = shuffled(r, in.Wanted), shuffled(r, in.HardwareTypes), shuffled(r, in.ImageTypes)
			o.Existing, o.Zones, o.Hosts = shuffled(r, in.Existing), shuffled(r, in.Zones), shuffled(r, in.Hosts)
			o.Change.Services = shuffled(r, in.Change.Services)
			for i := range o.Existing {
				o.Existing[i].Services = shuffled(r, o.Existing[i].Services)
			}
			o.Services = map[string]model.Service{} // a new map has another order
			maps.Copy(o.Services, in.Services)
			o.Template.Constraints.Services = maps.Clone(in.Template.Constraints.Services)
			l := &o.Template.Constraints.Layout
			l.MustCoexist, l.CantCoexist = slices.Clone(l.MustCoexist), slices.Clone(l.CantCoexist)
			for _, sets := range [][][]string{l.MustCoexist, l.CantCoexist} {
				for i := range sets {
					sets[i] = shuffled(r, sets[i])
				}
			}
			for i, x := range o.Exclude {
				o.Exclude = slices.Clone(o.Exclude)
				o.Exclude[i] = shuffled(r, x)
			}
			if got := outcome(o); got != want {
				t.Fatalf("seed %d:\n got %s\nwant %s\n%s", seed, got, want, dumpChange(in))
			}
		}
	}
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// outcome returns the text of a whole answer or refusal.
func outcome(in solver.Input) string {
	a, err := solver.Solve(context.Background(), in)
	if err != nil {
		return err.Error()
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestSpreadAgainstOracle solves sets of services for which an even spread over zones often rules
// out the preferred layout.
func TestSpreadAgainstOracle(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 1500)
	moved, refused := 0, 0
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(seed, 22))
		in := solver.Input{Provider: "p", Nodes: 3 + r.IntN(3), Comparator: solver.ComparatorOriginal, Services: map[string]model.Service{}}
		in.HardwareTypes = []model.HardwareType{{Base: model.Base{Name: "h"}, ProviderMap: map[string]map[string]any{"p": {"flavor": "h"}}}}
		in.ImageTypes = []model.ImageType{{Base: model.Base{Name: "i"}, ProviderMap: map[string]map[string]any{"p": {"image": "i"}}}}
		in.Template.Constraints.Services = map[string]model.ServiceConstraint{}
		in.Wanted = []string{"a", "b", "c", "d"}[:3+r.IntN(2)]
		for _, s := range in.Wanted {
			in.Services[s] = model.Service{Base: model.Base{Name: s}, Spread: "zone"}
			n := 2 - r.IntN(5)/4
			in.Template.Constraints.Services[s] = model.ServiceConstraint{Quantities: model.Quantities{Min: whole(n),
				Max: whole(n + int(seed%2)*r.IntN(3))}}
		}
		in.Template.Constraints.Layout.CantCoexist = [][]string{in.Wanted[:3]}
		in.Zones = []string{"z1", "z2", "z3"}[:2+r.IntN(6)/5]
		free := in
		free.Zones = nil
		before, _ := solver.Solve(context.Background(), free)
		a, err := solver.Solve(context.Background(), in)
		want, found, tooBig := oracle(in, solver.ComparatorOriginal)
		if tooBig {
			continue
		}
		if found != (a != nil) || found && !same(want, a.Layout) {
			t.Fatalf("seed %d: %v, %v, by enumeration %v\n%s", seed, a, err, want, dump(in))
		}
		switch {
		case a == nil && before != nil:
			refused++
		case a != nil && !same(a.Layout, before.Layout):
			moved++
		}
		if a == nil {
			continue
		}
		per := map[string]map[string]int{}
		for _, p := range a.Placement {
			for _, s := range a.Layout[p.Group].Services {
				if per[s] == nil {
					per[s] = map[string]int{}
				}
				per[s][p.Zone] += p.Count
			}
		}
		for _, s := range in.Wanted {
			low, high, sum := 1<<20, 0, 0
			for _, z := range in.Zones {
				low, high, sum = min(low, per[s][z]), max(high, per[s][z]), sum+per[s][z]
			}
			if high-low > 1 || sum == 0 {
				t.Fatalf("seed %d: %s is spread as %v", seed, s, per[s])
			}
		}
	}
	t.Logf("the spread changed %d layouts and refused %d", moved, refused)
	if to-from >= 600 && (moved < 5 || refused < 5) {
		t.Error("the spread hardly mattered")
	}
}

// FuzzSolve decodes any template, as the API does or, if the API refuses it, as plain JSON. Every
// operation must end, without a panic, without too many nodes and without a broken rule.
func FuzzSolve(f *testing.F) {
	f.Add([]byte(`{"constraints":{"layout":{"cantcoexist":[["a","b"]],"mustcoexist":[["a","c"]]},"services":{"a":{"quantities":{"min":1,`+
		`"max":"3","odd":true}}},"size":{"min":"2"}}}`), uint8(4), uint8(7), uint8(0))
	f.Add([]byte(`{"constraints":{"services":{"a":{"quantities":{"stepSize":2,"step":2,"ratio":{"min":0.5,"max":"0.7"}}},`+
		`"b":{"requires":[{"service":"a","min":2}]}}}}`), uint8(9), uint8(3), uint8(1))
	f.Add([]byte(`{"constraints":{"layout":{"cantcoexist":[["a","b"]]},"services":{"a":{"quantities":{"step":4000000000,"odd":true}},`+
		`"b":{"quantities":{"step":3999999999}}}}}`), uint8(5), uint8(3), uint8(2))
	f.Add([]byte(`{"preferences":{"hardwaretypes":["h2"]},"compatibility":{"services":["a"]},"defaults":{"services":["a","b"]}}`), uint8(0),
		uint8(0), uint8(3))
	f.Add([]byte("name: t\ndefaults: {services: [a, b], provider: p}\nconstraints:\n  services: {a: {quantities: {max: 1}}, c: "+
		"{hardwaretypes: [h1]}}\n"), uint8(6), uint8(15), uint8(4))
	f.Fuzz(func(t *testing.T, template []byte, nodes, services, change uint8) {
		in := solver.Input{Provider: "p", Nodes: int(nodes), Budget: 200_000, Services: map[string]model.Service{}, Zones: []string{"x", "y"}}
		if d, err := decode.Definition(model.KindClusterTemplate, template); err == nil {
			in.Template = *d.Value.(*model.ClusterTemplate)
		} else if json.Unmarshal(template, &in.Template) != nil {
			return
		}
		names := []string{"a", "b", "c", "d"}
		for i, s := range names {
			in.Services[s] = model.Service{Base: model.Base{Name: s}}
			if services>>i&1 != 0 {
				in.Wanted = append(in.Wanted, s)
			}
		}
		in.Services["d"] = model.Service{Base: model.Base{Name: "d"}, Spread: "zone", Resources: &model.Resources{RAM: 0.5}}
		for i := range 2 {
			n := fmt.Sprint("h", i+1)
			in.HardwareTypes = append(in.HardwareTypes,
				model.HardwareType{Base: model.Base{Name: n}, ProviderMap: map[string]map[string]any{"p": {"flavor": n, "cost": i, "ram": 1}}})
		}
		in.ImageTypes = []model.ImageType{{Base: model.Base{Name: "i"}, ProviderMap: map[string]map[string]any{"p": {"image": "i"}}}}
		a, err := solver.Solve(context.Background(), in)
		if err == nil {
			if a.Layout.Nodes() != int(nodes) {
				t.Errorf("%d nodes instead of %d", a.Layout.Nodes(), nodes)
			}
			if broken := layoutcase.Broken(&in.Template, a.Services, a.Layout, true); broken != nil {
				t.Errorf("%v breaks: %v", a.Layout, broken)
			}
		}
		// The same template for an existing cluster, which may not fit it.
		in.Change.Kind = []solver.ChangeKind{solver.AddServices, solver.Grow, solver.Shrink, solver.RemoveServices, solver.Replace,
			solver.Retemplate}[change%6]
		for i := range int(nodes) % 16 {
			in.Existing = append(in.Existing, solver.ExistingNode{ID: fmt.Sprint(i), Number: i, HardwareType: "h1", ImageType: "i",
				Services: names[i%2 : 1+i%3], Zone: []string{"x", "y", "z"}[i%3]})
		}
		in.Change.Nodes, in.Change.Services, in.Change.Victims = int(change>>3)%5, in.Wanted, nil
		if in.Change.Kind == solver.Replace {
			in.Change.Victims = []string{"0"}
		}
		in.Wanted, in.Nodes = nil, 0
		if a, err := solver.Solve(context.Background(), in); err == nil {
			if broken := layoutcase.Broken(&in.Template, a.Services, a.Layout, false); broken != nil {
				t.Errorf("%s: %v breaks: %v", in.Change.Kind, a.Layout, broken)
			}
		}
	})
}
