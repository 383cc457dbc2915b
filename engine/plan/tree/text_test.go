package tree

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPlanText(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"single phase", `{"phases":[{"id":"1","name":"Deployment","steps":[{"name":"kafka-0:[broker]","status":"COMPLETE"},` +
			`{"name":"kafka-1:[broker]","status":"PENDING"}],"status":"IN_PROGRESS","strategy":"serial"}],"errors":[],"status":"IN_PROGRESS",` +
			`"strategy":"serial"}`,
			`deploy (serial strategy) (IN_PROGRESS)
└─ Deployment (serial strategy) (IN_PROGRESS)
   ├─ kafka-0:[broker] (COMPLETE)
   └─ kafka-1:[broker] (PENDING)`},
		{"three errors, no strategy", `{"phases":[{"name":"Deployment","steps":[{"name":"kafka-0:[broker]","status":"ERROR"}],` +
			`"status":"ERROR"}],"errors":["foo","bar","baz"],"status":"ERROR"}`,
			`deploy (<UNKNOWN> strategy) (ERROR)
└─ Deployment (<UNKNOWN> strategy) (ERROR)
   └─ kafka-0:[broker] (ERROR)

Errors:
- foo
- bar
- baz`},
		{"multi phase", `{"phases":[
			{"name":"Deployment","steps":[{"name":"kafka-0:[broker]","status":"COMPLETE"},{"name":"kafka-1:[broker]","status":"IN_PROGRESS"},{"name":"kafka-2:[broker]","status":"PENDING"}],"status":"IN_PROGRESS","strategy":"serial"},
			{"name":"Reindexing","steps":[{"name":"kafka-0:[reindex]","status":"PENDING"},{"name":"kafka-1:[reindex]","status":"PENDING"},{"name":"kafka-2:[reindex]","status":"PENDING"}],"status":"PENDING","strategy":"parallel"}],
			"errors":["foo"],"status":"IN_PROGRESS","strategy":"serial"}`,
			`deploy (serial strategy) (IN_PROGRESS)
├─ Deployment (serial strategy) (IN_PROGRESS)
│  ├─ kafka-0:[broker] (COMPLETE)
│  ├─ kafka-1:[broker] (IN_PROGRESS)
│  └─ kafka-2:[broker] (PENDING)
└─ Reindexing (parallel strategy) (PENDING)
   ├─ kafka-0:[reindex] (PENDING)
   ├─ kafka-1:[reindex] (PENDING)
   └─ kafka-2:[reindex] (PENDING)

Errors:
- foo`},
		{"empty", `{}`, `deploy (<UNKNOWN> strategy) (<UNKNOWN>)`},
		{"no phases", `{"phases":[],"errors":[],"status":"COMPLETE","strategy":"serial"}`, `deploy (serial strategy) (COMPLETE)`},
		{"empty phase", `{"phases":[{}]}`, "deploy (<UNKNOWN> strategy) (<UNKNOWN>)\n└─ <UNKNOWN> (<UNKNOWN> strategy) (<UNKNOWN>)"},
		{"no steps", `{"phases":[{"name":"a","status":"COMPLETE","strategy":"serial","steps":[]}],"status":"COMPLETE","strategy":"serial"}`,
			"deploy (serial strategy) (COMPLETE)\n└─ a (serial strategy) (COMPLETE)"},
		{"empty step", `{"phases":[{"steps":[{}]}]}`,
			"deploy (<UNKNOWN> strategy) (<UNKNOWN>)\n└─ <UNKNOWN> (<UNKNOWN> strategy) (<UNKNOWN>)\n   └─ <UNKNOWN> (<UNKNOWN>)"},
	} {
		var i Info
		if err := json.Unmarshal([]byte(c.body), &i); err != nil {
			t.Fatal(err)
		}
		if got := i.Text("deploy"); got != c.want {
			t.Errorf("%s:\n%s\nnot\n%s", c.name, got, c.want)
		}
	}
}

func TestPodsText(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"service", `{"service":"hello-world","pods":[{"name":"hello","instances":[{"name":"hello-0","tasks":[{"id":"x",` +
			`"name":"hello-0-server","status":"RUNNING"}]}]}]}`,
			"hello-world\n└─ hello\n   └─ hello-0\n      └─ hello-0-server (RUNNING)"},
		{"two types", `{"service":"hello-world","pods":[
			{"name":"hello","instances":[{"name":"hello-0","tasks":[{"name":"hello-0-server","status":"RUNNING"}]}]},
			{"name":"world","instances":[{"name":"world-0","tasks":[{"name":"world-0-server","status":"RUNNING"},{"name":"world-0-sidecar"}]},{"name":"world-1","tasks":[]}]}]}`,
			`hello-world
├─ hello
│  └─ hello-0
│     └─ hello-0-server (RUNNING)
└─ world
   ├─ world-0
   │  ├─ world-0-server (RUNNING)
   │  └─ world-0-sidecar (<UNKNOWN>)
   └─ world-1`},
		{"no pods", `{"service":"hello-world","pods":[]}`, "hello-world"},
		{"nothing", `{}`, "<UNKNOWN>"},
	} {
		var p Pods
		if err := json.Unmarshal([]byte(c.body), &p); err != nil {
			t.Fatal(err)
		}
		if got := p.Text(); got != c.want {
			t.Errorf("%s:\n%s\nnot\n%s", c.name, got, c.want)
		}
	}
}

// TestDocumentTrees checks the computed states of the document's plans.
func TestDocumentTrees(t *testing.T) {
	for _, c := range []struct {
		id, hello, world    string
		plan, first, second Status
		candidates          []uint32
	}{
		{"initial", "PP", "PP", Pending, Pending, Pending, []uint32{0}},
		{"prepared", "RP", "PP", InProgress, InProgress, Pending, []uint32{0}},
		{"starting", "SP", "PP", Starting, Starting, Pending, []uint32{0}},
		{"started", "TP", "PP", Started, Started, Pending, []uint32{0}},
		{"hello complete", "CC", "PP", InProgress, Complete, Pending, []uint32{2}},
		{"all complete", "CC", "CC", Complete, Complete, Complete, nil},
		{"config change", "CP", "PP", InProgress, InProgress, Pending, []uint32{1}},
		{"changed in the middle of a rollout", "CC", "PP", InProgress, Complete, Pending, []uint32{2}},
	} {
		v := pure(t, "deploy", "serial", "hello serial: "+c.hello, "world serial: "+c.world)
		v.StepName = func(s uint32) string {
			return []string{"hello-0:[server]", "hello-1:[server]", "world-0:[server]", "world-1:[server]"}[s]
		}
		wantCandidates(t, c.id, v, c.candidates...)
		text := v.Info().Text(v.Name)
		for _, line := range []string{
			"deploy (serial strategy) (" + c.plan.String() + ")", "├─ hello (serial strategy) (" + c.first.String() + ")",
			"└─ world (serial strategy) (" + c.second.String() + ")", "│  ├─ hello-0:[server] (" + v.Steps[0].Status.String() + ")",
		} {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("%s: no %q in\n%s", c.id, line, text)
			}
		}
	}
	// In a parallel plan of serial phases, the next step of each phase is a candidate.
	v := pure(t, "foo", "parallel", "bar serial: CP", "baz serial: CP")
	names := []string{"qux", "quuz", "quux", "corge"}
	if got := v.Candidates(nil); len(got) != 2 || names[got[0]] != "quuz" || names[got[1]] != "corge" {
		t.Errorf("foo/bar/baz: %v", got)
	}
}

// TestInfo checks that the JSON is that of the DC/OS SDK, with the keys in the same order.
func TestInfo(t *testing.T) {
	v := pure(t, "deploy", "serial", "hello serial: C")
	v.StepName = func(uint32) string { return "hello-0:[server]" }
	b, err := json.Marshal(v.Info())
	phase, step := v.PhaseID(0), v.StepID(0, 0)
	want := `{"phases":[{"id":"` + phase + `","name":"hello","steps":[{"id":"` + step +
		`","status":"COMPLETE","name":"hello-0:[server]","message":"Step: hello-0:[server] [` + step +
		`] with status: COMPLETE"}],"status":"COMPLETE","strategy":"serial"}],"errors":[],"status":"COMPLETE","strategy":"serial"}`
	if err != nil || string(b) != want {
		t.Errorf("%s\nnot\n%s (%v)", b, want, err)
	}
	if !isID(phase) || !isID(step) || phase == step || phase != v.PhaseID(0) {
		t.Errorf("ids %s, %s", phase, step)
	}
	other := *v
	other.Scope = "another operation"
	if other.PhaseID(0) == phase {
		t.Error("two plans have one id")
	}
	for _, c := range []struct {
		id, steps, failed string
		want              int
	}{{"API-02", "C", "", CodeOK}, {"API-03", "E", "x", CodeErrors}, {"API-04", "C", "x", CodeErrors}, {"API-05", "P", "", CodeGoingOn}} {
		v := pure(t, "deploy", "serial", "hello serial: "+c.steps)
		if c.failed != "" {
			v.Failed = []string{c.failed}
		}
		if got := v.Info().Code(); got != c.want {
			t.Errorf("%s: %d, not %d", c.id, got, c.want)
		}
	}
}

func TestTold(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Told("paused", "deploy", "", "", true), `"deploy" plan has been paused.`},
		{Told("paused", "deploy", "hello", "", true), `"deploy" plan: phase "hello" has been paused.`},
		{Told("resumed", "deploy", "", "", false), `"deploy" plan could not be resumed.`},
		{Told("restarted", "deploy", "x", "y", true), `"deploy" plan: step "y" in phase "x" has been restarted.`},
		{Told("forced to complete", "deploy", "x", "y", true), `"deploy" plan: step "y" in phase "x" has been forced to complete.`},
	} {
		if c.got != c.want {
			t.Errorf("%s, not %s", c.got, c.want)
		}
	}
	got, err := ParseParams([]string{"var=value", "var2=value2", "var4=value=more", "empty="})
	if b, _ := json.Marshal(got); err != nil || string(b) != `{"empty":"","var":"value","var2":"value2","var4":"value=more"}` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := ParseParams([]string{"var value"}); err == nil ||
		!strings.Contains(err.Error(), "Must have one variable name and one variable value per definition") {
		t.Errorf("%v", err)
	}
}
