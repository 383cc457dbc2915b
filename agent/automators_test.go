package agent

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// played is an executor that answers what it is told to.
type played struct {
	offers  []string
	results map[string]*pb.Result // by plugin
	calls   []string
}

func (p *played) Types() (out []host.Type) {
	for _, name := range p.offers {
		out = append(out, host.Type{Kind: model.KindAutomatorType, PluginType: model.PluginType{Base: model.Base{Name: name}}})
	}
	return out
}

func (p *played) Execute(_ context.Context, t *pb.Task, _ host.Sink) *pb.Result {
	p.calls = append(p.calls, t.Plugin)
	if r := p.results[t.Plugin]; r != nil {
		return r
	}
	return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED}
}

func TestEveryAutomatorBootstraps(t *testing.T) {
	well, failed := pb.Outcome_OUTCOME_SUCCEEDED, pb.Outcome_OUTCOME_RETRYABLE
	for name, test := range map[string]struct {
		action     string
		automators []string
		offers     []string
		results    map[string]*pb.Result
		calls      []string
		outcome    pb.Outcome
		output     string
	}{
		"one":             {action: "BOOTSTRAP", automators: []string{"chef"}, offers: []string{"chef"}, calls: []string{"chef"}, outcome: well},
		"two":             {action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"shell", "chef"}, calls: []string{"chef", "shell"}, outcome: well},
		"another action":  {action: "INSTALL", automators: []string{"chef", "shell"}, calls: []string{"chef"}, outcome: well},
		"one is not here": {action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"chef"}, outcome: pb.Outcome_OUTCOME_NOTHING_DONE},
		"the first fails": {
			action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"chef", "shell"}, calls: []string{"chef"}, outcome: failed,
			results: map[string]*pb.Result{"chef": {Outcome: failed, Message: "no"}},
		},
		"both say something": {
			action: "BOOTSTRAP", automators: []string{"chef", "shell"}, offers: []string{"chef", "shell"}, calls: []string{"chef", "shell"}, outcome: well,
			results: map[string]*pb.Result{
				"chef":  {Outcome: well, Output: []byte(`{"hostname":"a","result":{"x":1,"y":1}}`)},
				"shell": {Outcome: well, Output: []byte(`{"result":{"y":2}}`)},
			},
			output: `{"hostname":"a","result":{"x":1,"y":2}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			input, err := json.Marshal(model.TaskInput{Config: model.TaskConfig{Automators: test.automators}})
			if err != nil {
				t.Fatal(err)
			}
			p := &played{offers: test.offers, results: test.results}
			task := &pb.Task{Id: "t", Fence: 7, Action: test.action, Plugin: test.automators[0], Automator: true, Input: input}
			res := everyAutomator{p}.Execute(t.Context(), task, host.Discard{})
			if res.Outcome != test.outcome || string(res.Output) != test.output || !slices.Equal(p.calls, test.calls) {
				t.Errorf("%v, called %v", res, p.calls)
			}
		})
	}
}
