package operation

import (
	"encoding/json"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// The input of a task decodes into the shape that plugins use.
func TestWorkCarriesTheNodeItsConfigurationAndTheAction(t *testing.T) {
	cl := &model.Cluster{
		ID: "00000001", Name: "shop", Owner: "ann",
		Provider: model.Provider{Base: model.Base{Name: "p"}, ProviderType: "local", Provisioner: map[string]any{"api_password": "hidden"}},
		Config:   map[string]any{"store": "http://%ip.access_v4.service.store%:80", "me": "%host.self%"},
		Definitions: map[string]model.Service{"store": {Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{
			"start": {Type: "shell", Fields: map[string]any{"script": "go"}, Timeout: "7s"},
		}}}},
	}
	nodes := []*model.Node{
		{ID: "00000001-1000", Number: 1000, Hostname: "a", Services: []string{"store"}, Automators: []string{"shell"},
			IPAddresses: map[string]string{"access_v4": "127.0.0.2"}, Results: map[string]any{"providerid": "x"}},
		{ID: "00000001-1001", Number: 1001, Hostname: "b"},
	}
	s := NewSource(cl, nodes)
	for _, n := range nodes {
		for range 2 { // encoded first, then from the cache
			w, err := s.Work("op", "op/3", n, nil, model.Start, "store")
			if err != nil {
				t.Fatal(err)
			}
			var in model.TaskInput
			if err := json.Unmarshal(w.Input, &in); err != nil {
				t.Fatalf("%v: %s", err, w.Input)
			}
			c := in.Config
			if in.TaskID != "op/3" || in.TaskName != "START" || in.NodeID != n.ID || c.Hostname != n.Hostname || w.Plugin != "shell" ||
				!w.Automator || w.Timeout.String() != "7s" {
				t.Errorf("task of %s: %+v, %+v", n.ID, in, w)
			}
			if c.Cluster["store"] != "http://127.0.0.2:80" || c.Cluster["me"] != n.Hostname || c.Service == nil ||
				c.Service.Action.Fields["script"] != "go" {
				t.Errorf("configuration for %s: %s", n.ID, w.Input)
			}
			if c.Provider.Provisioner != nil {
				t.Errorf("a service's task carries the provider's credentials: %s", w.Input)
			}
		}
	}
	w, err := s.Work("op", "op/0", nodes[0], map[string]json.RawMessage{"k": json.RawMessage(`7`)}, model.Create, "")
	var in model.TaskInput
	if err == nil {
		err = json.Unmarshal(w.Input, &in)
	}
	if err != nil || in.Config.Provider.Provisioner["api_password"] != "hidden" || in.Config.Service != nil ||
		string(in.Config.Saved["k"]) != "7" {
		t.Errorf("hardware task: %v, %s", err, w.Input)
	}
}
