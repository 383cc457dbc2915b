package site_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
)

// A dependency of a cluster's object goes to the same node if that has the service, and else
// to every node that has it. Services that are not started have no objects.
func TestOfCluster(t *testing.T) {
	cl := &model.Cluster{ID: "00000001", Name: "c", Definitions: map[string]model.Service{
		"web": {Changes: []model.ChangeObject{{Name: "limits", Type: "script", CheckInterval: 2000,
			Content: map[string]any{"start": "date +%s; echo %host.self% of %join(host.service.db,' ')%"}},
			{Name: "warm", Type: "script", Requires: []model.ChangeRequirement{{Object: "limits"}, {Object: "db/ready"}},
				Holds: []model.ChangeHolding{{Object: "db/ready"}}}}},
		"db": {Changes: []model.ChangeObject{{Name: "ready", Type: "script"}}},
	}}
	if !site.Carries(cl) {
		t.Error("it carries objects")
	}
	node := func(n int, host string, services ...string) *model.Node {
		x := &model.Node{Number: n, ID: host, Hostname: host + ".example", Confirmed: true, Services: services, States: map[string]string{}}
		for _, s := range services {
			x.States[s] = "START"
		}
		return x
	}
	stopped := node(4, "n4", "web")
	stopped.States["web"] = "STOP"
	d, err := site.OfCluster("cluster-00000001", cl,
		[]*model.Node{node(2, "n2", "db"), node(1, "n1", "web"), node(3, "n3", "web", "db"), stopped})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	needs := map[string][]string{}
	for _, o := range d.Objects {
		names = append(names, o.Name)
		for _, r := range o.Requires {
			needs[o.Name] = append(needs[o.Name], r.Object)
		}
	}
	if want := []string{"n1/web/limits", "n1/web/warm", "n2/db/ready", "n3/web/limits", "n3/web/warm",
		"n3/db/ready"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if got, want := needs["n1/web/warm"], []string{"n1/web/limits", "n2/db/ready", "n3/db/ready"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got, want := needs["n3/web/warm"], []string{"n3/web/limits", "n3/db/ready"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := compile.Site(d, compile.Options{}); err != nil {
		t.Error(err)
	}
	if got := d.Objects[0].Content["start"]; got != "date +%s; echo n1.example of n2.example n3.example" || d.CheckInterval != 2000 {
		t.Errorf("%q, %d", got, d.CheckInterval)
	}
	cl.Definitions["db"].Changes[0].Content = map[string]any{"start": "echo %host.service.db[7]%"}
	if _, err := site.OfCluster("x", cl, []*model.Node{node(2, "n2", "db")}); err == nil || !strings.Contains(err.Error(), "n2/db/ready") {
		t.Errorf("%v", err)
	}
	if d.Objects[0].Host != "node:00000001/n1" {
		t.Error(d.Objects[0].Host)
	}
}
