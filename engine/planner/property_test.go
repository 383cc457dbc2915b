package planner

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"pgregory.net/rapid"
)

// reach returns, for each task by name, the names of all tasks after it.
func reach(g *plan.Graph) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	below := make([]map[string]bool, g.Len())
	var visit func(v int) map[string]bool
	visit = func(v int) map[string]bool {
		if below[v] != nil {
			return below[v]
		}
		below[v] = map[string]bool{}
		for _, w := range g.Next(v) {
			if g.Action[w] != model.Barrier {
				below[v][g.Name(int(w))] = true
			}
			maps.Copy(below[v], visit(int(w)))
		}
		return below[v]
	}
	for v := range g.Len() {
		if g.Action[v] != model.Barrier {
			out[g.Name(v)] = visit(v)
		}
	}
	return out
}

// dependsOn is the slow, obvious counterpart of relations: it reports whether a service depends on
// another, over any number of steps.
func dependsOn(services map[string]model.Service, on map[string]bool, install bool) func(a, b string) bool {
	var from func(a string, seen map[string]bool)
	from = func(a string, seen map[string]bool) {
		needs := services[a].Dependencies.Runtime
		if install {
			needs = services[a].Dependencies.Install
		}
		for _, name := range append(slices.Clone(needs.Requires), needs.Uses...) {
			stands := []string{}
			for p := range on {
				if p != name && slices.Contains(services[p].Dependencies.Provides, name) {
					stands = append(stands, p)
				}
			}
			if len(stands) == 0 && on[name] {
				stands = append(stands, name)
			}
			for _, s := range stands {
				if s != a && !seen[s] {
					seen[s] = true
					from(s, seen)
				}
			}
		}
	}
	return func(a, b string) bool {
		seen := map[string]bool{}
		from(a, seen)
		return seen[b]
	}
}

// required returns the order that a plan's tasks must have. It compares every pair of tasks.
func required(in Input, g *plan.Graph) map[string]map[string]bool {
	on := map[string]bool{}
	for _, n := range in.Nodes {
		for _, s := range n.Services {
			on[s] = true
		}
	}
	runtime, install := dependsOn(in.Services, on, false), dependsOn(in.Services, on, true)
	order, _ := in.order()
	later, apart := secondPhase(in)
	last := func(v int) bool { return later[[2]string{g.NodeID(v), g.ServiceName(v)}] }
	before := func(u, v int) bool {
		a, b := g.Action[u], g.Action[v]
		if last(u) != last(v) && !apart {
			return last(v)
		}
		order := order
		if last(u) {
			order = []model.Action{model.Stop, model.Configure, model.Start}
		}
		place := func(a model.Action) int { return slices.Index(order, a) }
		if in.Gather && a == model.Confirm && !b.Hardware() && (in.Operation != OpConverge || place(b) > place(a) || last(v)) &&
			(in.GatherFrom == nil || slices.Contains(in.GatherFrom, g.NodeID(u))) {
			return true
		}
		if g.Node[u] == g.Node[v] && (g.Service[u] == g.Service[v] || g.Service[u] < 0 || g.Service[v] < 0) {
			return place(a) < place(b)
		}
		if g.Node[u] == g.Node[v] && !last(u) && place(b) > place(model.Confirm) &&
			goes(maskOf(in.Wanted[g.NodeID(u)].Services[g.ServiceName(u)]...)) {
			return true
		}
		turns := (in.Operation == model.OpUpgrade || in.NodeLocal) && (!last(u) || apart)
		if turns && g.Node[u] != g.Node[v] || g.Service[u] < 0 || g.Service[v] < 0 {
			return false
		}
		s, t := g.ServiceName(u), g.ServiceName(v)
		switch {
		case a == model.Start && (b == model.Start || b == model.Initialize):
			return runtime(t, s)
		case a == model.Stop && b == model.Stop:
			return runtime(s, t)
		case a == model.Install && b == model.Install:
			return install(t, s)
		case a == model.Remove && b == model.Remove:
			return install(s, t)
		}
		return false
	}
	b := plan.NewBuilder(g.Nodes, g.Services)
	var tasks []int
	for v := range g.Len() {
		if g.Action[v] != model.Barrier {
			b.Task(g.Action[v], int(g.Node[v]), int(g.Service[v]))
			tasks = append(tasks, v)
		}
	}
	for i, u := range tasks {
		for j, v := range tasks {
			if i != j && before(u, v) {
				b.Edge(uint32(i), uint32(j))
			}
		}
	}
	naive, err := b.Build()
	if err != nil {
		panic(err)
	}
	return reach(naive)
}

// secondPhase returns the slots that are configured after everything else. If nodes take turns, they are apart: they wait only for the nodes
// of GatherFrom, and no other task of their node is planned.
func secondPhase(in Input) (out map[[2]string]bool, apart bool) {
	out = map[[2]string]bool{}
	g, err := newGrid(&in)
	if err != nil {
		panic(err)
	}
	order, _ := in.order()
	if _, p := g.phases(order); p != nil {
		apart = p.local
		for k, m := range p.slot {
			if m != 0 {
				out[[2]string{in.Nodes[g.slotNode[k]].ID, g.names[g.slotSvc[k]]}] = true
			}
		}
	}
	return out, apart
}

var operations = []Input{
	{Operation: model.OpCreate}, {Operation: model.OpDelete}, {Operation: model.OpDelete, Graceful: true},
	{Operation: model.OpStart}, {Operation: model.OpStop}, {Operation: model.OpRestart},
	{Operation: model.OpConfigure}, {Operation: model.OpConfigure, Restart: true},
	{Operation: model.OpGrow}, {Operation: model.OpShrink}, {Operation: model.OpAddServices}, {Operation: model.OpRemoveServices},
	{Operation: model.OpUpgrade}, {Operation: model.OpReplaceNode}, {Operation: OpConverge},
}

// anyInput draws an operation on a small cluster without dependency cycles.
func anyInput(t *rapid.T) Input {
	in := rapid.SampledFrom(operations).Draw(t, "operation")
	count := rapid.IntRange(1, 6).Draw(t, "services")
	in.Services = map[string]model.Service{}
	var names []string
	for i := range count {
		name := string(rune('a' + i))
		actions := rapid.SampledFrom([]string{"install", "configure", "initialize", "start", "stop", "remove"})
		s := service(name, rapid.SliceOfDistinct(actions, rapid.ID[string]).Draw(t, "actions of "+name)...)
		// Only on earlier services, or on names that only earlier services provide.
		on := rapid.SampledFrom(append(slices.Clone(names), "nobody"))
		s.Dependencies.Runtime.Requires = rapid.SliceOfN(on, 0, 2).Draw(t, "runtime of "+name)
		s.Dependencies.Runtime.Uses = rapid.SliceOfN(on, 0, 1).Draw(t, "runtime uses of "+name)
		s.Dependencies.Install.Requires = rapid.SliceOfN(on, 0, 1).Draw(t, "install of "+name)
		if i > 0 && i == count-1 {
			s.Dependencies.Install.Uses = append(s.Dependencies.Install.Uses, "face")
			s.Dependencies.Runtime.Uses = append(s.Dependencies.Runtime.Uses, "face")
		} else if rapid.Bool().Draw(t, name+" provides") {
			s.Dependencies.Provides = []string{"face", name}
		}
		if rapid.IntRange(0, 4).Draw(t, name+" restarts") == 0 {
			no := false
			s.RestartOnConfigure = &no
		}
		in.Services[name] = s
		names = append(names, name)
	}
	states := rapid.SampledFrom([]string{"", "", "INSTALL", "CONFIGURE", "INITIALIZE", "START", "START", "START", "STOP", "REMOVE"})
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := Node{ID: fmt.Sprintf("n%d", i), Number: 1000 + i, States: map[string]string{}, Created: rapid.IntRange(0, 3).Draw(t, "created") > 0}
		n.Services = rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(t, "services of "+n.ID)
		if n.Created {
			for _, s := range n.Services {
				if state := states.Draw(t, "state of "+s); state != "" {
					n.States[s] = state
				}
			}
		}
		in.Nodes = append(in.Nodes, n)
	}
	return in
}

// limit draws planned nodes and services, and nodes to gather from.
func limit(t *rapid.T, in *Input) {
	if in.Gather = rapid.Bool().Draw(t, "gather"); in.Gather && rapid.Bool().Draw(t, "gather from some") {
		in.GatherFrom = []string{}
		for _, n := range in.Nodes {
			if rapid.Bool().Draw(t, "gather from "+n.ID) {
				in.GatherFrom = append(in.GatherFrom, n.ID)
			}
		}
	}
	switch in.Operation {
	case model.OpGrow, model.OpShrink, model.OpAddServices, model.OpRemoveServices, model.OpUpgrade, model.OpReplaceNode, OpConverge:
		if rapid.Bool().Draw(t, "reconfigures") {
			in.Reconfigure = map[string][]string{}
			for _, n := range in.Nodes {
				if len(n.Services) > 0 {
					in.Reconfigure[n.ID] = rapid.SliceOfDistinct(rapid.SampledFrom(n.Services), rapid.ID[string]).Draw(t, "reconfigured on "+n.ID)
				}
			}
		}
	}
	in.NodeLocal = rapid.IntRange(0, 3).Draw(t, "within nodes") == 0
	if in.Operation == OpConverge {
		in.Wanted = anyWanted(t, in.Nodes)
		return
	}
	if rapid.Bool().Draw(t, "some nodes") {
		in.PlannedNodes = []string{}
		for _, n := range in.Nodes {
			if rapid.Bool().Draw(t, n.ID+" planned") {
				in.PlannedNodes = append(in.PlannedNodes, n.ID)
			}
		}
	}
	if rapid.Bool().Draw(t, "some services") {
		in.PlannedServices = []string{}
		for _, s := range placed(in.Nodes) {
			if rapid.Bool().Draw(t, s+" planned") {
				in.PlannedServices = append(in.PlannedServices, s)
			}
		}
	}
}

// anyWanted draws valid tasks for each node.
func anyWanted(t *rapid.T, nodes []Node) map[string]Wanted {
	some := func(what string, from ...model.Action) []model.Action {
		return rapid.SliceOfDistinct(rapid.SampledFrom(from), rapid.ID[model.Action]).Draw(t, what)
	}
	come := createChain[slices.Index(createChain, model.Install):]
	out := map[string]Wanted{}
	for _, n := range nodes {
		way := rapid.SampledFrom([]string{"stays", "stays", "comes", "goes", "is replaced", "is not named"}).Draw(t, n.ID)
		w := Wanted{Services: map[string][]model.Action{}}
		switch way {
		case "is not named":
			continue
		case "comes":
			w.Node = append(some("late on "+n.ID, model.Confirm, model.Bootstrap), model.Create)
		case "goes":
			w.Node = []model.Action{model.Delete}
		case "is replaced":
			w.Node = append(some("late on "+n.ID, model.Confirm, model.Bootstrap), model.Create, model.Delete)
		case "stays":
			w.Node = some("late on "+n.ID, model.Confirm, model.Bootstrap)
		}
		for _, s := range n.Services {
			var actions []model.Action
			if way != "comes" {
				actions = some("end of "+s, model.Stop, model.Remove)
			}
			if way != "goes" && rapid.Bool().Draw(t, s+" comes") {
				actions = append(actions, some("start of "+s, come...)...)
			}
			w.Services[s] = actions
		}
		out[n.ID] = w
	}
	return out
}

func placed(nodes []Node) []string {
	set := map[string]bool{}
	for _, n := range nodes {
		for _, s := range n.Services {
			set[s] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// TestOrderIsWhatTheRulesAsk checks, task by task, that the order between a plan's tasks is exactly
// what the rules require.
func TestOrderIsWhatTheRulesAsk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		limit(t, &in)
		checkOrder(t, in)
	})
}

func checkOrder(t *rapid.T, in Input) {
	g, err := Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	got, want := reach(g), required(in, g)
	if len(got) != g.Tasks() {
		t.Fatalf("a task is there twice: %d names, %d tasks", len(got), g.Tasks())
	}
	for u := range want {
		for v := range want {
			if got[u][v] != want[u][v] {
				t.Fatalf("%s before %s: plan says %v, rules say %v", u, v, got[u][v], want[u][v])
			}
		}
	}
}

// TestBarriersKeepTheOrder checks that barriers change neither the order nor the ranks.
func TestBarriersKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		limit(t, &in)
		in.Compat = in.Operation != OpConverge && rapid.Bool().Draw(t, "compat")
		sparse, err := build(&in, false)
		if err != nil {
			t.Fatal(err)
		}
		dense, err := build(&in, true)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(reach(sparse), reach(dense)) {
			t.Fatal("the order differs")
		}
		ranks := func(g *plan.Graph) map[string]uint32 {
			out := map[string]uint32{}
			for v := range g.Len() {
				if g.Action[v] != model.Barrier {
					out[g.Name(v)] = g.Rank[v]
				}
			}
			return out
		}
		if !reflect.DeepEqual(ranks(sparse), ranks(dense)) {
			t.Fatal("the ranks differ")
		}
		if !reflect.DeepEqual(stageNames(sparse, Stages(sparse)), stageNames(dense, Stages(dense))) {
			t.Fatal("the stages differ")
		}
		for v := range sparse.Len() {
			for _, w := range sparse.Next(v) {
				if int(w) <= v {
					t.Fatalf("vertex %d waits for %d", w, v)
				}
			}
		}
	})
}

// TestPlanIsDeterministic checks that equal inputs lead to equal graphs, regardless of the order in
// which their maps were filled.
func TestPlanIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		limit(t, &in)
		again := in
		again.Services = map[string]model.Service{}
		keys := rapid.Permutation(slices.Sorted(maps.Keys(in.Services))).Draw(t, "order")
		for _, k := range keys {
			again.Services[k] = in.Services[k]
		}
		if len(in.PlannedServices) > 0 { // nil means all, none means none
			again.PlannedServices = rapid.Permutation(in.PlannedServices).Draw(t, "planned order")
		}
		a, err := Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Plan(again)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatal("two plans of one input differ")
		}
		if !reflect.DeepEqual(SplitStages(a, Stages(a)), SplitStages(b, Stages(b))) {
			t.Fatal("two splits of one input differ")
		}
	})
}

// TestStagesKeepTheOrder checks that split stages contain every task, have at most one task of each
// node, and keep the order of the graph.
func TestStagesKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		in.Compat = in.Operation != OpConverge && rapid.Bool().Draw(t, "compat")
		g, err := Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		stages := SplitStages(g, Stages(g))
		at := map[string]int{}
		for i, stage := range stages {
			busy := map[int32]bool{}
			for _, v := range stage {
				if busy[g.Node[v]] {
					t.Fatalf("stage %d has two tasks of node %s", i, g.NodeID(v))
				}
				busy[g.Node[v]] = true
				at[g.Name(v)] = i
			}
		}
		if len(at) != g.Tasks() {
			t.Fatalf("%d tasks in stages, %d in the plan", len(at), g.Tasks())
		}
		for u, after := range reach(g) {
			for v := range after {
				if at[u] >= at[v] {
					t.Fatalf("%s is in stage %d, %s after it in %d", u, at[u], v, at[v])
				}
			}
		}
	})
}

// TestSplitIsBalanced checks that the parts of a split stage differ in size as little as one task
// per node allows.
func TestSplitIsBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(1, 6), 1, 12).Draw(t, "tasks per node")
		ids := make([]string, len(counts))
		b := plan.NewBuilder(ids, []string{"s"})
		var stage []int
		most, total := 0, 0
		for n, c := range counts {
			most, total = max(most, c), total+c
			for range c {
				stage = append(stage, int(b.Task(model.Start, n, 0)))
			}
		}
		g, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		parts := SplitStages(g, [][]int{stage})
		if len(parts) != most {
			t.Fatalf("%d parts, the busiest node has %d tasks", len(parts), most)
		}
		small, large := total, 0
		for _, p := range parts {
			small, large = min(small, len(p)), max(large, len(p))
		}
		if large-small > 1 {
			t.Fatalf("parts of %d to %d tasks for %v", small, large, counts)
		}
	})
}

// TestEdgesAreFew checks that the number of edges is linear in the number of tasks.
func TestEdgesAreFew(t *testing.T) {
	services, names := layered(12)
	for _, n := range []int{10, 100, 1000} {
		g := mustPlan(t, Input{Operation: model.OpCreate, Nodes: clusterOf(n, names, names), Services: services})
		if len(g.Succ) > 3*g.Tasks()+100 {
			t.Errorf("%d nodes: %d edges for %d tasks", n, len(g.Succ), g.Tasks())
		}
	}
}
