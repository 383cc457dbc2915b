package solver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// countingProblem returns a problem with given node layouts in the order of preference, and with
// bounds on each service's number of nodes that at least one vector of counts satisfies. Other
// solvers were measured with problems of this shape.
func countingProblem(seed uint64, layouts, services int, nodes int64, steps bool) *problem {
	r := rand.New(rand.NewPCG(seed, 9))
	p := &problem{}
	c := &class{nodes: nodes, listed: []set{}, kinds: make([]kind, 1)}
	for range layouts {
		var s set
		for range 1 + r.IntN(max(1, services/3)) {
			s.add(r.IntN(services))
		}
		if !slices.Contains(c.listed, s) {
			c.listed = append(c.listed, s)
		}
	}
	slices.SortStableFunc(c.listed, func(a, b set) int { return b.size() - a.size() })
	hidden := make([]int64, len(c.listed))
	for range min(nodes, 1000) {
		hidden[r.IntN(len(hidden))] += nodes / min(nodes, 1000)
	}
	hidden[0] += nodes - (nodes/min(nodes, 1000))*min(nodes, 1000)
	for i := range services {
		n := int64(0)
		for l, s := range c.listed {
			if s.has(i) {
				n += hidden[l]
			}
		}
		slack := func() int64 { return r.Int64N(nodes/10 + 2) }
		d := domain{0, nodes, 1, 0}
		switch r.IntN(4) {
		case 0:
			d.lo = max(0, n-slack())
		case 1:
			d.hi = min(nodes, n+slack())
		case 2:
			d.lo, d.hi = max(0, n-slack()), min(nodes, n+slack())
		}
		if steps && r.IntN(20) == 0 {
			d.mod = 2 + r.Int64N(2)
			d.rem = n % d.mod
		}
		p.domains = append(p.domains, d)
		p.weight = append(p.weight, 1)
	}
	p.classes = []*class{c}
	p.prepare()
	return p
}

func solveCounting(p *problem) ([]counted, verdict, *meter) {
	m := newMeter(context.Background(), 0)
	out, _, v := preferred(p, m, nil, func(a, b *column) int { return 0 })
	return out, v, m
}

// TestCountingAgainstOracle compares the solver with plain enumeration.
func TestCountingAgainstOracle(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := countingProblem(seed, 1+r.IntN(6), 1+r.IntN(6), 1+r.Int64N(9), true)
		if seed%3 == 0 { // may be infeasible
			for i := range p.domains {
				d := &p.domains[i]
				d.lo, d.hi = r.Int64N(4), 2+r.Int64N(8)
			}
			p.prepare()
		}
		c := p.classes[0]
		n := make([]int64, len(c.listed))
		var want []int64
		var walk func(at int, left int64) bool
		walk = func(at int, left int64) bool {
			if at == len(n) {
				if left > 0 {
					return false
				}
				for i, d := range p.domains {
					sum := int64(0)
					for l, s := range c.listed {
						if s.has(i) {
							sum += n[l]
						}
					}
					if !d.has(sum) {
						return false
					}
				}
				want = slices.Clone(n)
				return true
			}
			for k := left; k >= 0; k-- {
				n[at] = k
				if walk(at+1, left-k) {
					return true
				}
			}
			n[at] = 0
			return false
		}
		walk(0, c.nodes)
		out, v, m := solveCounting(p)
		if v == unknown {
			t.Fatalf("seed %d: %v", seed, m.err)
		}
		if (v == yes) != (want != nil) {
			t.Fatalf("seed %d: a solution: %v, by enumeration %v", seed, v == yes, want)
		}
		if v == yes {
			got := make([]int64, len(c.listed))
			for _, o := range out {
				got[slices.Index(c.listed, o.items)] += o.n
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %v instead of %v", seed, got, want)
			}
		}
	}
}

// TestCountingLarge checks that every large random instance is solved within the budget.
func TestCountingLarge(t *testing.T) {
	for _, n := range []int64{10, 100, 1000, 10000} {
		for seed := range uint64(40) {
			p := countingProblem(seed, 10+int(seed), 10+int(seed)*3/4, n, seed%2 == 0)
			_, v, m := solveCounting(p)
			if v != yes {
				t.Errorf("%d nodes, seed %d: %v, %v", n, seed, v, m.err)
			}
		}
	}
}

// threadTime returns the processor time of this thread, which other work on the machine does not
// lengthen.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkCounting reports the median, the 99th percentile and the maximum over many random
// instances, for each number of nodes: instances of one size, or of every size up to it.
func BenchmarkCounting(b *testing.B) {
	for _, size := range []struct {
		layouts, services int
		upTo              bool
	}{{50, 40, true}, {15, 30, false}, {50, 40, false}} {
		for _, n := range []int64{10, 100, 1000, 10000} {
			name := fmt.Sprintf("layouts=%d/services=%d/nodes=%d", size.layouts, size.services, n)
			if size.upTo {
				name = "upto/" + name
			}
			b.Run(name, func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var took []time.Duration
				for b.Loop() {
					took = took[:0]
					for seed := range uint64(200) {
						layouts, services := size.layouts, size.services
						if size.upTo {
							r := rand.New(rand.NewPCG(seed, 17))
							layouts, services = 1+r.IntN(layouts), 1+r.IntN(services)
						}
						p := countingProblem(seed, layouts, services, n, false)
						at := threadTime()
						if _, v, m := solveCounting(p); v != yes {
							b.Fatalf("seed %d: %v %v", seed, v, m.err)
						}
						took = append(took, threadTime()-at)
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[100].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(took[198].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(took[199].Microseconds())/1000, "max-ms")
			})
		}
	}
}
