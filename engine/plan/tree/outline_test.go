package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/plan"
)

// customPhases are the eight phases of the SDK's custom-phases.yml.
const customPhases = `
name: t
plans:
  deploy:
    phases:
      server: {pod: custom, strategy: serial, steps: [{default: [[server]]}]}
      once: {pod: custom, strategy: serial, steps: [{default: [[once]]}]}
      interleave: {pod: custom, strategy: serial, steps: [{default: [[once], [server]]}]}
      parallel-tasks: {pod: custom, strategy: serial, steps: [{default: [[once, server]]}]}
      parallel-strategy: {pod: custom, strategy: parallel, steps: [{default: [[once, server]]}]}
      parallel-pods: {pod: custom, strategy: parallel, steps: [{default: [[once], [server]]}]}
      full-custom:
        pod: custom
        strategy: parallel-canary
        steps:
        - 0: [[once], [server]]
        - 1: [[server], [once]]
        - 2: [[server]]
      partial-custom:
        pod: custom
        steps:
        - 1: [[once], [server]]
        - default: [[server], [once]]
`

func decodePlan(t *testing.T, text string) model.Plan {
	t.Helper()
	d, err := decode.Definition(model.KindClusterTemplate, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d.Value.(*model.ClusterTemplate).Plans[0]
}

// TestPlanGenerator is PlanGeneratorTest of the SDK.
func TestPlanGenerator(t *testing.T) {
	o, err := Outlines(
		decodePlan(t, customPhases),
		map[string]Instances{"custom": {Nodes: []string{"c-0", "c-1", "c-2"}, Tasks: []string{"once", "server"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, p := range o.Phases {
		got += p.Name + " " + p.Strategy.String() + ":"
		for _, s := range p.Steps {
			got += " " + strings.TrimPrefix(s.Name(), "c-")
		}
		got += "\n"
	}
	want := `server serial: 0:[server] 1:[server] 2:[server]
once serial: 0:[once] 1:[once] 2:[once]
interleave serial: 0:[once] 0:[server] 1:[once] 1:[server] 2:[once] 2:[server]
parallel-tasks serial: 0:[once, server] 1:[once, server] 2:[once, server]
parallel-strategy dependency: 0:[once, server] 1:[once, server] 2:[once, server]
parallel-pods dependency: 0:[once] 0:[server] 1:[once] 1:[server] 2:[once] 2:[server]
full-custom dependency-canary: 0:[once] 0:[server] 1:[server] 1:[once] 2:[server]
partial-custom serial: 0:[server] 0:[once] 1:[once] 1:[server] 2:[server] 2:[once]
`
	if o.Strategy.String() != "serial" || got != want {
		t.Errorf("%s:\n%s\nnot\n%s", o.Strategy, got, want)
	}
}

func TestOutlineFaults(t *testing.T) {
	p := model.Plan{Name: "x", Strategy: "canary", Phases: []model.PlanPhase{
		{Name: "y", Service: "q"},
		{Name: "z", Service: "s", Steps: []model.PlanSteps{{Node: "0", Tasks: [][]string{{"nap"}}}}},
		{Name: "none", Service: "s", Steps: []model.PlanSteps{{Node: "default"}}},
		{Name: "b", Service: "s", Batch: "no"},
	}}
	_, err := Outlines(p, map[string]Instances{"s": {Nodes: []string{"n", "m"}, Tasks: []string{"start"}}})
	want := `strategy: Unsupported plan strategy "canary"
phases[0].service: Unable to find pod "q" referenced by phase "y"
phases[1].steps[0].tasks[0]: Malformed step: step refers to a task that does not exist: "nap" of s
phases[1].steps: Missing '1' step entry, and no 'default' defined
phases[3].strategy: a batch is a number of steps from 1 on, or 1% to 100% of them, but is "no"`
	if fmt.Sprint(err) != want {
		t.Errorf("%v", err)
	}
}

// names returns the phases of a draft with the names of their steps, one phase on each line.
func names(t *testing.T, d *Draft, g *plan.Graph) string {
	t.Helper()
	c, err := d.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, p := range d.Phases {
		out += p.Name + " " + p.Strategy.String() + ":"
		for s := p.First; s < p.End; s++ {
			out += " " + d.StepName(c, s)
		}
		out += "\n"
	}
	return out
}

// shop returns a graph with two nodes that are created, with services db and web, where web depends
// on db, and one node that is deleted.
func shop(t *testing.T) *plan.Graph {
	t.Helper()
	b := plan.NewBuilder([]string{"n1", "n2", "old"}, []string{"db", "web"})
	var last [2]uint32
	for n := range 2 {
		last[n] = b.Task(model.Create, n, plan.None)
		for _, a := range []model.Action{model.Confirm, model.Bootstrap} {
			v := b.Task(a, n, plan.None)
			b.Edge(last[n], v)
			last[n] = v
		}
	}
	b.Edge(b.Task(model.Stop, 2, 1), b.Task(model.Delete, 2, plan.None))
	dbUp := b.Barrier()
	for n := range 2 {
		in := b.Task(model.Install, n, 0)
		up := b.Task(model.Start, n, 0)
		b.Edge(last[n], in)
		b.Edge(in, up)
		b.Edge(up, dbUp)
	}
	for n := range 2 {
		in, up := b.Task(model.Install, n, 1), b.Task(model.Start, n, 1)
		b.Edge(last[n], in)
		b.Edge(in, up)
		b.Edge(dbUp, up)
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestDrafts(t *testing.T) {
	g := shop(t)
	if got, want := names(t, Default(g, "deploy"), g), `nodes dependency: n1:[create, confirm, bootstrap] n2:[create, confirm, bootstrap]
db dependency: n1:[install, start] n2:[install, start]
web dependency: n1:[install, start] n2:[install, start] old:[stop]
nodes dependency: old:[delete]
`; got != want {
		t.Errorf("default:\n%s\nnot\n%s", got, want)
	}
	if got, want := names(
		t,
		ByNode(g, "deploy", Strategy{Kind: Batch, Size: 2}),
		g,
	), `nodes batch: n1:[create, confirm, bootstrap, install db, start db, install web, start web] n2:[create, confirm, bootstrap, install db, start db, install web, start web] old:[stop web, delete]
`; got != want {
		t.Errorf("by node:\n%s\nnot\n%s", got, want)
	}
	if got, want := names(t, Staged(g, "deploy", [][]int{{0, 3, 6}, {1, 4}}), g), `stage-1 parallel: n1:[create] n2:[create] old:[stop web]
stage-2 parallel: n1:[confirm] n2:[confirm]
`; got != want {
		t.Errorf("staged:\n%s\nnot\n%s", got, want)
	}
	// One node at a time contradicts the graph, because web waits for the db of both nodes.
	_, err := ByNode(g, "upgrade", Strategy{}).Compile(g)
	var e *OrderError
	if !errors.As(err, &e) || !slices.Contains(e.Cycle, "n1/START/web (phase nodes)") ||
		!slices.Contains(e.Cycle, "n2/START/db (phase nodes)") ||
		len(e.Cycle) != 2 {
		t.Errorf("%v", err)
	}
	if _, err := ByNode(g, "x", Strategy{Kind: Random}).Compile(g); err == nil {
		t.Error("a random order is compiled")
	}
}

func TestTemplatePlan(t *testing.T) {
	g := shop(t)
	services := map[string]Instances{
		"db":  {Nodes: []string{"n1", "n2"}, Tasks: []string{"install", "start"}},
		"web": {Nodes: []string{"n1", "n2", "old"}, Tasks: []string{"install", "configure", "start", "stop"}},
	}
	outline := func(phases string) *Outline {
		t.Helper()
		o, err := Outlines(decodePlan(t, "name: t\nplans:\n  deploy:\n    phases:\n"+phases), services)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, c := range []struct{ phases, want string }{
		{"      databases: {service: db}\n      front: {service: web, strategy: canary, steps: [{0: [[install], [start]]}, {default: [[start]]}]}", `nodes dependency: n1:[create, confirm, bootstrap] n2:[create, confirm, bootstrap]
databases serial: n1:[install, start] n2:[install, start]
front serial-canary: n1:[install] n1:[start] n2:[install, start]
web dependency: old:[stop]
nodes dependency: old:[delete]
`}, // n2's install joins its start; no phase names the stop on old, so it comes last
		{"      front: {service: web, batch: 1}", `nodes dependency: n1:[create, confirm, bootstrap] n2:[create, confirm, bootstrap]
db dependency: n1:[install, start] n2:[install, start]
front batch: n1:[install, start] n2:[install, start] old:[stop]
nodes dependency: old:[delete]
`},
	} {
		d, err := outline(c.phases).Draft(g)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, d, g); got != c.want {
			t.Errorf("%s\nnot\n%s", got, c.want)
		}
	}
	d, err := outline("      front: {service: web}\n      databases: {service: db}").Draft(g)
	if err != nil {
		t.Fatal(err)
	}
	var e *OrderError
	_, err = d.Compile(g)
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "phase front") || !strings.Contains(err.Error(), "phase databases") {
		t.Errorf("web before its db: %v", err)
	}
	_, err = outline("      a: {service: db}\n      b: {service: db}").Draft(g)
	if err == nil || !strings.Contains(err.Error(), "phases[1]: n1/INSTALL/db is in two steps") {
		t.Errorf("%v", err)
	}
	// A custom plan belongs to no operation and may run the same task twice.
	run, draft, err := outline(
		"      a: {service: db, strategy: parallel, steps: [{default: [[start], [install, start]]}]}\n      b: {service: db}",
	).Graph()
	if err != nil {
		t.Fatal(err)
	}
	want := "a dependency: n1:[start] n1:[install, start] n2:[start] n2:[install, start]\n" +
		"b serial: n1:[install, start] n2:[install, start]\n"
	if got := names(t, draft, run); got != want {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	services["db"] = Instances{Nodes: []string{"n1"}, Tasks: []string{"confirm"}}
	_, _, err = outline("      a: {service: db}").Graph()
	if err == nil || !strings.Contains(err.Error(), `"confirm" is nothing that a plan can do`) {
		t.Errorf("%v", err)
	}
}

func TestFits(t *testing.T) {
	g := shop(t)
	d := Default(g, "deploy")
	d.Phases[1].Strategy, d.Phases[1].Timeout, d.Errors = Strategy{Kind: Batch, Size: 25, Percent: true, MaxFailures: 2}, 5, []string{"no"}
	c, err := d.Compile(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Fits(c); err != nil {
		t.Error(err)
	}
	if err := d.Fits(g); err == nil {
		t.Error("the tree fits a graph without its steps")
	}
}

func FuzzTree(f *testing.F) {
	b := plan.NewBuilder([]string{"n"}, []string{"s"})
	b.Task(model.Start, 0, 0)
	g, err := b.Build()
	if err != nil {
		f.Fatal(err)
	}
	d := Default(g, "x")
	if g, err = d.Compile(g); err != nil {
		f.Fatal(err)
	}
	seed, _ := json.Marshal(d.Tree)
	f.Add(seed, seed)
	f.Fuzz(func(t *testing.T, b, info []byte) {
		tree := &Tree{}
		if json.Unmarshal(b, tree) == nil && tree.Fits(g) == nil {
			v := ViewOf(tree, plan.NewState(g), 0)
			v.Info().Text(v.Name)
			Give([]*View{v}, Order{Command: "restart", Plan: v.Name})
		}
		var i Info
		if json.Unmarshal(info, &i) == nil {
			i.Text("x")
		}
		var p Pods
		if json.Unmarshal(info, &p) == nil {
			p.Text()
		}
	})
}
