package solver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

func whole(n int) *model.Int { i := model.Int(n); return &i }

// randomInput returns a small input that may use every kind of constraint.
func randomInput(r *rand.Rand) solver.Input {
	chance := func(p float64) bool { return r.Float64() < p }
	k := 1 + r.IntN(5)
	in := solver.Input{Provider: "p", Services: map[string]model.Service{}, Nodes: 1 + r.IntN(5)}
	names := []string{"f", "b", "d", "a", "c", "e", "h"}
	in.Wanted = slices.Clone(names[:k])
	t := &in.Template
	t.Name = "t"
	for _, n := range names {
		in.Services[n] = model.Service{Base: model.Base{Name: n}}
	}
	subset := func(from []string, least int) []string {
		out := slices.Clone(from)
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out[:least+r.IntN(len(out)-least+1)]
	}
	pool := in.Wanted
	if chance(0.3) {
		pool = names
	}
	for range r.IntN(3) {
		if len(pool) > 1 && chance(0.5) {
			t.Constraints.Layout.MustCoexist = append(t.Constraints.Layout.MustCoexist, subset(pool, 2)[:2])
		}
	}
	for range r.IntN(5) {
		if s := subset(pool, 1); len(s) > 1 || chance(0.03) {
			t.Constraints.Layout.CantCoexist = append(t.Constraints.Layout.CantCoexist, s[:min(len(s), 2+r.IntN(2))])
		}
	}
	hw, img := []string{"h1", "h2", "h3"}[:1+r.IntN(2)+r.IntN(2)], []string{"i1", "i2"}[:1+r.IntN(10)/8]
	costs, rooms := chance(0.5), chance(0.3)
	for _, h := range hw {
		e := map[string]any{"flavor": h}
		if costs {
			e["cost"] = []any{"0.1", "0.25", 0.3, "1"}[r.IntN(4)]
		}
		if rooms && chance(0.8) {
			e["vcpu"] = []any{"2", 3.0, "4", "5.5"}[r.IntN(4)]
		}
		if rooms && chance(0.3) {
			e["ram"] = strconv.Itoa(1 + r.IntN(4))
		}
		in.HardwareTypes = append(in.HardwareTypes, model.HardwareType{Base: model.Base{Name: h}, ProviderMap: map[string]map[string]any{"p": e}})
	}
	for _, i := range img {
		in.ImageTypes = append(
			in.ImageTypes,
			model.ImageType{Base: model.Base{Name: i}, ProviderMap: map[string]map[string]any{"p": {"image": i}}},
		)
	}
	t.Constraints.Services = map[string]model.ServiceConstraint{}
	dense := r.Float64()
	for _, n := range in.Wanted {
		s := in.Services[n]
		if rooms && chance(0.6) {
			s.Resources = &model.Resources{VCPU: []float64{0.5, 1, 1.5, 2}[r.IntN(4)]}
			if chance(0.3) {
				s.Resources.RAM = 1
			}
		}
		in.Services[n] = s
		if !chance(0.3 + 0.7*dense) {
			continue
		}
		var c model.ServiceConstraint
		if chance(0.2) {
			c.HardwareTypes = subset(append(slices.Clone(hw), "hx"), 1)
		}
		if chance(0.1) {
			c.ImageTypes = subset(img, 1)
		}
		q := &c.Quantities
		if chance(0.4) {
			q.Min = whole(r.IntN(in.Nodes + 1))
		}
		if chance(0.4) {
			q.Max = whole(1 + r.IntN(in.Nodes))
		}
		if chance(0.12) {
			q.Step = whole(1 + r.IntN(3))
		}
		q.Odd = chance(0.12)
		if chance(0.15) {
			q.Ratio = &model.Ratio{}
			shares := []json.Number{"0.2", "0.25", "0.3", "0.34", "0.5", "0.67", "0.8", "1"}
			if chance(0.7) {
				q.Ratio.Min = shares[r.IntN(4)]
			}
			if chance(0.7) {
				q.Ratio.Max = shares[2+r.IntN(6)]
			}
		}
		if chance(0.1) {
			c.Requires = append(c.Requires, model.Requires{Service: names[r.IntN(k+1)], Min: r.IntN(4)})
		}
		t.Constraints.Services[n] = c
	}
	if chance(0.1) {
		t.Constraints.Size = &model.Size{Min: whole(1 + r.IntN(5))}
		if chance(0.5) {
			t.Constraints.Size.Max = whole(int(*t.Constraints.Size.Min) + r.IntN(3))
		}
	}
	if chance(0.1) {
		in.HardwareType = hw[r.IntN(len(hw))]
	}
	if chance(0.1) {
		t.Compatibility.ImageTypes = subset(img, 1)
	}
	if chance(0.1) {
		t.Compatibility.HardwareTypes = subset(hw, 1)
	}
	if chance(0.2) {
		t.Preferences.HardwareTypes = subset(hw, 0)
		t.Preferences.ImageTypes = subset(img, 0)
	}
	if chance(0.15) {
		in.Zones = []string{"z1", "z2", "z3"}[:1+r.IntN(3)]
		for _, n := range in.Wanted {
			if chance(0.6) {
				s := in.Services[n]
				s.Spread = "zone"
				in.Services[n] = s
			}
		}
	}
	if !costs || chance(0.5) {
		in.Comparator = solver.ComparatorOriginal
	}
	if chance(0.1) {
		in.Hosts = []string{"m1", "m2"}[:1+r.IntN(2)]
		for _, n := range in.Wanted {
			if s := in.Services[n]; s.Spread == "" && chance(0.6) {
				s.Spread = "host"
				in.Services[n] = s
			}
		}
	}
	if rooms && chance(0.2) {
		in.HardwareTypes[0].ProviderMap["p"]["disk"] = 1.5
		s := in.Services[in.Wanted[0]]
		s.Resources = &model.Resources{Disk: []float64{0.75, 1, 2}[r.IntN(3)]}
		in.Services[in.Wanted[0]] = s
	}
	if chance(0.06) {
		t.Defaults.HardwareType = hw[r.IntN(len(hw))]
	}
	if chance(0.06) {
		in.ImageType = img[r.IntN(len(img))]
	}
	if chance(0.15) { // a plugin's comparator
		in.Comparator = "mine"
		in.Ranking = &model.Ranking{Comparator: "mine", Worth: map[string]int64{}}
		for _, n := range in.Wanted {
			if chance(0.5) {
				in.Ranking.Worth[n] = 1 + r.Int64N(4)
			}
		}
		for _, h := range subset(hw, 0) {
			for _, i := range img {
				in.Ranking.Kinds = append(in.Ranking.Kinds, model.RankedKind{HardwareType: h, ImageType: i})
			}
		}
	}
	return in
}

// seeds returns the range of seeds of a random test, and logs it. SOLVER_SEED runs a single seed,
// for example one that failed. SOLVER_FROM sets the first seed, so that CI tests other instances
// each time and more of them (make oracle), divided by SOLVER_PART. Elsewhere there are few seeds, which keeps `make test`
// short.
func seeds(t *testing.T, n uint64) (uint64, uint64) {
	t.Helper()
	number := func(name string, otherwise uint64) uint64 {
		s := os.Getenv(name)
		if s == "" {
			return otherwise
		}
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return v
	}
	if one := number("SOLVER_SEED", 0); one > 0 {
		return one, one + 1
	}
	if os.Getenv("SOLVER_FROM") == "" || testing.Short() {
		n /= 20
	}
	n = max(1, n/max(1, number("SOLVER_PART", 1)))
	from := number("SOLVER_FROM", 1)
	t.Logf("seeds %d to %d: SOLVER_SEED=N runs one of them alone", from, from+n-1)
	return from, from + n
}

func dump(in solver.Input) string {
	b, _ := json.MarshalIndent(struct {
		Wanted        []string
		Nodes         int
		HW, Img, Comp string
		Constraints   model.Constraints
		Compat        model.Compatibility
		Prefs         model.Preferences
		Hardware      []model.HardwareType
		Images        []model.ImageType
		Services      map[string]model.Service
		Zones         []string
		Exclude       []model.Layout
	}{in.Wanted, in.Nodes, in.HardwareType, in.ImageType, in.Comparator, in.Template.Constraints, in.Template.Compatibility, in.Template.Preferences, in.HardwareTypes, in.ImageTypes, in.Services, in.Zones, in.Exclude}, "", " ")
	return string(b)
}

func TestAgainstOracle(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 20000)
	solvable, not, skipped := 0, 0, 0
	for seed := from; seed < to; seed++ {
		in := randomInput(rand.New(rand.NewPCG(seed, 1)))
		comparator := in.Comparator
		if comparator == "" {
			comparator = solver.ComparatorCost
		}
		for round := range 3 {
			a, err := solver.Solve(context.Background(), in)
			var u *solver.Unsolvable
			var f model.Faults
			if errors.As(err, &f) {
				skipped++ // no type is left, which is reported before solving
				break
			}
			if err != nil && !errors.As(err, &u) {
				t.Fatalf("seed %d round %d: %v\n%s", seed, round, err, dump(in))
			}
			want, found, tooBig := oracle(in, comparator)
			if tooBig {
				skipped++
				break
			}
			switch {
			case found && a == nil:
				t.Fatalf("seed %d round %d: there is a layout, %s, but: %v\n%s", seed, round, canonical(want), err, dump(in))
			case !found && a != nil:
				t.Fatalf("seed %d round %d: %s is not a layout\n%s", seed, round, canonical(a.Layout), dump(in))
			case found && !slices.EqualFunc(a.Layout, want, func(x, y model.NodeGroup) bool {
				return x.Count == y.Count && x.HardwareType == y.HardwareType && x.ImageType == y.ImageType && slices.Equal(x.Services, y.Services)
			}):
				t.Fatalf("seed %d round %d:\n got %v\nwant %v\n%s", seed, round, a.Layout, want, dump(in))
			}
			if found {
				solvable++
			} else {
				not++
				break
			}
			// Solve again without the layout just found.
			in.Exclude = append(in.Exclude, a.Layout)
			if seed%7 != 0 {
				break
			}
		}
	}
	t.Logf("%d with a layout, %d without, %d left out", solvable, not, skipped)
	if from+1 < to && (solvable < int(to-from)/5 || not < int(to-from)/20) {
		t.Errorf("the random inputs are one-sided: %d with a layout, %d without", solvable, not)
	}
}

// without returns the input without one named constraint. Services keep an entry, so that none of
// them loses its status as a constrained service.
func without(in solver.Input, path string) solver.Input {
	b, _ := json.Marshal(in.Template)
	var t model.ClusterTemplate
	if err := json.Unmarshal(b, &t); err != nil {
		panic(err)
	}
	if t.Constraints.Services == nil {
		t.Constraints.Services = map[string]model.ServiceConstraint{}
	}
	for _, set := range slices.Concat(t.Constraints.Layout.MustCoexist, t.Constraints.Layout.CantCoexist) {
		for _, s := range set {
			if _, ok := t.Constraints.Services[s]; !ok {
				t.Constraints.Services[s] = model.ServiceConstraint{}
			}
		}
	}
	services := map[string]model.Service{}
	for n, s := range in.Services {
		services[n] = s
	}
	in.Services, in.Template = services, t
	c := &in.Template.Constraints
	index := func(p string) int {
		i, err := strconv.Atoi(strings.TrimSuffix(p[strings.LastIndex(p, "[")+1:], "]"))
		if err != nil {
			panic(path)
		}
		return i
	}
	parts := strings.Split(path, ".")
	switch {
	case path == "constraints.size.min":
		c.Size.Min = nil
	case path == "constraints.size.max":
		c.Size.Max = nil
	case path == "compatibility.hardwaretypes":
		in.Template.Compatibility.HardwareTypes = nil
	case path == "compatibility.imagetypes":
		in.Template.Compatibility.ImageTypes = nil
	case path == "hardwaretype", path == "defaults.hardwaretype":
		in.HardwareType, in.Template.Defaults.HardwareType = "", ""
	case path == "imagetype", path == "defaults.imagetype":
		in.ImageType, in.Template.Defaults.ImageType = "", ""
	case strings.HasPrefix(path, "constraints.layout.mustcoexist"):
		i := index(path)
		c.Layout.MustCoexist[i] = nil
	case strings.HasPrefix(path, "constraints.layout.cantcoexist"):
		c.Layout.CantCoexist[index(path)] = nil
	case strings.HasPrefix(path, "exclude"):
		i := index(path)
		in.Exclude = slices.Concat(in.Exclude[:i], in.Exclude[i+1:])
	case parts[0] == "services":
		s := in.Services[parts[1]]
		if parts[2] == "resources" {
			s.Resources = nil
		} else {
			s.Spread = ""
		}
		in.Services[parts[1]] = s
	case strings.HasPrefix(path, "constraints.services."):
		s := c.Services[parts[2]]
		switch rest := strings.Join(parts[3:], "."); {
		case rest == "hardwaretypes":
			s.HardwareTypes = nil
		case rest == "imagetypes":
			s.ImageTypes = nil
		case rest == "quantities.min":
			s.Quantities.Min = nil
		case rest == "quantities.max":
			s.Quantities.Max = nil
		case rest == "quantities.step":
			s.Quantities.Step = nil
		case rest == "quantities.odd":
			s.Quantities.Odd = false
		case rest == "quantities.ratio.min":
			s.Quantities.Ratio.Min = ""
		case rest == "quantities.ratio.max":
			s.Quantities.Ratio.Max = ""
		case strings.HasPrefix(rest, "requires"):
			s.Requires[index(rest)].Min = 0
		default:
			panic(path)
		}
		c.Services[parts[2]] = s
	default:
		panic(path)
	}
	return in
}

func TestExplanationsAreMinimal(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 6000)
	explained := 0
	for seed := from; seed < to; seed++ {
		in := randomInput(rand.New(rand.NewPCG(seed, 2)))
		_, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if !errors.As(err, &u) {
			continue
		}
		if _, _, tooBig := oracle(in, solver.ComparatorOriginal); tooBig {
			continue
		}
		explained++
		if !u.Minimal {
			t.Fatalf("seed %d: %v is not minimal", seed, u)
		}
		for _, c := range u.Conflict {
			if c.Words == "" {
				t.Fatalf("seed %d: %s has no words", seed, c.Path)
			}
			less := without(in, c.Path)
			if _, found, tooBig := oracle(less, solver.ComparatorOriginal); !found && !tooBig {
				// There may be other conflicts besides this one. Then the constraints of this
				// conflict alone must be solvable without c.
				if alone := only(in, u.Conflict, c.Path); !alone {
					t.Fatalf("seed %d: the conflict is none the less without %s\n%v\n%s", seed, c.Path, u, dump(in))
				}
			}
		}
		if only(in, u.Conflict, "") {
			t.Fatalf("seed %d: the constraints of the conflict can hold together\n%v\n%s", seed, u, dump(in))
		}
	}
	t.Logf("%d explanations", explained)
	if from+1 < to && explained < int(to-from)/40 {
		t.Errorf("only %d inputs without a layout", explained)
	}
}

// only reports whether the input has a layout if, of all its constraints, it keeps only those of
// the conflict, without the constraint at path but.
func only(in solver.Input, conflict []solver.Constraint, but string) bool {
	for _, path := range paths(in) {
		keep := slices.ContainsFunc(conflict, func(c solver.Constraint) bool { return c.Path == path })
		if !keep || path == but {
			in = without(in, path)
		}
	}
	_, found, tooBig := oracle(in, solver.ComparatorOriginal)
	return found || tooBig && but != ""
}

// paths returns every constraint of an input. Excluded layouts come last first, so that they can be
// removed one after the other.
func paths(in solver.Input) []string {
	var out []string
	c := in.Template.Constraints
	if c.Size != nil {
		out = append(out, "constraints.size.min", "constraints.size.max")
	}
	for i := range in.Exclude {
		out = append(out, fmt.Sprintf("exclude[%d]", len(in.Exclude)-1-i))
	}
	for i := range c.Layout.MustCoexist {
		out = append(out, fmt.Sprintf("constraints.layout.mustcoexist[%d]", i))
	}
	for i := range c.Layout.CantCoexist {
		out = append(out, fmt.Sprintf("constraints.layout.cantcoexist[%d]", i))
	}
	out = append(out, "compatibility.hardwaretypes", "compatibility.imagetypes")
	for path, asked := range map[string]string{"hardwaretype": in.HardwareType, "imagetype": in.ImageType} {
		if asked == "" {
			path = "defaults." + path
		}
		out = append(out, path)
	}
	for n, s := range c.Services {
		at := "constraints.services." + n
		out = append(
			out,
			at+".hardwaretypes",
			at+".imagetypes",
			at+".quantities.min",
			at+".quantities.max",
			at+".quantities.step",
			at+".quantities.odd",
		)
		if s.Quantities.Ratio != nil {
			out = append(out, at+".quantities.ratio.min", at+".quantities.ratio.max")
		}
		for i := range s.Requires {
			out = append(out, fmt.Sprintf("%s.requires[%d]", at, i))
		}
	}
	for n := range in.Services {
		out = append(out, "services."+n+".resources", "services."+n+".spread")
	}
	return out
}
