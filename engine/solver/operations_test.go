package solver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// randomOperation returns a random operation, with every kind of constraint, on a cluster that was
// solved for the same rules or sometimes for none.
func randomOperation(r *rand.Rand) (solver.Input, bool) {
	in := randomInput(r)
	all := slices.Clone(in.Wanted)
	cut := 1 + r.IntN(len(all))
	in.Wanted = all[:cut]
	start := in
	if r.IntN(4) == 0 { // the cluster was created before most of its rules
		start.Template.Constraints.Services, start.Zones, start.Hosts = nil, nil, nil
	}
	a, err := solver.Solve(context.Background(), start)
	if err != nil {
		return in, false
	}
	place := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return append(list[:len(list):len(list)], "elsewhere")[r.IntN(len(list)+r.IntN(20)/19)]
	}
	for g, group := range a.Layout {
		var zones, hosts []string
		for _, p := range a.Placement {
			for range p.Count {
				switch {
				case p.Group != g:
				case p.Zone != "":
					zones = append(zones, p.Zone)
				case p.Host != "":
					hosts = append(hosts, p.Host)
				}
			}
		}
		for i := range group.Count {
			n := solver.ExistingNode{HardwareType: group.HardwareType, ImageType: group.ImageType, Services: group.Services, Zone: place(in.Zones),
				Host: place(in.Hosts)}
			if i < len(zones) {
				n.Zone = zones[i]
			}
			if i < len(hosts) {
				n.Host = hosts[i]
			}
			in.Existing = append(in.Existing, n)
		}
	}
	r.Shuffle(len(in.Existing), func(i, j int) { in.Existing[i], in.Existing[j] = in.Existing[j], in.Existing[i] })
	for i := range in.Existing {
		in.Existing[i].ID, in.Existing[i].Number = fmt.Sprint("n", i), 1000+i
	}
	if len(in.Existing) > 4 {
		return in, false
	}
	in.Wanted, in.Nodes = nil, 0
	victim := func() []string { return []string{in.Existing[r.IntN(len(in.Existing))].ID} }
	c := &in.Change
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		if cut == len(all) {
			return in, false
		}
		c.Kind, c.Services, c.Nodes = solver.AddServices, all[cut:min(len(all), cut+1+r.IntN(2))], r.IntN(3)/2
		c.Touch = []solver.Touch{"", solver.TouchFewest, solver.TouchMost}[r.IntN(3)]
	case 4, 5:
		c.Kind, c.Nodes = solver.Grow, 1+r.IntN(2)
	case 6:
		c.Kind, c.Nodes = solver.Shrink, 1+r.IntN(2)
	case 7:
		c.Kind, c.Victims = []solver.ChangeKind{solver.Shrink, solver.Replace}[r.IntN(2)], victim()
	case 8:
		c.Kind, c.Services = solver.RemoveServices, all[:1+r.IntN(cut)]
	case 9:
		c.Kind = solver.Retemplate
	}
	if r.IntN(6) == 0 && c.Kind != solver.Create {
		if a, err := solver.Solve(context.Background(), in); err == nil {
			in.Exclude = append(in.Exclude, a.Layout)
		}
	}
	return in, true
}

// TestOperationsAgainstOracle compares every operation with plain enumeration: both refuse it, or
// both find the same layout and remove the same nodes.
func TestOperationsAgainstOracle(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 24000)
	type tally struct{ solved, refused int }
	seen := map[solver.ChangeKind]*tally{}
	skipped := 0
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(seed, 31))
		in, ok := randomOperation(r)
		if !ok {
			skipped++
			continue
		}
		o := &operationOracle{in: in}
		found := o.solve()
		if o.tooBig {
			skipped++
			continue
		}
		a, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		var faults model.Faults
		if errors.As(err, &faults) {
			skipped++ // the input has faults, which are reported before solving
			continue
		}
		if err != nil && !errors.As(err, &u) {
			t.Fatalf("seed %d: %v\n%s", seed, err, dumpChange(in))
		}
		if found != (a != nil) {
			t.Fatalf("seed %d: %s: %v, %v; by enumeration %v\n%s", seed, in.Change.Kind, a, err, layoutOfNodes(o.best), dumpChange(in))
		}
		n := seen[in.Change.Kind]
		if n == nil {
			n = &tally{}
			seen[in.Change.Kind] = n
		}
		if a == nil {
			n.refused++
			if len(u.Conflict) == 0 {
				t.Fatalf("seed %d: no conflict is named\n%s", seed, dumpChange(in))
			}
			continue
		}
		n.solved++
		if want := layoutOfNodes(o.best); !same(a.Layout, want) {
			t.Fatalf("seed %d: %s:\n got %v\nwant %v\n%s", seed, in.Change.Kind, a.Layout, want, dumpChange(in))
		}
		if in.Change.Kind == solver.Shrink && !slices.Equal(a.Removed, o.removed) {
			t.Fatalf("seed %d: removed %v instead of %v\n%s", seed, a.Removed, o.removed, dumpChange(in))
		}
		checkAnswer(t, seed, in, a)
	}
	for kind, n := range seen {
		t.Logf("%s: %d changes, %d refusals", kind, n.solved, n.refused)
		if to-from >= 2000 && (n.solved < 10 || n.refused < 3) {
			t.Errorf("%s: one-sided: %d changes, %d refusals", kind, n.solved, n.refused)
		}
	}
	t.Logf("%d left out", skipped)
	if to-from >= 2000 && len(seen) != 6 {
		t.Errorf("only %d kinds of operation", len(seen))
	}
}

// TestOperationExplanationsAreMinimal removes each member of an operation's conflict in turn. The
// remaining constraints must have a solution, and the whole conflict must have none.
func TestOperationExplanationsAreMinimal(t *testing.T) {
	t.Parallel()
	from, to := seeds(t, 8000)
	explained := 0
	for seed := from; seed < to; seed++ {
		in, ok := randomOperation(rand.New(rand.NewPCG(seed, 32)))
		if !ok {
			continue
		}
		_, err := solver.Solve(context.Background(), in)
		var u *solver.Unsolvable
		if !errors.As(err, &u) {
			continue
		}
		if !u.Minimal {
			t.Fatalf("seed %d: %v is not minimal\n%s", seed, u, dumpChange(in))
		}
		explained++
		for _, but := range append(u.Conflict, solver.Constraint{}) {
			o := &operationOracle{in: in}
			for _, path := range paths(in) {
				if path == but.Path || !names(u, path) {
					o.in = without(o.in, path)
				}
			}
			// The rule that a service stays is part of a conflict only if the conflict consists of
			// such rules.
			for _, s := range servicesOf(in.Existing) {
				if path := "services." + s; strings.Count(u.Conflict[0].Path, ".") == 1 && strings.HasPrefix(u.Conflict[0].Path, "services.") &&
					(path == but.Path || !names(u, path)) {
					o.optional = append(o.optional, s)
				}
			}
			if found := o.solve(); found != (but.Path != "") && !o.tooBig {
				t.Fatalf("seed %d: without %q what is left of the conflict can hold together: %v\n%v\n%s", seed, but.Path, found, u, dumpChange(in))
			}
		}
	}
	t.Logf("%d explanations", explained)
	if to-from >= 2000 && explained < int(to-from)/40 {
		t.Errorf("only %d operations that cannot be", explained)
	}
}

func names(u *solver.Unsolvable, path string) bool {
	return slices.ContainsFunc(u.Conflict, func(c solver.Constraint) bool { return c.Path == path })
}

// checkAnswer checks that the changes of single nodes in an answer lead to its layout.
func checkAnswer(t *testing.T, seed uint64, in solver.Input, a *solver.Answer) {
	t.Helper()
	var nodes []solver.ExistingNode
	for _, n := range in.Existing {
		if slices.Contains(a.Removed, n.ID) {
			continue
		}
		for _, c := range a.Changed {
			if c.ID == n.ID {
				n.Services = slices.DeleteFunc(append(slices.Clone(n.Services), c.Add...), func(s string) bool { return slices.Contains(c.Remove, s) })
			}
		}
		nodes = append(nodes, n)
	}
	for _, g := range a.New {
		for _, p := range a.Places(g) {
			nodes = append(nodes, solver.ExistingNode{HardwareType: g.HardwareType, ImageType: g.ImageType, Services: g.Services, Zone: p.Zone,
				Host: p.Host})
		}
	}
	for _, s := range a.Services {
		if in.Change.Kind == solver.Replace {
			break // the new nodes are at the places of the old ones
		}
		places, at := in.Zones, func(n *solver.ExistingNode) string { return n.Zone }
		if in.Services[s].Spread == "host" {
			places, at = in.Hosts, func(n *solver.ExistingNode) string { return n.Host }
		}
		var counts []int
		for _, p := range places {
			n := 0
			for i := range nodes {
				if at(&nodes[i]) == p && slices.Contains(nodes[i].Services, s) {
					n++
				}
			}
			counts = append(counts, n)
		}
		if in.Services[s].Spread != "" && len(counts) > 0 && slices.Max(counts)-slices.Min(counts) > 1 {
			t.Fatalf("seed %d: %s is spread as %v over %v\n%s", seed, s, counts, places, dumpChange(in))
		}
	}
	if !same(layoutOf(nodes), a.Layout) {
		t.Fatalf("seed %d: the nodes come to %v, the layout is %v\n%s", seed, layoutOf(nodes), a.Layout, dumpChange(in))
	}
}

func dumpChange(in solver.Input) string {
	b, _ := json.MarshalIndent(struct {
		Existing []solver.ExistingNode
		Change   solver.Change
		Ranking  *model.Ranking
		Hosts    []string
	}{in.Existing, in.Change, in.Ranking, in.Hosts}, "", " ")
	return string(b) + "\n" + dump(in)
}
