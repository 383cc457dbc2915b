package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// shopDefinitions is a template whose service db shares no node with web, and the definitions that it needs.
const shopDefinitions = `{
 "providers": [{"name":"cloud","providertype":"cloud"}],
 "hardwaretypes": [{"name":"big","providermap":{"cloud":{"flavor":"9","cost":"0.5"}}}, {"name":"small","providermap":{"cloud":{"flavor":"1","cost":"0.125"}}}],
 "imagetypes": [{"name":"debian","providermap":{"cloud":{"image":"d"}}}],
 "services": [{"name":"db"},{"name":"web"},{"name":"base"}],
 "clustertemplates": [{"name":"shop","defaults":{"services":["db","web","base"],"provider":"cloud"},
   "constraints":{"layout":{"cantcoexist":[["db","web"]]},"services":{"db":{"hardwaretypes":["big"],"quantities":{"min":1,"max":1}}}}}]
}`

func TestSolve(t *testing.T) {
	w := newWorld(t)
	w.must(200, apitest.Admin, "POST", "/v1/import", shopDefinitions)
	solve := func(body string) (s api.Solved) {
		t.Helper()
		w.must(200, apitest.User, "POST", "/v1/solve", body).into(t, &s)
		return s
	}
	s := solve(`{"clusterTemplate":"shop","from":1,"to":"9"}`)
	if s.ClusterTemplate != "shop" || s.Comparator != "cost" || len(s.Sizes) != 2 {
		t.Fatalf("%+v", s)
	}
	if no := s.Sizes[0]; no.From != 1 || no.To != 1 || no.Layout != nil || len(no.Conflict) != 1 || !no.Minimal ||
		no.Conflict[0].Path != "constraints.layout.cantcoexist[0]" {
		t.Errorf("one node: %+v", no)
	}
	yes := s.Sizes[1]
	if yes.From != 2 || yes.To != 9 || len(yes.Layout) != 2 || yes.Cost.From.PerHour != "0.625" || yes.Cost.To.PerHour != "1.5" {
		t.Fatalf("two to nine nodes: %+v", yes)
	}
	if g := yes.Layout[0]; g.HardwareType != "big" || g.From != 1 || g.To != 1 || strings.Join(g.Services, ",") != "base,db" {
		t.Errorf("%+v", g)
	}
	if g := yes.Layout[1]; g.HardwareType != "small" || g.From != 1 || g.To != 8 || strings.Join(g.Services, ",") != "base,web" {
		t.Errorf("%+v", g)
	}
	// A request may choose the comparator and the services.
	if s = solve(`{"clusterTemplate":"shop","from":2,"to":2,"comparator":"original"}`); s.Comparator != "original" ||
		s.Sizes[0].Cost.To.PerHour != "1" {
		t.Errorf("%+v", s)
	}
	if s = solve(`{"clusterTemplate":"shop","from":2,"to":2,"services":["web","base"]}`); s.Sizes[0].Layout[0].To != 2 {
		t.Errorf("%+v", s)
	}
	if s = solve(`{"clusterTemplate":"shop","from":2,"to":2,"hardwaretype":"small"}`); len(s.Sizes[0].Conflict) != 2 {
		t.Errorf("%+v", s)
	}
	if s = solve(`{"clusterTemplate":"shop","from":2,"to":2,"budget":1}`); s.Sizes[0].Undecided == "" || s.Sizes[0].Conflict != nil {
		t.Errorf("%+v", s)
	}
	s = solve(`{"clusterTemplate":"shop","from":2,"to":2,"exclude":[[{"count":1,"hardwaretype":"big","imagetype":"debian","services":["db",` +
		`"base"]},{"count":1,"hardwaretype":"small","imagetype":"debian","services":["base","web"]}]]}`)
	if s.Sizes[0].Cost == nil || s.Sizes[0].Cost.To.PerHour != "1" {
		t.Errorf("without the cheapest: %+v", s)
	}
	// A template that is not stored.
	s = solve(`{"template":{"name":"draft","defaults":{"services":["web"],"provider":"cloud"},"constraints":{"size":{"max":3}}},` +
		`"from":3,"to":4}`)
	if s.ClusterTemplate != "draft" || len(s.Sizes) != 2 || s.Sizes[1].Conflict[0].Path != "constraints.size.max" {
		t.Errorf("%+v", s)
	}
	for body, path := range map[string]string{
		`{"from":1,"to":2}`: "clusterTemplate",
		`{"clusterTemplate":"shop","template":{"name":"x"},"from":1,"to":2}`:        "template",
		`{"clusterTemplate":"shop","from":0,"to":2}`:                                "nodes",
		`{"clusterTemplate":"shop","from":3,"to":2}`:                                "nodes",
		`{"clusterTemplate":"shop","from":1,"to":1001}`:                             "nodes",
		`{"clusterTemplate":"shop","from":1,"to":20000}`:                            "nodes",
		`{"clusterTemplate":"shop","from":1,"to":2,"budget":-1}`:                    "budget",
		`{"clusterTemplate":"shop","from":1,"to":2,"provider":"clod"}`:              "provider",
		`{"clusterTemplate":"shop","from":1,"to":2,"services":["nope"]}`:            "services[0]",
		`{"clusterTemplate":"shop","from":1,"to":2,"hardwaretype":"nope"}`:          "hardwaretype",
		`{"clusterTemplate":"shop","from":1,"to":2,"comparator":"best"}`:            "comparator",
		`{"clusterTemplate":"shop","from":1,"to":2,"nodes":3}`:                      "nodes",
		`{"template":{"name":"d","defaults":{"services":["web"]}},"from":1,"to":2}`: "defaults.provider",
	} {
		p := w.must(422, apitest.User, "POST", "/v1/solve", body).problem(t)
		if len(p.Errors) == 0 || p.Errors[0].Path != path {
			t.Errorf("%s: %+v", body, p)
		}
	}
	w.must(404, apitest.User, "POST", "/v1/solve", `{"clusterTemplate":"shap","from":1,"to":2}`)
	w.must(400, apitest.User, "POST", "/v1/solve", `{`)
	w.must(401, "", "POST", "/v1/solve", `{}`)
}

func TestLint(t *testing.T) {
	w := newWorld(t)
	w.must(200, apitest.Admin, "POST", "/v1/import", shopDefinitions)
	var l api.Linted
	w.must(200, apitest.Guest, "GET", "/v1/clustertemplates/shop/lint", "").into(t, &l)
	if len(l.Faults) > 0 || len(l.Templates) != 1 || l.Templates[0] != (api.LintedTemplate{Name: "shop", Smallest: 2}) {
		t.Errorf("%+v", l)
	}
	w.must(404, apitest.Guest, "GET", "/v1/clustertemplates/shap/lint", "")
	lint := func(body string) (l api.Linted) {
		t.Helper()
		w.must(200, apitest.User, "POST", "/v1/lint", body).into(t, &l)
		return l
	}
	// Faults of the definition itself, and of its references to others.
	l = lint(`{"clustertemplates":[{"name":"shop","defaults":{"services":["web","nope"],"provider":"cloud","hardwaretype":"tiny"}}]}`)
	if len(l.Faults) != 2 || len(l.Templates) != 0 || l.Faults[0].Subject != "clustertemplates/shop" {
		t.Errorf("%+v", l)
	}
	// No size has a layout: db must be on two nodes and on every one of them.
	l = lint(`{"clustertemplates":[{"name":"shop","defaults":{"services":["db","web"],"provider":"cloud"},"constraints":{"size":{"max":5},
	  "layout":{"cantcoexist":[["db","web"]]},"services":{"db":{"quantities":{"ratio":{"min":"1"}}}}}}]}`)
	if len(l.Faults) != 1 || !strings.Contains(l.Faults[0].Message, "from 1 to 5") ||
		!strings.Contains(l.Faults[0].Message, "may not share a node") {
		t.Errorf("%+v", l)
	}
	// Larger sizes than the tried ones may have a layout, so there is only a warning.
	l = lint(`{"clustertemplates":[{"name":"shop","defaults":{"services":["db"],"provider":"cloud"},` +
		`"constraints":{"services":{"db":{"quantities":{"min":200}}}}}]}`)
	if len(l.Faults) != 0 || len(l.Warnings) != 1 || l.Templates[0].Smallest != 0 {
		t.Errorf("%+v", l)
	}
	// Nothing was written.
	w.must(200, apitest.Guest, "GET", "/v1/clustertemplates/shop/lint", "").into(t, &l)
	if l.Templates[0].Smallest != 2 {
		t.Errorf("%+v", l)
	}
	w.must(422, apitest.User, "POST", "/v1/lint", `{"services":[{"name":"a","colour":"red"}]}`)
}

// TestLintOfSecrets has passwords written out, in a field that only its type marks and in one whose name says so, in a check and in an import.
func TestLintOfSecrets(t *testing.T) {
	w := newWorld(t)
	w.must(200, apitest.Admin, "POST", "/v1/import", `{"providertypes":[{"name":"cloud","parameters":{"admin":{"fields":{
		"pin":{"label":"PIN","type":"text","sensitive":true}}}}}]}`)
	const body = `{"providers":[{"name":"cloud","providertype":"cloud","provisioner":{"pin":"canary","region":"north"}}],
		"services":[{"name":"db","provisioner":{"actions":{"start":{"type":"shell","fields":{"script":"run","token":"canary"}}}}}]}`
	check := func(path string) {
		t.Helper()
		var l api.Linted
		text := w.must(200, apitest.Admin, "POST", path, body)
		text.into(t, &l)
		var got []string
		for _, x := range l.Warnings {
			if strings.Contains(x.Message, "written out") {
				got = append(got, x.Subject+" "+x.Path)
			}
		}
		const want = "providers/cloud provisioner.pin, services/db provisioner.actions.start.fields.token"
		slices.Sort(got)
		if strings.Join(got, ", ") != want || strings.Contains(text.body, "canary") {
			t.Errorf("%s warns of %q, want %s", path, got, want)
		}
	}
	check("/v1/lint")
	check("/v1/import?dryRun=true")
	check("/v1/import")
}
