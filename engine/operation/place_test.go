package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
)

// placed is a cluster in zones that a test takes through operations.
type placed struct {
	known model.Set
	cl    *model.Cluster
	nodes []*model.Node
}

func newPlaced(zones, spread string) *placed {
	entry := map[string]map[string]any{"p": {"flavor": "f", "image": "i"}}
	x := &placed{known: model.Set{}}
	x.known.Add(model.Define(model.KindProvider, &model.Provider{Base: model.Base{Name: "p"}, Provisioner: map[string]any{"zones": zones}}))
	x.known.Add(model.Define(model.KindProviderType, &model.PluginType{}))
	x.known.Add(model.Define(model.KindHardwareType, &model.HardwareType{Base: model.Base{Name: "h"}, ProviderMap: entry}))
	x.known.Add(model.Define(model.KindImageType, &model.ImageType{Base: model.Base{Name: "i"}, ProviderMap: entry}))
	for name, over := range map[string]string{"db": spread, "web": ""} {
		x.known.Add(
			model.Define(
				model.KindService,
				&model.Service{
					Base:        model.Base{Name: name},
					Spread:      over,
					Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{"start": {Type: "x"}}},
				},
			),
		)
	}
	tpl := model.ClusterTemplate{
		Base:     model.Base{Name: "t"},
		Defaults: model.Defaults{Provider: "p", Services: []model.DefaultService{{Name: "db"}, {Name: "web"}}, HardwareType: "h", ImageType: "i"},
	}
	tpl.Compatibility.Services = []string{"db", "web"}
	tpl.Constraints.Layout.CantCoexist = [][]string{{"db", "web"}}
	x.known.Add(model.Define(model.KindClusterTemplate, &tpl))
	return x
}

// take applies a prepared operation.
func (x *placed) take(p *Prepared, err error) error {
	if err != nil {
		return err
	}
	p.Cluster.Status = model.ClusterActive
	p.Cluster.Version++
	x.cl, x.nodes = &p.Cluster, nil
	for _, n := range p.Nodes {
		if n.Leaves {
			continue
		}
		n.Created, n.Confirmed, n.States = true, true, map[string]string{}
		for _, s := range n.Services {
			n.States[s] = "START"
		}
		x.nodes = append(x.nodes, &n)
	}
	return nil
}

func (x *placed) create(nodes int) error {
	return x.take(
		Create(
			context.Background(),
			model.Caller{Tenant: "t"},
			model.CreateCluster{Name: "c", ClusterTemplate: "t", NumMachines: model.Int(nodes)},
			x.known,
			IDs{Cluster: "00000001", Operation: "o"},
		),
	)
}

func (x *placed) do(req Request) error {
	return x.take(Prepare(context.Background(), model.Caller{Tenant: "t"}, req, Input{Cluster: x.cl, Nodes: x.nodes}, x.known, "o"))
}

// zones returns "name: zone" for each node with a service.
func (x *placed) zones(service string) map[string]string {
	out := map[string]string{}
	for _, n := range x.nodes {
		if service == "" || slices.Contains(n.Services, service) {
			out[n.ID] = n.Zone
		}
	}
	return out
}

// uneven returns the greatest difference between the counts of two zones.
func uneven(at map[string]string, zones []string) int {
	var counts []int
	for _, z := range zones {
		n := 0
		for _, have := range at {
			if have == z {
				n++
			}
		}
		counts = append(counts, n)
	}
	return slices.Max(counts) - slices.Min(counts)
}

// TestZones: through any sequence of operations, nodes are in zones that the provider lists
// and stay there, and spread services are spread evenly.
func TestZones(t *testing.T) {
	zones := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		x := newPlaced("a, b,c", "zone")
		if err := x.create(rapid.IntRange(2, 9).Draw(t, "nodes")); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 6).Draw(t, "operations") {
			was := x.zones("")
			req := Request{Type: rapid.SampledFrom([]model.OperationType{model.OpGrow, model.OpShrink, model.OpReplaceNode}).Draw(t, "what")}
			if req.Type == model.OpReplaceNode {
				req.Victims = []string{rapid.SampledFrom(x.nodes).Draw(t, "victim").ID}
				req.Forced = rapid.Bool().Draw(t, "forced")
			} else {
				req.Nodes = rapid.IntRange(1, 3).Draw(t, "by")
			}
			if err := x.do(req); err != nil {
				if req.Type == model.OpShrink {
					continue // too few nodes would be left
				}
				t.Fatal(err)
			}
			for id, zone := range x.zones("") {
				if !slices.Contains(zones, zone) || was[id] != "" && was[id] != zone {
					t.Fatalf("%v: node %s, which was in %q, is in %q", req.Type, id, was[id], zone)
				}
			}
			if d := uneven(x.zones("db"), zones); d > 1 {
				t.Fatalf("%v: databases are at %v", req.Type, x.zones("db"))
			}
		}
	})
}

// TestZonesWithoutSpread: nodes without spread services are distributed as evenly as possible,
// counting existing nodes.
func TestZonesWithoutSpread(t *testing.T) {
	x := newPlaced("a,b", "")
	if err := x.create(3); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(x.zones("")); got != "map[00000001-1000:a 00000001-1001:b 00000001-1002:a]" {
		t.Error(got)
	}
	x.nodes[2].Zone = "b" // where its provider placed it
	if err := x.do(Request{Type: model.OpGrow, Nodes: 2}); err != nil {
		t.Fatal(err)
	}
	if d := uneven(x.zones(""), []string{"a", "b"}); d != 1 || x.nodes[2].Zone != "b" || x.nodes[3].Zone != "a" {
		t.Errorf("nodes are at %v", x.zones(""))
	}
}

// TestLostZone: nodes of a zone that the provider no longer lists are replaced in the
// remaining zones, one after the other. Nodes without a zone stay without one.
func TestLostZone(t *testing.T) {
	x := newPlaced("a,b,c", "zone")
	if err := x.create(9); err != nil {
		t.Fatal(err)
	}
	was := x.zones("")
	replace := func(zone string) {
		t.Helper()
		for _, n := range x.nodes {
			if n.Zone != zone {
				continue
			}
			if err := x.do(Request{Type: model.OpReplaceNode, Victims: []string{n.ID}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.cl.Provider.Provisioner = map[string]any{"zones": []any{"a", "d"}}
	replace("b")
	replace("c")
	for id, zone := range x.zones("") {
		if zone != "a" && zone != "d" || was[id] == "a" && zone != "a" {
			t.Errorf("node %s, which was in %s, is in %s", id, was[id], zone)
		}
	}
	if d := uneven(x.zones("db"), []string{"a", "d"}); d > 1 {
		t.Errorf("databases are at %v", x.zones("db"))
	}
	x.cl.Provider.Provisioner = nil
	replace("d")
	for id, zone := range x.zones("") {
		if zone == "d" || was[id] == "a" && zone != "a" {
			t.Errorf("without zones node %s is in %q", id, zone)
		}
	}
}

// TestSpreadRefusal: the error names the services that cannot be spread.
func TestSpreadRefusal(t *testing.T) {
	x := newPlaced("a,b", "zone")
	if err := x.create(2); err != nil {
		t.Fatal(err)
	}
	for i := range x.nodes {
		x.nodes[i].Services, x.nodes[i].Zone = []string{"db"}, "a"
		x.nodes = append(
			x.nodes,
			&model.Node{
				ID:           fmt.Sprint("00000001-", 2000+i),
				Number:       2000 + i,
				Hostname:     fmt.Sprint("w", i),
				HardwareType: "h",
				ImageType:    "i",
				Services:     []string{"web"},
				Zone:         "a",
				Created:      true,
				Confirmed:    true,
			},
		)
	}
	x.cl.Template.Constraints.Services = map[string]model.ServiceConstraint{"web": {Quantities: model.Quantities{Max: ptr(model.Int(2))}}}
	if err := x.do(Request{Type: model.OpGrow, Nodes: 1}); err != nil || x.nodes[4].Zone != "b" {
		t.Errorf("two in one zone and one in another: %v, %v", err, x.zones(""))
	}
}

func ptr[T any](v T) *T { return &v }

// TestZoneReachesTheProvider: every attempt to make a node asks for the same place.
func TestZoneReachesTheProvider(t *testing.T) {
	x := newPlaced("a,b", "zone")
	x.known.Add(
		model.Define(
			model.KindProvider,
			&model.Provider{Base: model.Base{Name: "p"}, Provisioner: map[string]any{"zones": "a,b", "hosts": "h1,h2,h3"}},
		),
	)
	if err := x.create(4); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, n := range x.nodes {
		for range 2 {
			w, err := NewSource(x.cl, x.nodes).Work("o", "o/1", n, nil, model.Create, "")
			if err != nil {
				t.Fatal(err)
			}
			var in model.TaskInput
			err = json.Unmarshal(w.Input, &in)
			if err != nil || in.Config.Zone == "" || in.Config.Zone != n.Zone || in.Config.Host == "" || in.Config.Host != n.Host {
				t.Errorf("%v: node %+v is asked for by %s", err, n, w.Input)
			}
			seen[in.Config.Zone]++
		}
	}
	if seen["a"] != 4 || seen["b"] != 4 {
		t.Error(seen)
	}
}
