package server_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// step and phase describe the parts of a test's plan.
type step struct {
	name   string
	status tree.Status
}

type phase struct {
	name  string
	held  bool
	steps []step
}

// testPlan is a plan of phases of one strategy. Each step has a node of its own.
type testPlan struct {
	name     string
	strategy string // of the phases; "" is serial
	held     bool
	errors   []string
	phases   []phase
}

// one returns a plan of one phase with the steps "s0", "s1" and so on, which have these statuses.
func one(status ...tree.Status) testPlan {
	p := phase{name: "test-phase"}
	for i, s := range status {
		p.steps = append(p.steps, step{"s" + string(rune('0'+i)), s})
	}
	return testPlan{name: "test-plan", phases: []phase{p}}
}

// stepName returns the name of a step in the API.
func stepName(name string) string { return name + ":[configure]" }

// planned is a cluster whose plans a test starts.
type planned struct {
	*world
	id, name   string
	nodes      []string // their ids
	free       []string // those of them that have no plan
	state      string   // of the service on each node
	operations int
}

// plannedCluster returns a cluster that does not exist yet; its first plan creates it.
func (w *world) plannedCluster(name string) *planned {
	w.t.Helper()
	if w.clusters++; w.clusters == 1 {
		w.must(200, apitest.Super, "PUT", "/v1/tenants/acme", `{"name":"acme"}`) // without a limit
	}
	return &planned{world: w, id: string(model.NewClusterID(1000 + w.clusters)), name: name}
}

// node returns another node of the cluster.
func (c *planned) node(name string) model.Node {
	number := 1000 + len(c.nodes)
	n := model.Node{
		ID: string(model.ClusterID(c.id).Node(number)), Cluster: c.id, Tenant: "acme", Number: number, Hostname: name + ".local",
		Services: []string{"app"},
	}
	if c.state != "" {
		n.States = map[string]string{"app": c.state}
	}
	c.nodes, c.free = append(c.nodes, n.ID), append(c.free, n.ID)
	return n
}

// begin starts an operation with a plan on nodes without work, and brings the steps of the plan to their statuses.
// The first operation creates the cluster.
func (c *planned) begin(typ model.OperationType, p testPlan) (op string) {
	c.t.Helper()
	c.operations++
	op = string(model.ClusterID(c.id).Operation(c.operations))
	var nodes []model.Node
	steps := 0
	for _, ph := range p.phases {
		for _, s := range ph.steps {
			if steps++; typ == model.OpCreate {
				nodes = append(nodes, c.node(s.name))
			}
		}
	}
	if typ == model.OpCreate {
		nodes = append(nodes, c.node("free-0"), c.node("free-1"))
	}
	own := c.free[:steps]
	c.free = c.free[steps:]
	d := &tree.Draft{Tree: tree.Tree{Name: p.name, Errors: p.errors}}
	for _, ph := range p.phases {
		kind, err := tree.ParseStrategy(p.strategy)
		if err != nil {
			c.t.Fatal(err)
		}
		at := uint32(0)
		if n := len(d.Phases); n > 0 {
			at = d.Phases[n-1].End
		}
		d.Phases = append(d.Phases, tree.Phase{Name: ph.name, Strategy: kind, Service: "app", First: at, End: at + uint32(len(ph.steps))})
	}
	b := plan.NewBuilder(own, []string{"app"})
	tasks := map[int]uint32{} // the first task of each step
	i := 0
	for _, ph := range p.phases {
		for _, s := range ph.steps {
			tasks[i] = b.Task(model.Configure, i, 0)
			d.Step = append(d.Step, uint32(i))
			if s.status == tree.Prepared { // its second task waits
				b.Edge(tasks[i], b.Task(model.Start, i, 0))
				d.Step = append(d.Step, uint32(i))
			}
			i++
		}
	}
	g, err := b.Build()
	if err == nil {
		g, err = d.Compile(g)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	start := &pb.StartOperation{
		Operation: logtest.Operation(model.Operation{
			ID: op, Tenant: "acme", Cluster: c.id, Type: typ, Plan: p.name, Actor: "bob", OnFailure: "pause",
		}),
		Cluster: logtest.Cluster(model.Cluster{
			ID: c.id, Tenant: "acme", Name: c.name, Owner: "bob", Services: []string{"app"}, Operation: op, Operations: c.operations,
			Definitions: map[string]model.Service{"app": {Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{
				"start": {Type: "shell"}, "stop": {Type: "shell"},
			}}}},
		}),
		Tree: logtest.Tree(&d.Tree), Graph: g.Encode(),
	}
	if typ == model.OpCreate {
		start.Nodes = logtest.Nodes(nodes...)
	}
	c.Must(&pb.Command{Tenant: "acme", Actor: "bob", Change: &pb.Command_StartOperation{StartOperation: start}})
	i = 0
	for _, ph := range p.phases {
		for j, s := range ph.steps {
			// A step can begin only after those before it, even if they are restarted then.
			ahead := s.status == tree.Pending && p.strategy == "" &&
				slices.ContainsFunc(ph.steps[j:], func(later step) bool { return later.status == tree.Starting })
			if ahead {
				c.bring(op, tasks[i], p.name, ph.name, step{s.name, tree.Complete})
				defer c.order(p.name, "restart", ph.name, s.name)
			} else {
				c.bring(op, tasks[i], p.name, ph.name, s)
			}
			i++
		}
		if ph.held {
			c.must(200, apitest.User, "POST", "/v1/clusters/"+c.id+"/plans/"+p.name+"/interrupt?phase="+ph.name, "")
		}
	}
	if p.held {
		c.must(200, apitest.User, "POST", "/v1/clusters/"+c.id+"/plans/"+p.name+"/interrupt", "")
	}
	return op
}

// order sends an order about a step.
func (c *planned) order(plan, order, phase, step string) {
	c.t.Helper()
	c.must(200, apitest.User, "POST", "/v1/clusters/"+c.id+"/plans/"+plan+"/"+order+"?phase="+phase+"&step="+url.QueryEscape(stepName(step)), "")
}

// bring brings a step, whose first task is given, to its status.
func (c *planned) bring(op string, task uint32, plan, phase string, s step) {
	c.t.Helper()
	id := string(model.OperationID(op).Task(task))
	switch s.status {
	case tree.Complete:
		c.order(plan, "forceComplete", phase, s.name)
	case tree.Starting:
		c.Report(id, model.TaskLeased, "")
	case tree.Started:
		c.Report(id, model.TaskRunning, "")
	case tree.Prepared:
		c.Report(id, model.TaskSucceeded, "")
	case tree.Error:
		c.Report(id, model.TaskFailed, "err")
	case tree.Delayed:
		c.Report(id, model.TaskReady, "err")
	default:
	}
}

// TestPlanQueries checks the cases of docs/spec/plans.md §5, by their ids.
func TestPlanQueries(t *testing.T) {
	held := func(p testPlan) testPlan { p.held = true; return p }
	failing := func(p testPlan) testPlan { p.errors = []string{"err"}; return p }
	phases := func(p ...phase) testPlan { return testPlan{name: "test-plan", phases: p} }
	const (
		pending, begun, done = tree.Pending, tree.Starting, tree.Complete
		already              = "Command has already been reported or completed"
		received             = `{"message":"Received cmd: `
	)
	type row struct {
		id, method, path, body string
		plan                   testPlan
		status                 int
		want                   string
		// after holds the statuses of plan, phase and steps after the request.
		after string
	}
	rows := []row{
		{"API-01", "GET", "", "", one(done), 200, `["test-plan","recovery"]`, ""},
		{"API-02", "GET", "/test-plan", "", one(done), 200, `"errors":[],"status":"COMPLETE","strategy":"serial"`, ""},
		{"API-03", "GET", "/test-plan", "", failing(one(pending)), 417, `"errors":["err"],"status":"ERROR"`, ""},
		{"API-04", "GET", "/test-plan", "", failing(one(done)), 417, `"errors":["err"]`, ""},
		{"API-05", "GET", "/test-plan", "", one(pending), 202, `"status":"PENDING"`, ""},
		{"API-06", "GET", "/no", "", one(done), 404, "Plan no not found", ""},
		{"API-07 plan", "POST", "/test-plan/continue", "", held(one(pending)), 200, received + `continue"}`, "PENDING PENDING PENDING"},
		{
			"API-07 phase",
			"POST",
			"/test-plan/continue?phase=test-phase",
			"",
			phases(phase{"test-phase", true, []step{{"s0", pending}}}),
			200,
			received + `continue"}`,
			"PENDING PENDING PENDING",
		},
		{
			"API-07 phase by id",
			"POST",
			"/test-plan/continue?phase={phase}",
			"",
			phases(phase{"test-phase", true, []step{{"s0", pending}}}),
			200,
			received + `continue"}`,
			"PENDING PENDING PENDING",
		},
		{"API-08 plan", "POST", "/no/continue", "", held(one(pending)), 404, "Plan no not found", "WAITING PENDING PENDING"},
		{"API-08 phase", "POST", "/test-plan/continue?phase=no", "", held(one(pending)), 404, "Phase no not found", "WAITING PENDING PENDING"},
		{"API-09 plan", "POST", "/test-plan/continue", "", one(begun, done), 208, already, ""},
		{"API-09 phase", "POST", "/test-plan/continue?phase=test-phase", "", one(tree.Started, done), 208, already, ""},
		{"API-10 plan", "POST", "/test-plan/continue", "", one(done), 208, already, ""},
		{"API-10 phase", "POST", "/test-plan/continue?phase=test-phase", "", one(done), 208, already, ""},
		{"API-11 plan", "POST", "/test-plan/interrupt", "", one(begun), 200, received + `interrupt"}`, "WAITING STARTING STARTING"},
		{
			"API-11 phase",
			"POST",
			"/test-plan/interrupt?phase=test-phase",
			"",
			one(pending),
			200,
			received + `interrupt"}`,
			"WAITING WAITING PENDING",
		},
		{
			"API-11 phase by id",
			"POST",
			"/test-plan/interrupt?phase={phase}",
			"",
			one(pending),
			200,
			received + `interrupt"}`,
			"WAITING WAITING PENDING",
		},
		{"API-12 plan", "POST", "/no/interrupt", "", one(pending), 404, "Plan no not found", "PENDING PENDING PENDING"},
		{"API-12 phase", "POST", "/test-plan/interrupt?phase=no", "", one(pending), 404, "Phase no not found", "PENDING PENDING PENDING"},
		{"API-13 plan", "POST", "/test-plan/interrupt", "", held(one(pending)), 208, already, ""},
		{
			"API-13 phase",
			"POST",
			"/test-plan/interrupt?phase=test-phase",
			"",
			phases(phase{"test-phase", true, []step{{"s0", pending}}}),
			208,
			already,
			"",
		},
		{"API-14 plan", "POST", "/test-plan/interrupt", "", one(done), 208, already, ""},
		{"API-14 phase", "POST", "/test-plan/interrupt?phase=test-phase", "", one(done), 208, already, ""},
		{
			"API-15 names",
			"POST",
			"/test-plan/forceComplete?phase=test-phase&step={s0}",
			"",
			one(pending),
			200,
			received + `forceComplete for Plan: test-plan, Phase: test-phase, Step: {s0}"}`,
			"COMPLETE COMPLETE COMPLETE",
		},
		{
			"API-15 ids",
			"POST",
			"/test-plan/forceComplete?phase={phase}&step={step}",
			"",
			one(pending),
			200,
			received + `forceComplete for Plan: test-plan, Phase: {phase}, Step: {step}"}`,
			"COMPLETE COMPLETE COMPLETE",
		},
		{
			"API-16 plan",
			"POST",
			"/no/forceComplete?phase=test-phase&step={s0}",
			"",
			one(pending),
			404,
			"Plan no not found",
			"PENDING PENDING PENDING",
		},
		{
			"API-16 phase",
			"POST",
			"/test-plan/forceComplete?phase=no&step={s0}",
			"",
			one(pending),
			404,
			"Phase no not found",
			"PENDING PENDING PENDING",
		},
		{
			"API-16 step",
			"POST",
			"/test-plan/forceComplete?phase=test-phase&step=no",
			"",
			one(pending),
			404,
			"Step no not found",
			"PENDING PENDING PENDING",
		},
		{
			"API-16 two steps of a name",
			"POST",
			"/test-plan/forceComplete?phase=test-phase&step={s0}",
			"",
			phases(phase{"test-phase", false, []step{{"s0", pending}, {"s0", pending}}}),
			404,
			"Step {s0} not found",
			"PENDING PENDING PENDING PENDING",
		},
		{"API-17", "POST", "/test-plan/forceComplete?phase=test-phase&step={s0}", "", one(done, pending), 208, already, ""},
		{
			"API-18",
			"POST",
			"/test-plan/forceComplete",
			"",
			one(pending, begun),
			200,
			received + `forceComplete for Plan: test-plan, Phase: null, Step: null"}`,
			"COMPLETE COMPLETE COMPLETE COMPLETE",
		},
		{
			"API-19",
			"POST",
			"/test-plan/forceComplete?phase=test-phase",
			"",
			one(pending),
			200,
			received + `forceComplete for Plan: test-plan, Phase: test-phase, Step: null"}`,
			"COMPLETE COMPLETE COMPLETE",
		},
		{"API-20", "POST", "/test-plan/forceComplete?step={s0}", "", one(pending), 400, "Missing phase", "PENDING PENDING PENDING"},
		{"API-21", "POST", "/null/forceComplete", "", one(pending), 404, "Plan null not found", "PENDING PENDING PENDING"},
		{
			"API-22",
			"POST",
			"/test-plan/restart?phase=test-phase&step={s0}",
			"",
			one(done),
			200,
			received + `restart for Plan: test-plan, Phase: test-phase, Step: {s0}"}`,
			"PENDING PENDING PENDING",
		},
		{
			"API-23 step",
			"POST",
			"/test-plan/restart?phase=test-phase&step=no",
			"",
			one(done),
			404,
			"Step no not found",
			"COMPLETE COMPLETE COMPLETE",
		},
		{"API-23 plan", "POST", "/no/restart?phase=test-phase&step={s0}", "", one(done), 404, "Plan no not found", "COMPLETE COMPLETE COMPLETE"},
		{
			"API-24",
			"POST",
			"/test-plan/restart",
			"",
			one(done, begun),
			200,
			received + `restart for Plan: test-plan, Phase: null, Step: null"}`,
			"PENDING PENDING PENDING PENDING",
		},
		{"API-24 pending", "POST", "/test-plan/restart", "", one(pending), 208, already, ""},
		{
			"API-25",
			"POST",
			"/test-plan/restart?phase=test-phase",
			"",
			one(done),
			200,
			received + `restart for Plan: test-plan, Phase: test-phase, Step: null"}`,
			"PENDING PENDING PENDING",
		},
		{"API-26", "POST", "/test-plan/restart?phase=no", "", one(done), 404, "Phase no not found", "COMPLETE COMPLETE COMPLETE"},
		{"API-27", "POST", "/test-plan/restart?step={s0}", "", one(done), 400, "Missing phase", "COMPLETE COMPLETE COMPLETE"},
		{
			"API-28",
			"POST",
			"/test-plan/start",
			`{}`,
			one(done, begun),
			200,
			received + `start test-plan with parameters: {}"}`,
			"IN_PROGRESS IN_PROGRESS COMPLETE STARTING",
		},
		{
			"API-29",
			"POST",
			"/test-plan/start",
			`{"B":"x=y","A":"1"}`,
			one(done),
			200,
			received + `start test-plan with parameters: {A=1, B=x=y}"}`,
			"PENDING PENDING PENDING",
		},
		{"API-30 plan", "POST", "/no/start", `{}`, one(done), 404, "Plan no not found", "COMPLETE COMPLETE COMPLETE"},
		{
			"API-30 name",
			"POST",
			"/no/start",
			`{"not-a-name":"x"}`,
			one(done),
			400,
			"Couldn't parse parameters: not-a-name is not a valid environment variable name",
			"COMPLETE COMPLETE COMPLETE",
		},
		{"API-30 no body", "POST", "/test-plan/start", "", one(done), 400, "Couldn't parse parameters: ", "COMPLETE COMPLETE COMPLETE"},
		{"API-30 not text", "POST", "/test-plan/start", `{"A":1}`, one(done), 400, "Couldn't parse parameters: ", "COMPLETE COMPLETE COMPLETE"},
		{"API-31", "POST", "/test-plan/stop", "", one(done, begun), 200, received + `stop"}`, "WAITING PENDING PENDING PENDING"},
		{"API-32", "POST", "/no/stop", "", one(done), 404, "Plan no not found", "COMPLETE COMPLETE COMPLETE"},
	}
	w := newWorld(t)
	for i, r := range rows {
		t.Run(r.id, func(t *testing.T) {
			w.t = t
			c := w.plannedCluster(fmt.Sprintf("hello-%d", i))
			op := c.begin(model.OpCreate, r.plan)
			v := &tree.View{Tree: &tree.Tree{Name: r.plan.name, Phases: []tree.Phase{{Name: "test-phase"}}}, Scope: op}
			v.StepName = func(uint32) string { return stepName("s0") }
			ids := strings.NewReplacer("{phase}", v.PhaseID(0), "{step}", v.StepID(0, 0), "{s0}", stepName("s0"))
			a := w.ask(apitest.User, r.method, "/v1/clusters/"+c.name+"/plans"+strings.ReplaceAll(ids.Replace(r.path), "[", "%5B"), r.body)
			kind := "application/json"
			if a.status == 208 || a.status == 400 || a.status == 404 {
				kind = "text/plain; charset=utf-8"
			}
			if a.status != r.status || a.header.Get("Content-Type") != kind {
				t.Fatalf("%d %s: %s", a.status, a.header.Get("Content-Type"), a.body)
			}
			got, want := a.body, ids.Replace(r.want)
			if kind == "application/json" {
				got = compact(t, got)
			} else if !strings.HasSuffix(want, ": ") && got != want {
				t.Errorf("%q, not %q", got, want)
			}
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
			if r.after == "" {
				return
			}
			var info tree.Info
			w.ask(apitest.Guest, "GET", "/v1/clusters/"+c.name+"/plans/test-plan", "").into(t, &info)
			all := info.Status + " " + info.Phases[0].Status
			for _, s := range info.Phases[0].Steps {
				all += " " + s.Status
			}
			if all != r.after {
				t.Errorf("then it is %s, not %s", all, r.after)
			}
		})
	}
}
