package operation

import (
	"context"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestAllowDecommission: a service that may not be decommissioned stays until its definition
// allows it. That change alone rebuilds nothing (docs/spec/plans.md §10, §12).
func TestAllowDecommission(t *testing.T) {
	no := false
	entry := map[string]map[string]any{"p": {}}
	services := map[string]model.Service{}
	known := model.Set{}
	known.Add(model.Define(model.KindHardwareType, &model.HardwareType{Base: model.Base{Name: "h"}, ProviderMap: entry}))
	known.Add(model.Define(model.KindImageType, &model.ImageType{Base: model.Base{Name: "i"}, ProviderMap: entry}))
	for _, name := range []string{"db", "web"} {
		s := model.Service{Base: model.Base{Name: name},
			Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"start": {Type: "x"}, "stop": {Type: "x"}}}}
		today := s
		known.Add(model.Define(model.KindService, &today))
		if name == "db" {
			s.AllowDecommission = &no
		}
		services[name] = s
	}
	tpl := model.ClusterTemplate{Base: model.Base{Name: "t"}}
	tpl.Compatibility.Services = []string{"db", "web"}
	cl := &model.Cluster{ID: "1", Name: "c", Status: model.ClusterActive, Version: 3, Services: []string{"db", "web"}, Definitions: services,
		Template: tpl, Provider: model.Provider{Base: model.Base{Name: "p"}}}
	at := Input{Cluster: cl}
	for i, carries := range [][]string{{"db", "web"}, {"web"}, {"db", "web"}} {
		id := []string{"1-1000", "1-1001", "1-1002"}[i]
		states := map[string]string{}
		for _, name := range carries {
			states[name] = "START"
		}
		at.Nodes = append(at.Nodes, &model.Node{ID: id, Number: 1000 + i, Hostname: "c" + id + ".local", Services: carries, States: states,
			HardwareType: "h", ImageType: "i", Created: true, Confirmed: true})
	}
	ask := func(req Request) (*Prepared, error) {
		return Prepare(context.Background(), model.Caller{}, req, at, known, "1-002")
	}
	for _, req := range []Request{
		{Type: model.OpShrink, Victims: []string{"1002"}},
		{Type: model.OpRemoveServices, Services: []string{"db"}},
	} {
		if _, err := ask(req); err == nil || !strings.Contains(err.Error(), `service db would be taken off node c1-100`) {
			t.Errorf("%s: %v", req.Type, err)
		}
	}
	if _, err := ask(Request{Type: model.OpShrink, Victims: []string{"1001"}}); err != nil {
		t.Errorf("a node without it: %v", err)
	}
	p, err := ask(Request{Type: model.OpUpgrade, Services: []string{"db"}})
	if err != nil || p.Graph.Tasks() != 0 || p.Cluster.Definitions["db"].AllowDecommission != nil {
		t.Fatalf("the definition of today: %+v, %v", p, err)
	}
	cl = &p.Cluster
	cl.Status, at.Cluster = model.ClusterActive, cl
	if _, err := ask(Request{Type: model.OpShrink, Victims: []string{"1002"}}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
