package executor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// scripted is a host.Executor that returns prepared results.
type scripted struct {
	offers  []string
	results map[string]*pb.Result // by plugin
	calls   []string
	succeed int // number of the call from which on all calls succeed; 0: results only
}

func (p *scripted) Types() (out []host.Type) {
	for _, name := range p.offers {
		out = append(out, host.Type{Kind: model.KindAutomatorType, PluginType: model.PluginType{Base: model.Base{Name: name}}})
	}
	return out
}

func (p *scripted) Execute(_ context.Context, t *pb.Task, _ host.Sink) *pb.Result {
	p.calls = append(p.calls, t.Plugin)
	if r := p.results[t.Plugin]; r != nil && (p.succeed == 0 || len(p.calls) < p.succeed) {
		return r
	}
	return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
}

func TestEveryAutomatorBootstraps(t *testing.T) {
	ok, failed := pb.Outcome_OUTCOME_SUCCEEDED, pb.Outcome_OUTCOME_RETRYABLE
	for name, test := range map[string]struct {
		action     string
		automators []string
		offers     []string
		results    map[string]*pb.Result
		calls      []string
		outcome    pb.Outcome
		output     string
	}{
		"one": {action: "BOOTSTRAP", automators: []string{"chef"}, offers: []string{"chef"}, calls: []string{"chef"}, outcome: ok},
		"two": {action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"shell", "chef"},
			calls: []string{"chef", "shell"}, outcome: ok},
		"another action": {action: "INSTALL", automators: []string{"chef", "shell"}, calls: []string{"chef"}, outcome: ok},
		"one is not here": {action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"chef"},
			outcome: pb.Outcome_OUTCOME_NOTHING_DONE},
		"the first fails": {
			action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"chef", "shell"}, calls: []string{"chef"}, outcome: failed,
			results: map[string]*pb.Result{"chef": {Outcome: failed, Message: "no"}},
		},
		"both say something": {
			action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"chef", "shell"}, calls: []string{"chef", "shell"},
			outcome: ok,
			results: map[string]*pb.Result{
				"chef":  {Outcome: ok, Output: []byte(`{"hostname":"a","result":{"x":1,"y":1}}`)},
				"shell": {Outcome: ok, Output: []byte(`{"result":{"y":2}}`)},
			},
			output: `{"hostname":"a","result":{"x":1,"y":2}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			input, err := json.Marshal(model.TaskInput{Config: model.TaskConfig{Automators: test.automators}})
			if err != nil {
				t.Fatal(err)
			}
			p := &scripted{offers: test.offers, results: test.results}
			task := &pb.Task{Id: "t", Fence: 7, Action: test.action, Plugin: test.automators[0], Automator: true, Input: input}
			res := New(Config{Plugins: p}).Execute(t.Context(), task, host.Discard{})
			if res.Outcome != test.outcome || string(res.Output) != test.output || !slices.Equal(p.calls, test.calls) {
				t.Errorf("%v, called %v", res, p.calls)
			}
		})
	}
}

// TestReadiness checks that a readiness check is repeated until it succeeds, and that a stopped one
// is cancelled.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := func() *pb.Task {
			return &pb.Task{Id: "t", Action: "CHECK", Plugin: "shell", TimeoutMs: 10_000,
				Ready: &pb.Ready{DelayMs: 100, IntervalMs: 1000, TimeoutMs: 500}}
		}
		p := &scripted{results: map[string]*pb.Result{"shell": {Outcome: pb.Outcome_OUTCOME_RETRYABLE, Message: "no port"}}}
		x := New(Config{Plugins: p})
		res := x.Execute(t.Context(), task(), host.Discard{})
		if res.Outcome != pb.Outcome_OUTCOME_RETRYABLE || res.Message != "the service is not ready: no port" || len(p.calls) != 10 {
			t.Errorf("%v after %d checks", res, len(p.calls))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if res := x.Execute(ctx, task(), host.Discard{}); res.Outcome != pb.Outcome_OUTCOME_CANCELLED {
			t.Error(res)
		}
		p.calls, p.succeed = nil, 4
		if res := x.Execute(t.Context(), task(), host.Discard{}); res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED || len(p.calls) != 4 {
			t.Errorf("%v after %d checks", res, len(p.calls))
		}
	})
}

// noResources has no plugin resources to lay out.
type noResources struct{ err error }

func (n noResources) Planned(context.Context, string, uint64, model.Kind, string) (string, func(), error) {
	return "/resources", func() {}, n.err
}

func (n noResources) Current(context.Context, string, model.Kind, string) (string, func(), error) {
	return "/resources", func() {}, n.err
}

func TestMissingResources(t *testing.T) {
	p := &scripted{}
	x := New(Config{Plugins: p, Resources: noResources{errors.New("on no agent")}})
	task := &pb.Task{Id: "t", Node: "n", Fence: 7, Action: "INSTALL", Plugin: "chef", Automator: true, Resources: 3}
	for name, res := range map[string]*pb.Result{
		"planned":   x.Execute(t.Context(), task, host.Discard{}),
		"unplanned": x.ExecuteUnplanned(t.Context(), task, host.Discard{}),
	} {
		if res.Outcome != pb.Outcome_OUTCOME_NOTHING_DONE || res.Fence != 7 || res.Message != "plugin resources: on no agent" ||
			len(p.calls) > 0 {
			t.Errorf("%s: %v", name, res)
		}
	}
}

func TestMachineOfLocalNodes(t *testing.T) {
	output := func(transport string) []byte { return []byte(`{"result":{"transport":"` + transport + `"}}`) }
	for name, test := range map[string]struct {
		action, transport, want string
	}{
		"local":          {"CREATE", "local", `{"result":{"machine":"m1","transport":"local"}}`},
		"remote":         {"CREATE", "ssh", `{"result":{"transport":"ssh"}}`},
		"another action": {"CONFIRM", "local", `{"result":{"transport":"local"}}`},
	} {
		p := &scripted{results: map[string]*pb.Result{"local": {Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Output: output(test.transport)}}}
		res := New(Config{Plugins: p, Machine: "m1"}).Execute(t.Context(), &pb.Task{Action: test.action, Plugin: "local"}, host.Discard{})
		if string(res.Output) != test.want {
			t.Errorf("%s: %s", name, res.Output)
		}
	}
}

// talking is a host.Executor whose plugins print their whole input and fail.
type talking struct{ secrets []string }

func (*talking) Types() []host.Type {
	sensitive := func(name string) model.PluginParameters {
		return model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{name: {Label: "x", Type: "text", Sensitive: true}}}}
	}
	return []host.Type{
		{Kind: model.KindAutomatorType, PluginType: model.PluginType{Base: model.Base{Name: "safe"}, Parameters: sensitive("code")}},
		{Kind: model.KindAutomatorType, PluginType: model.PluginType{Base: model.Base{Name: "other"}, Parameters: sensitive("note")}},
		{Kind: model.KindProviderType, PluginType: model.PluginType{Base: model.Base{Name: "vault"}, Parameters: sensitive("seed")}},
	}
}

func (p *talking) Execute(_ context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	p.secrets = t.Secrets
	sink.Log(&pb.LogLine{Text: string(t.Input)})
	return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_FATAL, Message: string(t.Input), LogTail: string(t.Input)}
}

// heard is a host.Sink that keeps the log.
type heard struct {
	host.Discard
	text string
}

func (h *heard) Log(l *pb.LogLine) { h.text += l.Text }

// nothing lays out no resources.
type nothing struct{}

func (nothing) Planned(context.Context, string, uint64, model.Kind, string) (string, func(), error) {
	return "", func() {}, nil
}

func (nothing) Current(context.Context, string, model.Kind, string) (string, func(), error) {
	return "", func() {}, nil
}

// TestSecretsOfUnplannedTasks has the plugin of a change object print the secrets of the object and of its node.
func TestSecretsOfUnplannedTasks(t *testing.T) {
	in, err := json.Marshal(model.TaskInput{Config: model.TaskConfig{
		Service: &model.TaskService{Action: model.TaskAction{Fields: map[string]any{"code": "canary-code", "note": "see the moon"}}},
		Results: map[string]any{"ssh-auth": map[string]any{"private_key": "canary-key"}, "seed": "canary-seed", "providerid": "machine-17"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var log heard
	p := &talking{}
	x := New(Config{Plugins: p, Resources: nothing{}, LeaseEnds: func() time.Time { return time.Now().Add(time.Hour) }})
	res := x.ExecuteUnplanned(t.Context(), &pb.Task{Id: "change/x", Fence: 7, Action: "START", Plugin: "safe", Automator: true, Input: in}, &log)
	for _, said := range []string{log.text, res.Message} {
		if strings.Contains(said, "canary") || !strings.Contains(said, "see the moon") || !strings.Contains(said, "machine-17") {
			t.Errorf("it says %s", said)
		}
	}
	if res.LogTail != "" || len(p.secrets) != 3 {
		t.Errorf("the tail is %q; the plugin host knows %d secrets", res.LogTail, len(p.secrets))
	}
}

// TestTaskOnNoNode checks that a task without a node becomes one of this machine, so that Guard asks for the setting host_exec.
func TestTaskOnNoNode(t *testing.T) {
	in := `{"parameters":{"A":"b"},"taskId":"t","config":{"cluster":{"number":12345678901234567},"results":{"transport":"ssh"}}}`
	h, err := host.New(host.Config{DataDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	task := &pb.Task{Id: "t", Plugin: "shell", Action: "CHECK", Automator: true, Input: []byte(in)}
	res := New(Config{Plugins: NewGuard(h, hostexec.Rules{}), Own: "/own"}).Execute(t.Context(), task, host.Discard{})
	if res.Outcome != pb.Outcome_OUTCOME_NOTHING_DONE || !strings.Contains(res.Message, "host_exec") {
		t.Errorf("%v", res)
	}
	out, err := New(Config{Own: "/own"}).onAgent(task)
	want := `{"config":{"cluster":{"number":12345678901234567},"results":{"providerid":"/own","transport":"local"}},"parameters":{"A":"b"},"taskId":"t"}`
	if err != nil || string(out.Input) != want {
		t.Errorf("%s, %v", out.Input, err)
	}
	on := &pb.Task{Id: "t", Node: "n", Automator: true, Input: []byte(in)}
	if out, err := New(Config{Own: "/own"}).onAgent(on); err != nil || out != on {
		t.Errorf("%v, %v", out, err)
	}
	for _, broken := range []string{``, `{`, `{"config":3}`} {
		res := New(Config{Own: "/own"}).Execute(t.Context(), &pb.Task{Plugin: "shell", Automator: true, Input: []byte(broken)}, host.Discard{})
		if res.Outcome != pb.Outcome_OUTCOME_NOTHING_DONE {
			t.Errorf("%q: %v", broken, res)
		}
	}
}
