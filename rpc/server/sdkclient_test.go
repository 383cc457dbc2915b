package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// client sends a request as the SDK's command-line client does.
func (w *world) client(method, path, body string, headers ...string) answer {
	w.t.Helper()
	return w.ask("", method, path, body, append([]string{"Authorization: token=" + apitest.User, "Accept-Encoding: gzip"}, headers...)...)
}

// TestSDKErrors checks that the SDK's client can show every error: it shows the text of a 404 only if the answer has a length, and
// passes it through a format function.
func TestSDKErrors(t *testing.T) {
	w := newWorld(t)
	c := w.plannedCluster("hello")
	p := one(tree.Pending)
	p.name = "deploy"
	c.begin(model.OpCreate, p)
	b := apitest.NewAgent(w.Store, "b")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b.Follow(w.url, true, transport)
	follower := serve(t, b, nil)
	w.must(200, apitest.User, "POST", "/v1/clusters/hello/plans/deploy/interrupt", "")
	escaped := url.QueryEscape("y:[z]")
	rows := []struct {
		method, path, body string
		status             int
		text               string
		length             bool
	}{
		{"GET", "/service/nope/v1/plans", "", 404, "Service nope not found", true},
		{"GET", "/service/hello/v1/plans/x", "", 404, "Plan x not found", true},
		{"POST", "/service/hello/v1/plans/deploy/forceComplete?phase=test-phase&step=y", "", 404, "Step y not found", true},
		{"POST", "/service/hello/v1/plans/deploy/forceComplete?phase=test-phase&step=" + escaped, "", 404, "Element not found", true},
		{"POST", "/service/hello/v1/pod/nope/restart", "", 404, "Pod nope not found", true},
		{"POST", "/service/hello/v1/plans/deploy/start", `{"1A":"x"}`, 400, "Couldn't parse parameters: 1A is not a valid environment variable name", true},
		{"POST", "/service/hello/v1/plans/deploy/start", `{"1%A":"x"}`, 400, "Couldn't parse parameters: 1 percentA is not a valid environment variable name", true},
		{"POST", "/service/hello/v1/plans/deploy/interrupt?pha%73=x", "", 422, "query.phas: unknown parameter: did you mean \"phase\"?", false},
		{"DELETE", "/service/hello/v1/plans", "", 405, "DELETE does not support /v1/clusters/hello/plans: use GET, HEAD", true},
		{"POST", "/service/hello/v1/plans/deploy/interrupt", "", 208, "Command has already been reported or completed", true},
	}
	for _, at := range []*world{w, follower} {
		for _, r := range rows {
			a := at.client(r.method, r.path, r.body)
			name := r.method + " " + r.path
			if a.status != r.status || a.body != r.text {
				t.Errorf("%s: %d %q", name, a.status, a.body)
			}
			if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") {
				t.Errorf("%s: Content-Type %q", name, kind)
			}
			want := ""
			if r.length {
				want = strconv.Itoa(len(r.text))
			}
			if got := a.header.Get("Content-Length"); got != want {
				t.Errorf("%s: Content-Length %q, not %q", name, got, want)
			}
		}
		if a := at.ask("nobody's", "GET", "/service/hello/v1/pod", ""); a.status != 401 || a.header.Get("Content-Length") == "" {
			t.Errorf("a wrong token: %d %+v", a.status, a.header)
		}
	}
}

// TestPercentSignsInTrees checks that the names and the errors of a plan have no percent signs for the SDK's client.
func TestPercentSignsInTrees(t *testing.T) {
	w := newWorld(t)
	c := w.plannedCluster("hello")
	p := one(tree.Pending)
	p.name, p.errors = "deploy", []string{"25% s of it"}
	c.begin(model.OpCreate, p)
	if a := w.client("GET", "/service/hello/v1/plans/deploy", ""); a.status != 417 || strings.Contains(a.body, "%") ||
		!strings.Contains(a.body, `"25 percent s of it"`) || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.must(417, apitest.User, "GET", "/v1/clusters/hello/plans/deploy", ""); !strings.Contains(a.body, `"25% s of it"`) {
		t.Errorf("%s", a.body)
	}
}

// TestSDKRequests sends the requests of the SDK's client that only read, and checks what the client reads of the answers.
func TestSDKRequests(t *testing.T) {
	w := newWorld(t)
	w.template()
	id, op := w.cluster("hello", "2")
	const base = "/service/hello/v1/"
	read := func(path string) answer {
		t.Helper()
		a := w.client("GET", base+path, "")
		if a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		return a
	}
	var target []string
	read("configurations/targetId").into(t, &target)
	if len(target) != 1 {
		t.Fatalf("%q", target)
	}
	for path, want := range map[string]string{
		"pod":               `["hello1-1000","hello1-1001"]`,
		"endpoints":         `["shop"]`,
		"endpoints/shop":    `{"address":["hello1-1000.local:80","hello1-1001.local:80"],"dns":["hello1-1000.local:80","hello1-1001.local:80"],"url":["http://hello1-1000.local/"]}`,
		"configurations":    `["` + target[0] + `"]`,
		"state/frameworkId": `["` + id + `"]`,
		"state/properties": `["hello1-1000-nginx:task-status","hello1-1000-php:task-status","hello1-1001-nginx:task-status",` +
			`"hello1-1001-php:task-status","operation","operation:` + op + `"]`,
		"state/properties/hello1-1000-nginx:task-status": `{"node":"` + id + `-1000"}`,
	} {
		if a := read(path); compact(t, a.body) != want {
			t.Errorf("%s: %s", path, compact(t, a.body))
		}
	}
	if a, b := read("configurations/target"), read("configurations/"+target[0]); a.body != b.body || !strings.Contains(a.body, `"layout"`) {
		t.Errorf("the target is\n%s\nand its id stands for\n%s", a.body, b.body)
	}
	if a := read("state/properties/operation"); !strings.Contains(a.body, `"type": "create"`) {
		t.Errorf("%s", a.body)
	}
	if a := w.client("PUT", base+"state/refresh", ""); a.status != 200 || compact(t, a.body) != `{"message":"Received cmd: refresh"}` {
		t.Errorf("%d %s", a.status, a.body)
	}
	for path, want := range map[string]string{
		"endpoints/nope":        "404 Endpoint nope not found",
		"state/properties/nope": "404 Property nope not found",
		"configurations/x":      "400 Invalid UUID string: x",
		"configurations/7":      "404 Configuration 7 not found",
		"configurations/00000000-0000-5000-8000-000000000000": "404 Configuration 00000000-0000-5000-8000-000000000000 not found",
	} {
		if a := w.client("GET", base+path, ""); strconv.Itoa(a.status)+" "+a.body != want || a.header.Get("Content-Length") == "" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// TestCosmos sends the client's requests to the package service, and checks the fields that the client reads and the effects.
func TestCosmos(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"defaults":{`, `"defaults":{"config":{"a":{"x":0}},`, 1))
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"defaults":{`, `"defaults":{"config":{"a":{"x":1}},`, 1))
	type update struct {
		MarathonDeploymentID *string
		ResolvedOptions      map[string]any
	}
	type fault struct {
		Type, Message string
		Data          map[string]any
	}
	ask := func(what, body string, into any) answer {
		t.Helper()
		a := w.client("POST", "/cosmos/service/"+what, body, "Accept: application/vnd.dcos.service."+what+
			"-response+json;charset=utf-8;version=v1", "Content-Type: application/vnd.dcos.service."+what+"-request+json;charset=utf-8;version=v1")
		kind := "application/vnd.dcos.service." + what + "-response+json;charset=utf-8;version=v1"
		if a.status != 200 {
			kind = "application/vnd.dcos.package.error+json;charset=utf-8;version=v1"
		}
		if got := a.header.Get("Content-Type"); got != kind {
			t.Errorf("%s %s: %d, Content-Type %q: %s", what, body, a.status, got, a.body)
		}
		a.into(t, into)
		return a
	}
	// The cluster stands at version 3 of 4.
	begin := func(name string) {
		t.Helper()
		a := w.must(202, apitest.User, "POST", "/v1/clusters", `{"name":"`+name+`","clusterTemplate":"shop","numMachines":1,"config":{"a":{"y":2}}}`)
		var st struct{ Operation struct{ ID string } }
		a.into(t, &st)
		w.must(200, apitest.User, "POST", "/v1/clusters/"+name+"/plans/deploy/forceComplete", "")
	}
	for _, name := range []string{"web", "other"} {
		begin(name)
	}
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"defaults":{`, `"defaults":{"config":{"a":{"x":5}},`, 1))
	var d struct {
		ResolvedOptions, UserProvidedOptions map[string]any
		UpgradesTo, DowngradesTo             []string
		Package                              struct{ Version string }
	}
	a := ask("describe", `{"appId":"/web"}`, &d)
	if got := compact(t, a.body); !strings.Contains(got, `"resolvedOptions":{"a":{"x":1,"y":2},"service":{"name":"web"}}`) ||
		!strings.Contains(got, `"userProvidedOptions":{"a":{"y":2}}`) || d.Package.Version != "3" ||
		strings.Join(d.UpgradesTo, " ") != "4" || strings.Join(d.DowngradesTo, " ") != "2 1" {
		t.Errorf("%s", got)
	}
	index := w.Store.Index()
	var u update
	if ask("update", `{"appId":"web","options":{"a":{"x":1,"y":2},"service":{"name":"/web"}},"replace":true}`, &u); u.MarathonDeploymentID != nil {
		t.Errorf("%+v", u)
	}
	for _, r := range []struct{ body, want, data string }{
		{`{"appId":"nope"}`, "MarathonAppNotFound", "nope"},
		{`{"appId":"web","packageVersion":"9"}`, "BadVersionUpdate", "[4 2 1]"},
		{`{"appId":"web","options":{"service":{"name":"x"}}}`, "AppIdChanged", "/x"},
		{`{"appId":"web","options":{"nginx":{"port":"%host.service.nginx[9]%"}}}`, "JsonSchemaMismatch", "/nginx/port"},
		{`[]`, "JsonParsingError", ""},
	} {
		var f fault
		what := "update"
		if a := ask(what, r.body, &f); a.status != 400 || f.Type != r.want || f.Message == "" || !strings.Contains(fmt.Sprint(f.Data), r.data) {
			t.Errorf("%s: %d %s", r.body, a.status, a.body)
		}
	}
	if now := w.Store.Index(); now != index {
		t.Errorf("refused requests changed the state from %d to %d", index, now)
	}
	config := func(name string) string {
		return compact(t, w.must(200, apitest.User, "GET", "/v1/clusters/"+name+"/config", "").body)
	}
	if ask("update", `{"appId":"web","options":{"a":{"y":3}}}`, &u); u.MarathonDeploymentID == nil || config("web") != `{"a":{"x":1,"y":3}}` {
		t.Errorf("%+v %s", u, config("web"))
	}
	if a := ask("update", `{"appId":"web","packageVersion":"4"}`, &u); a.status != 200 || u.MarathonDeploymentID == nil {
		t.Errorf("an update takes the place of one that is open: %d %s", a.status, a.body)
	}
	for _, r := range []struct{ body, want string }{
		{`"options":{"a":{"z":3}},"replace":true`, `{"a":{"x":1,"z":3}}`},
		{`"replace":true`, `{"a":{"x":1}}`},
		{`"packageVersion":"4","options":{"a":{"y":2}}`, `{"a":{"x":5,"y":2}}`},
		{`"packageVersion":"2"`, `{"a":{"x":0,"y":2}}`},
		{`"packageVersion":"3","options":{"a":{"w":1}},"replace":true`, `{"a":{"w":1,"x":1}}`},
	} {
		ask("update", `{"appId":"other",`+r.body+`}`, &u)
		w.must(200, apitest.User, "POST", "/v1/clusters/other/plans/deploy/forceComplete", "")
		if got := config("other"); u.MarathonDeploymentID == nil || got != r.want {
			t.Errorf("%s: %s", r.body, got)
		}
	}
}

// TestStopOfFailedCustomPlan checks that a plan whose run has failed can be stopped: it is as if it was never started, and what the run
// ended with does not count any more.
func TestStopOfFailedCustomPlan(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"links":`,
		`"plans":{"bounce":{"phases":{"all":{"service":"nginx","steps":[{"default":[["stop","start"]]}]}}}},"links":`, 1))
	w.cluster("hello", "1")
	const base = "/service/hello/v1/plans/"
	w.must(200, apitest.User, "POST", base+"deploy/forceComplete", "")
	w.must(200, apitest.User, "POST", base+"bounce/start", "{}")
	op := ""
	v, err := w.View(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range v.ActiveOperations() {
		op = o.ID
	}
	w.Report(string(model.OperationID(op).Task(0)), model.TaskFailed, "broken")
	if a := w.client("GET", base+"bounce", ""); a.status != 417 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for range 2 {
		if a := w.client("POST", base+"bounce/stop", ""); a.status != 200 || !strings.Contains(a.body, "Received cmd: stop") {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := w.client("GET", base+"bounce", ""); a.status != 202 || !strings.Contains(compact(t, a.body), `"errors":[],"status":"WAITING"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := w.client("GET", "/service/hello/v1/health", ""); a.status != 200 {
		t.Errorf("health: %d %s", a.status, a.body)
	}
}

// TestResumeNamesWaitingPhases checks that an order to continue a whole plan names the phases whose canaries it does not release.
func TestResumeNamesWaitingPhases(t *testing.T) {
	w := newWorld(t)
	c := w.plannedCluster("hello")
	p := one(tree.Pending, tree.Pending, tree.Pending)
	p.name, p.strategy = "deploy", "serial-canary"
	c.begin(model.OpCreate, p)
	const order = "/v1/clusters/hello/plans/deploy/continue"
	for _, r := range [][2]string{
		{order, `{"message":"Received cmd: continue","waits":["test-phase"]}`},
		{order + "?phase=test-phase", `{"message":"Received cmd: continue"}`},
	} {
		if a := w.must(200, apitest.User, "POST", r[0], ""); compact(t, a.body) != r[1] {
			t.Errorf("%s: %s", r[0], a.body)
		}
	}
}
