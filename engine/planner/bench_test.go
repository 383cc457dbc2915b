package planner

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// clusterOf distributes a template's services over n nodes as the solver does for the shipped
// templates: the first node carries the masters, the others carry the workers.
func clusterOf(n int, masters, workers []string) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{ID: fmt.Sprintf("n%d", 1000+i), Number: 1000 + i, Services: workers}
	}
	nodes[0].Services = masters
	return nodes
}

// layered returns count services in chains, each with every action, so that each node has
// seven tasks per service less three shared ones.
func layered(count int) (map[string]model.Service, []string) {
	services, names := map[string]model.Service{}, []string{}
	for i := range count {
		name := fmt.Sprintf("s%02d", i)
		s := service(name, "install", "configure", "initialize", "start", "stop")
		if i >= 5 {
			s.Dependencies.Runtime.Requires = []string{fmt.Sprintf("s%02d", i-5)}
			s.Dependencies.Install.Uses = []string{fmt.Sprintf("s%02d", i-5)}
		}
		services[name] = s
		names = append(names, name)
	}
	return services, names
}

func BenchmarkPlan(b *testing.B) {
	template := func(b *testing.B, name string, nodes int) Input {
		set := templateServices(b, name)
		return Input{Operation: model.OpCreate, Nodes: clusterOf(nodes, set.masters, set.workers), Services: set.services}
	}
	million := func() Input {
		services, names := layered(25)
		return Input{Operation: model.OpCreate, Nodes: clusterOf(10_000, names, names), Services: services}
	}
	for _, c := range []struct {
		name string
		in   func(*testing.B) Input
	}{
		{"hadoop-distributed-1000", func(b *testing.B) Input { return template(b, "hadoop-distributed", 1000) }},
		{"hadoop-distributed-10000", func(b *testing.B) Input { return template(b, "hadoop-distributed", 10_000) }},
		{"cdap-distributed-1000", func(b *testing.B) Input { return template(b, "cdap-distributed", 1000) }},
		{"million-tasks-10000-nodes", func(*testing.B) Input { return million() }},
		{"upgrade-10000-nodes", func(b *testing.B) Input {
			in := million()
			in.Operation = model.OpUpgrade
			for i := range in.Nodes {
				in.Nodes[i].Created = true
			}
			return in
		}},
		{"converge-replacing-10000-nodes", func(*testing.B) Input { return replacing(million(), false) }},
		{"converge-replacing-10000-nodes-within-nodes", func(*testing.B) Input { return replacing(million(), true) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			in := c.in(b)
			var g *plan.Graph
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if g, err = Plan(in); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(g.Tasks()), "tasks")
			b.ReportMetric(float64(len(g.Succ)), "edges")
			b.ReportMetric(float64(size(g))/float64(g.Tasks()), "B/task")
		})
	}
}

// replacing returns an input that replaces every node with all its services.
func replacing(in Input, local bool) Input {
	in.Operation, in.NodeLocal, in.Wanted = OpConverge, local, map[string]Wanted{}
	for i, n := range in.Nodes {
		in.Nodes[i].Created = true
		w := Wanted{Node: []model.Action{model.Delete, model.Create, model.Confirm, model.Bootstrap}, Services: map[string][]model.Action{}}
		for _, s := range n.Services {
			w.Services[s] = []model.Action{model.Stop, model.Install, model.Configure, model.Initialize, model.Start}
		}
		in.Wanted[n.ID] = w
	}
	return in
}

// size returns the bytes that a graph's columns hold.
func size(g *plan.Graph) int {
	return 4*cap(g.Node) + 2*cap(g.Service) + cap(g.Action) + 4*(cap(g.SuccOff)+cap(g.Succ)+cap(g.Preds)+cap(g.Rank))
}

// BenchmarkDenseAgainstSparse plans a service on many nodes that depends on a service on equally
// many, and the same cluster without the dependency. docs/spec/planner.md allows a factor of 1.2.
func BenchmarkDenseAgainstSparse(b *testing.B) {
	for _, dense := range []bool{true, false} {
		b.Run(map[bool]string{true: "dense", false: "sparse"}[dense], func(b *testing.B) {
			services := map[string]model.Service{"a": service("a", "install", "start"), "b": service("b", "install", "start")}
			if dense {
				a := services["a"]
				a.Dependencies.Runtime.Requires = []string{"b"}
				services["a"] = a
			}
			in := Input{Operation: model.OpCreate, Nodes: clusterOf(10_000, []string{"a", "b"}, []string{"a", "b"}), Services: services}
			for b.Loop() {
				if _, err := Plan(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNothingToDo(b *testing.B) {
	services, names := layered(25)
	nodes := clusterOf(10_000, names, names)
	states := map[string]string{}
	for _, n := range names {
		states[n] = "START"
	}
	for i := range nodes {
		nodes[i].Created, nodes[i].States = true, states
	}
	in := Input{Operation: model.OpCreate, Nodes: nodes, Services: services}
	for b.Loop() {
		if g, err := Plan(in); err != nil || g.Len() > 0 {
			b.Fatal(g.Len(), err)
		}
	}
}

func BenchmarkStages(b *testing.B) {
	services, names := layered(25)
	g, err := Plan(Input{Operation: model.OpCreate, Nodes: clusterOf(10_000, names, names), Services: services})
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	b.Run("levels", func(b *testing.B) {
		for b.Loop() {
			Stages(g)
		}
	})
	b.Run("split", func(b *testing.B) {
		for b.Loop() {
			SplitStages(g, Stages(g))
		}
	})
}

// BenchmarkDiff compares a cluster of 1,000,000 pairs of node and service with itself, with itself
// in another order, and with a cluster in which every service changed.
func BenchmarkDiff(b *testing.B) {
	pairs := func(config uint64, backwards bool) []DiffNode {
		out := make([]DiffNode, 10_000)
		for i := range out {
			n := &out[i]
			*n = DiffNode{ID: fmt.Sprintf("n%d", i), Created: true, Confirmed: true, Services: make([]DiffService, 100)}
			for k := range n.Services {
				s := DiffService{Name: fmt.Sprintf("service-%02d", k), State: "START", Definition: 1, Config: config}
				if backwards {
					n.Services[99-k] = s
				} else {
					n.Services[k] = s
				}
			}
		}
		if backwards {
			slices.Reverse(out)
		}
		return out
	}
	from := pairs(1, false)
	for _, c := range []struct {
		name    string
		to      []DiffNode
		changed int
	}{
		{"no-change", pairs(1, false), 0},
		{"no-change-shuffled", pairs(1, true), 0},
		{"all-changed", pairs(2, false), 10_000},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := Diff(from, c.to, aService); len(d.Reconfigure) != c.changed {
					b.Fatal(len(d.Reconfigure))
				}
			}
		})
	}
}
