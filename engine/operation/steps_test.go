package operation

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestRollouts: the request, the template's plans and the operation's default decide how nodes
// take turns.
func TestRollouts(t *testing.T) {
	action := map[string]model.ServiceAction{"configure": {Type: "x"}, "start": {Type: "x"}, "stop": {Type: "x"}}
	def := func(version int) model.Service {
		return model.Service{Base: model.Base{Name: "web", Version: version}, Provisioner: model.ServiceProvisioner{Actions: action}}
	}
	update := model.Plan{Name: "update", Phases: []model.PlanPhase{{Name: "webs", Service: "web", Strategy: "parallel-canary"}}}
	prepare := func(req Request, plans ...model.Plan) (string, error) {
		cl := &model.Cluster{ID: "1", Name: "c", Status: model.ClusterActive, Version: 3, Services: []string{"web"},
			Config:      map[string]any{"a": "1"},
			Template:    model.ClusterTemplate{Plans: plans, Defaults: model.Defaults{Provider: "p"}},
			Definitions: map[string]model.Service{"web": def(1)}}
		at := Input{Cluster: cl}
		for i := range 4 {
			at.Nodes = append(at.Nodes, &model.Node{ID: fmt.Sprint("n", i), Number: 1000 + i, Hostname: fmt.Sprint("c-", i, ".local"),
				Services: cl.Services,
				States:   map[string]string{"web": "START"}, Created: true, Confirmed: true})
		}
		known := model.NewSet()
		newest := def(2)
		newest.Links = []model.Link{{Label: "new", URL: "http://x/"}}
		newest.Provisioner.Actions = map[string]model.ServiceAction{"configure": {Type: "y"}, "start": {Type: "x"}, "stop": {Type: "x"}}
		known.Add(model.Definition{Kind: model.KindService, Name: "web", Value: &newest})
		known.Add(model.Definition{Kind: model.KindProvider, Name: "p", Value: &model.Provider{Base: model.Base{Name: "p"}}})
		p, err := Prepare(t.Context(), model.Caller{}, req, at, known, "1-002")
		if err != nil {
			return "", err
		}
		var out []string
		for _, ph := range p.Tree.Phases {
			s := ph.Strategy
			out = append(out, fmt.Sprintf("%s %s %d%t %d: %d", ph.Name, s, s.Size, s.Percent, s.MaxFailures, ph.End-ph.First))
		}
		return p.Tree.Strategy.String() + " | " + strings.Join(out, " | "), nil
	}
	roll := func(op model.OperationType, strategy string, failures int, staged bool) Request {
		return Request{Type: op, Restart: true, Rollout: model.Rollout{Strategy: strategy, MaxFailures: model.Int(failures), Staged: staged}}
	}
	for _, c := range []struct {
		req   Request
		plans []model.Plan
		want  string
	}{
		{roll(model.OpUpgrade, "", 0, false), nil, "serial | nodes serial 0false 0: 4"},
		{roll(model.OpUpgrade, "", 2, false), nil, "serial | nodes serial 0false 2: 4"},
		{roll(model.OpUpgrade, "canary", 0, false), nil, "serial | nodes serial-canary 0false 0: 4"},
		{roll(model.OpUpgrade, "", 0, false), []model.Plan{update}, "serial | webs parallel-canary 0false 0: 4"},
		{roll(model.OpUpgrade, "", 2, false), []model.Plan{update}, "serial | webs parallel-canary 0false 2: 4"},
		{roll(model.OpUpgrade, "batch=50%", 1, false), []model.Plan{update}, "serial | nodes batch 50true 1: 4"},
		{roll(model.OpRestart, "", 0, false), nil, "dependency | web dependency 0false 0: 4"},
		{roll(model.OpRestart, "batch=2", 0, false), nil, "serial | nodes batch 2false 0: 4"},
		{roll(model.OpRestart, "parallel-canary", 0, false), nil, "serial | nodes parallel-canary 0false 0: 4"},
		{roll(model.OpRestart, "", 1, false), nil, "serial | nodes parallel 0false 1: 4"},
		{roll(model.OpRestart, "", 0, true), nil, "serial | stage-1 parallel 0false 0: 4 | stage-2 parallel 0false 0: 4"},
		{Request{Type: model.OpConfigure, Config: map[string]any{"a": "2"}, Restart: true, Rollout: model.Rollout{Strategy: "serial"}}, nil,
			"serial | nodes serial 0false 0: 4"},
	} {
		got, err := prepare(c.req, c.plans...)
		if err != nil || got != c.want {
			t.Errorf("%s %+v: %q, %v; want %q", c.req.Type, c.req.Rollout, got, err, c.want)
		}
	}
	for want, r := range map[string]model.Rollout{
		"strategy: must be serial": {Strategy: "sideways"}, "maxFailures: must be": {MaxFailures: -1},
		"staged: is a strategy": {Staged: true, Strategy: "serial"},
	} {
		var fs model.Faults
		if _, err := prepare(Request{Type: model.OpRestart, Rollout: r}); !errors.As(err, &fs) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
