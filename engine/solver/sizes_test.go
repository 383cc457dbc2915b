package solver_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// TestSizesSayWhatSolveSays splits the ranges of sizes again. For every number of nodes the range
// must agree with the result of Solve.
func TestSizesSayWhatSolveSays(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 400)
	ranges, sizes := 0, 0
	for seed := from; seed < to; seed++ {
		in := randomInput(rand.New(rand.NewPCG(seed, 41)))
		table, err := solver.Sizes(context.Background(), in, 1, 14)
		if faults := (model.Faults{}); errors.As(err, &faults) {
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		next, smallest := 1, 0
		for _, r := range table.Sizes {
			ranges++
			if r.From != next || r.To < r.From {
				t.Fatalf("seed %d: sizes %d to %d come after %d", seed, r.From, r.To, next-1)
			}
			for n := r.From; n <= r.To; n++ {
				sizes++
				in.Nodes = n
				a, err := solver.Solve(context.Background(), in)
				u := new(solver.Unsolvable)
				switch {
				case errors.As(err, &u):
					if len(r.Layout) > 0 || len(u.Conflict) != len(r.Conflict) || u.Conflict[0].Path != r.Conflict[0].Path {
						t.Fatalf("seed %d, %d nodes: %v, not %v\n%s", seed, n, u, r, dump(in))
					}
					continue
				case err != nil:
					t.Fatalf("seed %d, %d nodes: %v", seed, n, err)
				}
				if smallest == 0 {
					smallest = n
				}
				var l model.Layout
				for _, g := range r.Layout {
					l = append(l, model.NodeGroup{Count: g.From + (g.To-g.From)*(n-r.From)/max(1, r.To-r.From), HardwareType: g.HardwareType,
						ImageType: g.ImageType, Services: g.Services})
				}
				if fmt.Sprint(l) != fmt.Sprint(a.Layout) || table.Comparator != a.Comparator {
					t.Fatalf("seed %d, %d nodes: %v by %s, not %v\n%s", seed, n, l, table.Comparator, a.Layout, dump(in))
				}
				if (a.Cost == nil) != (r.Cost == nil) {
					t.Fatalf("seed %d, %d nodes: cost %v, %v", seed, n, a.Cost, r.Cost)
				}
				if a.Cost != nil {
					low, _ := new(big.Rat).SetString(r.Cost.From.PerHour)
					high, _ := new(big.Rat).SetString(r.Cost.To.PerHour)
					got, _ := new(big.Rat).SetString(a.Cost.PerHour)
					want := new(big.Rat).Sub(high, low)
					want.Mul(want, big.NewRat(int64(n-r.From), int64(max(1, r.To-r.From))))
					if want.Add(want, low).Cmp(got) != 0 {
						t.Fatalf("seed %d, %d nodes: costs %s, not %s", seed, n, got, want)
					}
				}
			}
			next = r.To + 1
		}
		if next != 15 {
			t.Fatalf("seed %d: the table ends with %d", seed, next-1)
		}
		if n, err := solver.SmallestSize(context.Background(), in, 1, 14); err != nil || n != smallest {
			t.Fatalf("seed %d: the smallest is %d, not %d: %v", seed, n, smallest, err)
		}
	}
	t.Logf("%d sizes in %d ranges", sizes, ranges)
}
