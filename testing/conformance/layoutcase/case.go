package layoutcase

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// Result is the result of one case.
type Result struct {
	Name     string
	OK       bool
	Expected string
	Came     string
}

type group struct {
	Count    int      `json:"count"`
	Hardware string   `json:"hw"`
	Image    string   `json:"img"`
	Services []string `json:"services"`
}

func layoutOf(groups []group) model.Layout {
	var l model.Layout
	for _, g := range groups {
		l = append(l, model.NodeGroup{Count: g.Count, HardwareType: g.Hardware, ImageType: g.Image,
			Services: slices.Sorted(slices.Values(g.Services))})
	}
	return l
}

// Text returns a layout as text, so that equal layouts have equal texts: counts for each hardware
// type, image type and set of services, in any order.
func Text(l model.Layout) string {
	sum := map[string]int{}
	for _, g := range l {
		s := slices.Sorted(slices.Values(g.Services))
		sum["{"+strings.Join(s, ",")+"} "+g.HardwareType+"/"+g.ImageType] += g.Count
	}
	var lines []string
	for k, n := range sum {
		lines = append(lines, fmt.Sprintf("%d×%s", n, k))
	}
	sort.Strings(lines)
	return strings.Join(lines, " + ")
}

// Types returns hardware and image types with the given names for a provider.
func Types(hardware, images []string, provider string) (hw []model.HardwareType, img []model.ImageType) {
	entry := func(key, name string) map[string]map[string]any {
		return map[string]map[string]any{provider: {key: name}}
	}
	for _, n := range hardware {
		hw = append(hw, model.HardwareType{Base: model.Base{Name: n}, ProviderMap: entry("flavor", n)})
	}
	for _, n := range images {
		img = append(img, model.ImageType{Base: model.Base{Name: n}, ProviderMap: entry("image", n)})
	}
	return hw, img
}

// Services returns plain definitions with the given names.
func Services(names ...[]string) map[string]model.Service {
	out := map[string]model.Service{}
	for _, list := range names {
		for _, n := range list {
			out[n] = model.Service{Base: model.Base{Name: n}}
		}
	}
	return out
}

// Solver runs the cases of a file such as solver-cases.json.
func Solver(path string) ([]Result, error) {
	var file struct {
		Templates map[string]model.ClusterTemplate
		Cases     []struct {
			Name          string
			Template      string
			Services      []string
			HardwareTypes []string
			ImageTypes    []string
			NumMachines   int
			Original      []group
			Drops         []string `json:"originalDropsServices"`
		}
	}
	if err := read(path, &file); err != nil {
		return nil, err
	}
	if len(file.Cases) == 0 {
		return nil, fmt.Errorf("%s: there is no case in it", path)
	}
	var out []Result
	for n, c := range file.Cases {
		t, ok := file.Templates[c.Template]
		var wrong string
		switch {
		case !ok:
			wrong = fmt.Sprintf("there is no template %q in the file", c.Template)
		case len(c.Services) == 0:
			wrong = "it has no \"services\""
		case c.NumMachines < 1:
			wrong = fmt.Sprintf("\"numMachines\" is %d", c.NumMachines)
		}
		if wrong != "" {
			out = append(out, malformed(c.Name, n, wrong))
			continue
		}
		// The types of a case are those left after the original's own choice, so the template's
		// defaults have been applied already.
		t.Defaults.HardwareType, t.Defaults.ImageType = "", ""
		t.Compatibility.HardwareTypes, t.Compatibility.ImageTypes = nil, nil
		in := solver.Input{Template: t, Provider: "p", Wanted: c.Services, Nodes: c.NumMachines, Comparator: solver.ComparatorOriginal,
			Services: Services(c.Services)}
		in.HardwareTypes, in.ImageTypes = Types(c.HardwareTypes, c.ImageTypes, "p")
		found, came := solved(in)
		r := Result{Name: c.Name, Came: came}
		size := t.Constraints.Size
		fits := size == nil || (size.Min == nil || c.NumMachines >= int(*size.Min)) && (size.Max == nil || c.NumMachines <= int(*size.Max))
		switch {
		case c.Original != nil && len(c.Drops) == 0 && fits:
			r.Expected = Text(layoutOf(c.Original))
			r.OK = found != nil && Text(found.Layout) == r.Expected
		case !fits:
			r.Expected = "no layout: the template's size does not allow " + fmt.Sprint(c.NumMachines) + " nodes"
			r.OK = found == nil
		default:
			r.Expected = "a layout with every service, or an explanation"
			explained(in, found, &r)
		}
		out = append(out, r)
	}
	return out, nil
}

// AddServices runs the cases of a file such as add-services-cases.json.
func AddServices(path string) ([]Result, error) {
	var file struct {
		Cases []struct {
			Name     string
			Template model.ClusterTemplate
			Nodes    []group
			Add      []string
			Original []group
		}
	}
	if err := read(path, &file); err != nil {
		return nil, err
	}
	if len(file.Cases) == 0 {
		return nil, fmt.Errorf("%s: there is no case in it", path)
	}
	var out []Result
	for n, c := range file.Cases {
		if len(c.Nodes) == 0 || len(c.Add) == 0 {
			out = append(out, malformed(c.Name, n, "it has no \"nodes\", or nothing to \"add\""))
			continue
		}
		in := solver.Input{Template: c.Template, Provider: "p", Comparator: solver.ComparatorOriginal,
			Change: solver.Change{Kind: solver.AddServices, Services: c.Add}}
		var hw, img, services []string
		for _, g := range c.Nodes {
			hw, img, services = append(hw, g.Hardware), append(img, g.Image), append(services, g.Services...)
			for range g.Count {
				n := len(in.Existing)
				in.Existing = append(in.Existing, solver.ExistingNode{ID: fmt.Sprint("n", n), Number: 1000 + n, HardwareType: g.Hardware,
					ImageType: g.Image, Services: g.Services})
			}
		}
		slices.Sort(hw)
		slices.Sort(img)
		in.HardwareTypes, in.ImageTypes = Types(slices.Compact(hw), slices.Compact(img), "p")
		in.Services = Services(services, c.Add)
		found, came := solved(in)
		r := Result{Name: c.Name, Came: came}
		placed := map[string]bool{}
		for _, g := range c.Original {
			for _, s := range g.Services {
				placed[s] = true
			}
		}
		dropped := slices.ContainsFunc(c.Add, func(s string) bool { return !placed[s] })
		if c.Original != nil && !dropped {
			r.Expected = Text(layoutOf(c.Original))
			r.OK = found != nil && Text(found.Layout) == r.Expected
		} else {
			r.Expected = "a layout with every service, or an explanation"
			explained(in, found, &r)
		}
		out = append(out, r)
	}
	return out, nil
}

// solved calls the solver. The answer is nil if there is no layout.
func solved(in solver.Input) (*solver.Answer, string) {
	a, err := solver.Solve(context.Background(), in)
	if err != nil {
		return nil, "no layout: " + err.Error()
	}
	return a, Text(a.Layout)
}

// explained checks that an answer satisfies every rule, or that a refusal is right as far as an
// exhaustive search can tell, and records the reason.
func explained(in solver.Input, a *solver.Answer, r *Result) {
	if a != nil {
		broken := Broken(&in.Template, a.Services, a.Layout, len(in.Existing) == 0)
		if r.OK = len(broken) == 0; !r.OK {
			r.Came += ", which breaks rules: " + strings.Join(broken, "; ")
		}
		return
	}
	_, err := solver.Solve(context.Background(), in)
	var u *solver.Unsolvable
	var f model.Faults
	r.OK = errors.As(err, &u) && len(u.Conflict) > 0 || errors.As(err, &f)
	if l, ok := exists(&in); ok {
		r.OK, r.Expected = false, "a layout: there is "+Text(l)
	}
}

// malformed is a case that cannot be run.
func malformed(name string, n int, wrong string) Result {
	if name == "" {
		name = fmt.Sprintf("case %d", n)
	}
	return Result{Name: name, Expected: "a case", Came: wrong}
}

func read(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	err = json.Unmarshal(b, into)
	if t := new(json.UnmarshalTypeError); errors.As(err, &t) {
		return fmt.Errorf("%s: %s is of type %s: this is not a file of such cases", path, cmp.Or(t.Field, "the whole"), t.Value)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
