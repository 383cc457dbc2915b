package solver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
)

// TestLarge solves random inputs that are too large to enumerate sets. Each must end within its
// budget with a layout that satisfies every rule.
func TestLarge(t *testing.T) {
	t.Parallel()
	last := uint64(4)
	if testing.Short() {
		last = 1
	}
	for seed := range last {
		for _, limits := range []bool{true, false} {
			priced := costed(seed, limits)
			roomy := priced
			roomy.Comparator = solver.ComparatorOriginal
			for name, in := range map[string]solver.Input{
				"groups":          grouped(seed, 200, 30, 100, 10000, limits),
				"groups, small":   grouped(seed, 200, 30, 100, 12, limits),
				"40 services":     grouped(seed, 40, 40, 60, 1000, limits),
				"100 services":    grouped(seed, 100, 100, 100, 1000, limits),
				"costs and rooms": priced,
				"rooms":           roomy,
			} {
				a, err := solver.Solve(context.Background(), in)
				if err != nil {
					t.Errorf("%s, seed %d, limits %v: %v", name, seed, limits, err)
				} else if broken := layoutcase.Broken(&in.Template, in.Wanted, a.Layout, true); broken != nil {
					t.Errorf("%s, seed %d, limits %v: %v", name, seed, limits, broken)
				}
			}
		}
	}
}

// costed returns an input with hardware types of several prices and sizes, and with services that
// take resources.
func costed(seed uint64, limits bool) solver.Input {
	in := grouped(seed, 40, 25, 20, 1000, limits)
	r := rand.New(rand.NewPCG(seed, 4))
	in.HardwareTypes = nil
	for h := range 6 {
		in.HardwareTypes = append(in.HardwareTypes,
			model.HardwareType{Base: model.Base{Name: fmt.Sprint("h", h)}, ProviderMap: map[string]map[string]any{
				"p": {"flavor": "x", "cost": fmt.Sprintf("0.%03d", 50*(h+1)+r.IntN(30)), "vcpu": 4 << h, "ram": 8 << h}}})
	}
	for _, n := range in.Wanted {
		s := in.Services[n]
		s.Resources = &model.Resources{VCPU: float64(1+r.IntN(4)) / 2, RAM: float64(r.IntN(4))}
		in.Services[n] = s
	}
	in.Comparator = solver.ComparatorCost
	return in
}
