package solver_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/testing/conformance/layoutcase"
	"github.com/coopr/coopr/testing/original"
)

// layered returns an input with k services, each of which needs at least one node.
func layered(k, nodes int) solver.Input {
	in := solver.Input{Provider: "p", Nodes: nodes, Comparator: solver.ComparatorOriginal}
	in.HardwareTypes, in.ImageTypes = layoutcase.Types([]string{"h"}, []string{"i"}, "p")
	in.Template.Constraints.Services = map[string]model.ServiceConstraint{}
	for i := range k {
		s := fmt.Sprintf("s%03d", i)
		in.Wanted = append(in.Wanted, s)
		in.Template.Constraints.Services[s] = model.ServiceConstraint{Quantities: model.Quantities{Min: whole(1)}}
	}
	in.Services = layoutcase.Services(in.Wanted)
	return in
}

// exclusive returns the input with constraints by which all its services exclude each other.
func exclusive(in solver.Input, least int) solver.Input {
	for i, a := range in.Wanted {
		for _, b := range in.Wanted[:i] {
			in.Template.Constraints.Layout.CantCoexist = append(in.Template.Constraints.Layout.CantCoexist, []string{a, b})
		}
		in.Template.Constraints.Services[a] = model.ServiceConstraint{Quantities: model.Quantities{Min: whole(least)}}
	}
	return in
}

// grouped returns an input with k services in groups that must share nodes, and pairs of services
// from different groups that must not.
func grouped(seed uint64, k, groups, pairs, nodes int, limits bool) solver.Input {
	r := rand.New(rand.NewPCG(seed, 3))
	in := layered(k, nodes)
	l := &in.Template.Constraints.Layout
	members := make([][]string, groups)
	for i, s := range in.Wanted {
		members[i%groups] = append(members[i%groups], s)
	}
	l.MustCoexist = members
	for len(l.CantCoexist) < pairs {
		a, b := r.IntN(k), r.IntN(k)
		if a%groups != b%groups {
			l.CantCoexist = append(l.CantCoexist, []string{in.Wanted[a], in.Wanted[b]})
		}
	}
	if limits {
		for i := range groups {
			q := model.Quantities{Min: whole(1)}
			switch i % 3 {
			case 0:
				q.Max = whole(1 + r.IntN(5))
			case 1:
				q.Max = whole(1 + r.IntN(nodes))
			}
			in.Template.Constraints.Services[in.Wanted[i]] = model.ServiceConstraint{Quantities: q}
		}
	}
	return in
}

// bench also reports the processor time of one call, which other work on the machine does not
// lengthen.
func bench(b *testing.B, in solver.Input) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from, n := threadTime(b), 0
	for b.Loop() {
		n++
		_, err := solver.Solve(context.Background(), in)
		if u := new(solver.Unsolvable); err != nil && (!errors.As(err, &u) || !strings.HasPrefix(b.Name(), "BenchmarkSolve/no/")) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((threadTime(b)-from).Microseconds())/1000/float64(n), "cpu-ms/op")
}

func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkSolve runs the cases of docs/spec/solver.md "Speed". Their names include the time that
// the original took.
func BenchmarkSolve(b *testing.B) {
	b.Run("constrained18/original=63s", func(b *testing.B) { bench(b, layered(18, 18)) })
	b.Run("constrained24/original=none", func(b *testing.B) { bench(b, layered(24, 24)) })
	b.Run("constrained40", func(b *testing.B) { bench(b, layered(40, 40)) })
	b.Run("capped40", func(b *testing.B) {
		in := layered(40, 40)
		for s := range in.Template.Constraints.Services {
			in.Template.Constraints.Services[s] = model.ServiceConstraint{Quantities: model.Quantities{Min: whole(1), Max: whole(1)}}
		}
		bench(b, in)
	})
	b.Run("groups30of200/pairs100/10000nodes", func(b *testing.B) { bench(b, grouped(1, 200, 30, 100, 10000, false)) })
	b.Run("groups30of200/pairs100/10000nodes/limits", func(b *testing.B) { bench(b, grouped(1, 200, 30, 100, 10000, true)) })
	b.Run("exclusive16/original=31.6s", func(b *testing.B) { bench(b, exclusive(layered(16, 16), 1)) })
	b.Run("no/exclusive7/50nodes/original=5.3s", func(b *testing.B) { bench(b, exclusive(layered(7, 50), 8)) })
	b.Run("no/groups30of200/10000nodes", func(b *testing.B) {
		in := grouped(1, 200, 30, 100, 10000, false)
		for i := range 30 {
			in.Template.Constraints.Services[in.Wanted[i]] = model.ServiceConstraint{Quantities: model.Quantities{Max: whole(300)}}
		}
		bench(b, in)
	})
	b.Run("costs+rooms/40services/6types/1000nodes", func(b *testing.B) { bench(b, costed(1, true)) })
	b.Run("hadoop/10000nodes", func(b *testing.B) {
		set := definitions(b, filepath.Join(original.Dir(b), "templates-develop"))
		bench(b, templateInput(b, set, "hadoop-distributed", 10000))
	})
	b.Run("add5/10000nodes", func(b *testing.B) { bench(b, adding(10000)) })
}

// adding returns an input that adds five services to an existing cluster.
func adding(nodes int) solver.Input {
	in := layered(12, 0)
	in.Nodes = 0
	t := &in.Template.Constraints
	for i, s := range in.Wanted[7:] {
		q := model.Quantities{Min: whole(1 + i), Max: whole(10 + 1000*i)}
		t.Services[s] = model.ServiceConstraint{Quantities: q}
	}
	t.Layout.CantCoexist = [][]string{{in.Wanted[0], in.Wanted[7]}, {in.Wanted[8], in.Wanted[9]}, {in.Wanted[1], in.Wanted[11]}}
	for i := range nodes {
		in.Existing = append(in.Existing, solver.ExistingNode{ID: fmt.Sprint(i), Number: 1000 + i, HardwareType: "h", ImageType: "i",
			Services: []string{in.Wanted[i%7], in.Wanted[(i/7)%7]}})
	}
	in.Change = solver.Change{Kind: solver.AddServices, Services: in.Wanted[7:]}
	in.Wanted = nil
	return in
}

// BenchmarkGrowth measures how time and memory grow with the number of nodes and with the
// number of constrained services: a fifth as many groups that share nodes (at least three),
// half as many pairs that do not, and limits on two groups of three.
func BenchmarkGrowth(b *testing.B) {
	run := func(name string, in solver.Input) {
		in.MaxNodes = 200_000
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			bench(b, in)
		})
	}
	for _, nodes := range []int{10, 100, 1000, 10_000, 100_000} {
		for _, services := range []int{5, 20, 50, 100, 200} {
			run(fmt.Sprintf("create/nodes=%d/services=%d", nodes, services), grouped(1, services, max(3, services/5), services/2, nodes, true))
		}
	}
	for _, nodes := range []int{10, 100, 1000, 10_000, 100_000} {
		run(fmt.Sprintf("add5/nodes=%d", nodes), adding(nodes))
		shrink := adding(nodes)
		shrink.Change = solver.Change{Kind: solver.Shrink, Nodes: nodes / 5}
		run(fmt.Sprintf("shrink/nodes=%d", nodes), shrink)
		grow := adding(nodes)
		grow.Change = solver.Change{Kind: solver.Grow, Nodes: nodes}
		run(fmt.Sprintf("grow/nodes=%d", nodes), grow)
	}
}
