package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
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

// rollout is a cluster of three nodes, whose template has a serial plan deploy with the phases db and web, and a plan backup.
type rollout struct {
	*world
	id, op string
}

const rolloutPlans = `"plans":{"deploy":{"strategy":"serial","phases":{"db":{"service":"php"},"web":{"service":"nginx"}}},
	"backup":{"phases":{"copy":{"service":"nginx","steps":[{"default":[["stop","start"]]}]}}}},"links":`

func newRollout(t *testing.T, create string) *rollout {
	t.Helper()
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"links":`, rolloutPlans, 1))
	a := w.must(202, apitest.User, "POST", "/v1/clusters", `{"name":"hello","clusterTemplate":"shop","numMachines":3`+create+`}`)
	var st struct {
		Cluster   struct{ ID string }
		Operation struct{ ID string }
	}
	a.into(t, &st)
	return &rollout{world: w, id: st.Cluster.ID, op: st.Operation.ID}
}

// order sends an order as the client does, and returns the answer's status and text.
func (r *rollout) order(path string, body ...string) string {
	r.t.Helper()
	a := r.client("POST", "/service/hello/v1/"+path, strings.Join(body, ""))
	return strconv.Itoa(a.status) + " " + strings.TrimSpace(a.body)
}

// accepts fails the test unless an order is carried out.
func (r *rollout) accepts(path string, body ...string) {
	r.t.Helper()
	if got := r.order(path, body...); !strings.HasPrefix(got, "200 ") {
		r.t.Fatalf("%s: %s", path, got)
	}
}

// plan returns the statuses of a plan: the code of the answer, the plan's and those of the steps of its phases.
func (r *rollout) plan(name string) string {
	r.t.Helper()
	a := r.client("GET", "/service/hello/v1/plans/"+name, "")
	var info tree.Info
	a.into(r.t, &info)
	out := strconv.Itoa(a.status) + " " + info.Status
	for _, p := range info.Phases {
		if p.Name == "nodes" {
			continue
		}
		out += " " + p.Name
		for _, s := range p.Steps {
			out += ":" + s.Status
		}
	}
	if len(info.Errors) > 0 {
		out += " " + strings.Join(info.Errors, ",")
	}
	return out
}

// step returns the part of an order's path that names the step of a node in a phase.
func (r *rollout) step(plan, phase string, node int) string {
	r.t.Helper()
	var info tree.Info
	r.client("GET", "/service/hello/v1/plans/"+plan, "").into(r.t, &info)
	for _, p := range info.Phases {
		if p.Name == phase {
			return "?phase=" + phase + "&step=" + url.QueryEscape(p.Steps[node].Name)
		}
	}
	r.t.Fatalf("plan %s has no phase %s", plan, phase)
	return ""
}

// at reports whether a task is one of a service on one of the nodes 0, 1 and 2.
func at(task *model.Task, service string, node int, action model.Action) bool {
	return task.Service == service && task.Action == action && strings.HasSuffix(task.Node, strconv.Itoa(1000+node))
}

// work carries out the operation until it waits or has ended; during is called before a task begins, and returns the message of its failure.
func (r *rollout) work(op string, during func(*model.Task) string) {
	r.Work(op, func(task model.Task) string { return during(&task) })
}

func (r *rollout) finish(op string) {
	r.work(op, func(*model.Task) string { return "" })
}

// TestPauseWaitsForTheStep sends the requests of S08 to S11: a step that has begun goes on to its end while its plan is paused.
func TestPauseWaitsForTheStep(t *testing.T) {
	r := newRollout(t, "")
	paused := false
	pauseIn := func(node int, path string) func(*model.Task) string {
		paused = false
		return func(task *model.Task) string {
			if at(task, "nginx", node, model.Configure) && !paused {
				paused = true
				r.accepts(path)
			}
			return ""
		}
	}
	want := func(why, want string) {
		t.Helper()
		if got := r.plan("deploy"); got != want {
			t.Fatalf("%s: %s, not %s", why, got, want)
		}
	}
	const db = " db:COMPLETE:COMPLETE:COMPLETE"
	r.work(r.op, pauseIn(0, "plans/deploy/interrupt"))
	want("paused in node 0", "202 WAITING"+db+" web:COMPLETE:PENDING:PENDING")
	if got := r.order("plans/deploy/interrupt"); !strings.HasPrefix(got, "208 ") {
		t.Errorf("paused twice: %s", got)
	}
	r.accepts("plans/deploy/restart" + r.step("deploy", "web", 0))
	r.finish(r.op)
	want("restarted while it is paused", "202 WAITING"+db+" web:PENDING:PENDING:PENDING")
	r.accepts("plans/deploy/continue")
	r.work(r.op, pauseIn(1, "plans/deploy/interrupt?phase=web"))
	want("its phase paused in node 1", "202 WAITING"+db+" web:COMPLETE:COMPLETE:PENDING")
	r.accepts("plans/deploy/continue?phase=web")
	r.work(r.op, func(task *model.Task) string {
		switch {
		case at(task, "nginx", 2, model.Configure):
			r.accepts("plans/deploy/interrupt")
		case at(task, "nginx", 2, model.Start):
			return "broken"
		}
		return ""
	})
	if got := r.plan("deploy"); !strings.HasPrefix(got, "417 ERROR"+db+" web:COMPLETE:COMPLETE:ERROR") {
		t.Errorf("failed while it is paused: %s", got)
	}
	if cl := compact(t, r.must(200, apitest.User, "GET", "/v1/operations/"+r.op, "").body); !strings.Contains(cl, `"status":"paused"`) {
		t.Errorf("something is done about the failure: %s", cl)
	}
	if got := r.order("plans/deploy/start", `{"A":"b"}`); !strings.HasPrefix(got, "200 ") {
		t.Fatal(got)
	}
	r.finish(r.op)
	want("started", "200 COMPLETE"+db+" web:COMPLETE:COMPLETE:COMPLETE")
	for _, task := range r.Tasks(r.op) {
		if task.Service == "php" && len(task.Attempts) != 1 {
			t.Errorf("%s was done %d times", task.ID, len(task.Attempts))
		}
	}
}

// TestOrdersAfterAFailure sends the requests of S14 to S20: a plan takes every order after its operation has failed.
func TestOrdersAfterAFailure(t *testing.T) {
	const db = " db:COMPLETE:COMPLETE:COMPLETE"
	failed := func(t *testing.T, policy string) *rollout {
		t.Helper()
		r := newRollout(t, `,"onFailure":"`+policy+`"`)
		r.work(r.op, func(task *model.Task) string {
			if at(task, "nginx", 1, model.Start) {
				return "broken"
			}
			return ""
		})
		if got := r.plan("deploy"); !strings.HasPrefix(got, "417 ERROR"+db+" web:COMPLETE:ERROR:PENDING") {
			t.Fatal(got)
		}
		return r
	}
	for _, c := range []struct {
		name   string
		orders func(r *rollout)
		want   string // before the operation goes on
		starts []int  // of each node's service, when all is done
	}{
		{"force-complete", func(r *rollout) { r.accepts("plans/deploy/forceComplete" + r.step("deploy", "web", 1)) },
			"202 IN_PROGRESS" + db + " web:COMPLETE:COMPLETE:PENDING", []int{1, 1, 1}},
		{"restart of a step", func(r *rollout) { r.accepts("plans/deploy/restart" + r.step("deploy", "web", 1)) },
			"202 IN_PROGRESS" + db + " web:COMPLETE:PENDING:PENDING", []int{1, 2, 1}},
		{"restart of a phase", func(r *rollout) { r.accepts("plans/deploy/restart?phase=web") },
			"202 IN_PROGRESS" + db + " web:PENDING:PENDING:PENDING", []int{2, 2, 1}},
		{"restart", func(r *rollout) { r.accepts("plans/deploy/restart") },
			"202 IN_PROGRESS db:PENDING:PENDING:PENDING web:PENDING:PENDING:PENDING", []int{2, 2, 1}},
		{"resume", func(r *rollout) { r.accepts("plans/deploy/continue") },
			"202 IN_PROGRESS" + db + " web:COMPLETE:PREPARED:PENDING", []int{1, 2, 1}},
		{"start", func(r *rollout) { r.accepts("plans/deploy/start", `{}`) },
			"202 IN_PROGRESS" + db + " web:COMPLETE:PREPARED:PENDING", []int{1, 2, 1}},
		{"pause, resume", func(r *rollout) {
			r.accepts("plans/deploy/interrupt")
			r.finish(r.op)
			if got := r.plan("deploy"); got != "202 WAITING"+db+" web:COMPLETE:PREPARED:PENDING" {
				r.t.Errorf("paused: %s", got)
			}
			r.accepts("plans/deploy/continue")
		}, "202 IN_PROGRESS" + db + " web:COMPLETE:PREPARED:PENDING", []int{1, 2, 1}},
	} {
		for _, policy := range []string{"leave", "pause"} {
			t.Run(c.name+" "+policy, func(t *testing.T) {
				r := failed(t, policy)
				c.orders(r)
				if got := r.plan("deploy"); got != c.want {
					t.Errorf("%s, not %s", got, c.want)
				}
				if a := r.must(200, apitest.User, "GET", "/v1/clusters/hello", ""); !strings.Contains(compact(t, a.body), `"status":"pending"`) {
					t.Errorf("%s", a.body)
				}
				r.finish(r.op)
				if got := r.plan("deploy"); got != "200 COMPLETE"+db+" web:COMPLETE:COMPLETE:COMPLETE" {
					t.Errorf("at the end: %s", got)
				}
				if a := r.must(200, apitest.User, "GET", "/v1/clusters/hello", ""); !strings.Contains(compact(t, a.body), `"status":"active"`) {
					t.Errorf("%s", a.body)
				}
				for _, task := range r.Tasks(r.op) {
					for node, times := range c.starts {
						if at(&task, "nginx", node, model.Start) && task.Attempt != times {
							t.Errorf("%s has %d attempts, not %d: %+v", task.ID, task.Attempt, times, task.Attempts)
						}
					}
				}
				if a := r.client("GET", "/service/hello/v1/health", ""); a.status != 200 {
					t.Errorf("health: %d %s", a.status, a.body)
				}
			})
		}
	}
}

// TestOrdersAfterAFailedCustomRun sends the requests of S17 to S19: a run of a template's plan goes on after it has failed.
func TestOrdersAfterAFailedCustomRun(t *testing.T) {
	r := newRollout(t, "")
	r.finish(r.op)
	run := func() string {
		t.Helper()
		v, err := r.View(t.Context(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range v.ActiveOperations() {
			return o.ID
		}
		t.Fatal("no run is under way")
		return ""
	}
	fails := func(op string) {
		t.Helper()
		r.work(op, func(task *model.Task) string {
			if at(task, "nginx", 1, model.Start) {
				return "broken"
			}
			return ""
		})
		if got := r.plan("backup"); !strings.HasPrefix(got, "417 ERROR copy:COMPLETE:ERROR:PENDING") {
			t.Fatal(got)
		}
	}
	r.accepts("plans/backup/start", "{}")
	op := run()
	for _, c := range [][2]string{
		{"forceComplete", "202 IN_PROGRESS copy:COMPLETE:COMPLETE:PENDING"},
		{"restart", "202 IN_PROGRESS copy:COMPLETE:PENDING:PENDING"},
	} {
		fails(op)
		r.accepts("plans/backup/" + c[0] + r.step("backup", "copy", 1))
		if got := r.plan("backup"); got != c[1] {
			t.Errorf("%s: %s", c[0], got)
		}
		if again := run(); again != op {
			t.Errorf("%s: another run %s", c[0], again)
		}
		r.finish(op)
		if got := r.plan("backup"); got != "200 COMPLETE copy:COMPLETE:COMPLETE:COMPLETE" {
			t.Errorf("%s: %s", c[0], got)
		}
		r.accepts("plans/backup/start", "{}")
		op = run()
	}
	fails(op)
	r.accepts("plans/backup/interrupt")
	if got := r.plan("backup"); got != "202 WAITING copy:COMPLETE:PREPARED:PENDING" {
		t.Errorf("paused: %s", got)
	}
	r.accepts("plans/backup/continue")
	r.finish(op)
	if got := r.plan("backup"); got != "200 COMPLETE copy:COMPLETE:COMPLETE:COMPLETE" {
		t.Errorf("resumed: %s", got)
	}
	r.accepts("plans/backup/start", "{}")
	fails(run())
	r.accepts("plans/backup/start", `{"A":"b=c"}`)
	if op, _ := mustView(t, r.world).Operation("", run()); op.Parameters["A"] != "b=c" {
		t.Errorf("%v", op.Parameters)
	}
	if got := r.plan("backup"); got != "202 PENDING copy:PENDING:PENDING:PENDING" {
		t.Errorf("started: %s", got)
	}
}

func mustView(t *testing.T, w *world) rest.View {
	t.Helper()
	v, err := w.View(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestRestartRelaunches sends the requests of S12 and S13: services are stopped before their steps are repeated, and an INITIALIZE is
// repeated only if its action says so.
func TestRestartRelaunches(t *testing.T) {
	for _, repeat := range []bool{false, true} {
		r := newRollout(t, "")
		r.must(200, apitest.User, "POST", "/v1/clusters/hello/plans/deploy/forceComplete", "") // it has no initialize
		r.must(200, apitest.Admin, "POST", "/v1/import", strings.Replace(parts, `"install":{"type":"shell"}`,
			fmt.Sprintf(`"install":{"type":"shell"},"initialize":{"type":"shell","repeat":%t}`, repeat), 1))
		var st struct{ Operation struct{ ID string } }
		r.must(202, apitest.User, "POST", "/v1/clusters", `{"name":"other","clusterTemplate":"shop","numMachines":3}`).into(t, &st)
		op := st.Operation.ID
		r.finish(op)
		skipped := `,"skipped":["other2-1000:initialize","other2-1001:initialize","other2-1002:initialize"]}`
		if a := r.client("POST", "/service/other/v1/plans/deploy/restart", ""); a.status != 200 || strings.HasSuffix(compact(t, a.body), skipped) == repeat {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if a := r.client("GET", "/service/other/v1/plans/deploy", ""); a.status != 202 {
			t.Errorf("restarted: %d %s", a.status, a.body)
		}
		var order []string
		r.work(op, func(task *model.Task) string {
			if task.Service != "" && (len(order) == 0 || order[len(order)-1] != task.Service) {
				order = append(order, task.Service)
			}
			return ""
		})
		if !slices.Equal(order, []string{"php", "nginx"}) {
			t.Errorf("the services are launched in the order %v", order)
		}
		a := r.client("GET", "/service/other/v1/plans/deploy", "")
		if told := strings.Contains(a.body, "not repeated: initialize nginx"); a.status != 200 || told == repeat {
			t.Errorf("repeat %t: %d %s", repeat, a.status, a.body)
		}
		for _, task := range r.Tasks(op) {
			var outcomes []string
			for _, at := range task.Attempts {
				outcomes = append(outcomes, at.Outcome)
			}
			want := "succeeded succeeded"
			if task.Action == model.Install {
				want = "succeeded undone succeeded" // it stops the service
			}
			if got := strings.Join(outcomes, " "); got != want {
				t.Errorf("%s %s of %s: %s, not %s", task.Action, task.Service, task.Node, got, want)
			}
		}
		if a := r.must(200, apitest.User, "GET", "/v1/clusters/other", ""); !strings.Contains(compact(t, a.body), `"status":"active"`) {
			t.Errorf("%s", a.body)
		}
	}
}

// TestOrdersAfterARollback sends the requests of S22 to S24: a rollback that fails goes on by order, and after it the plan deploy is that
// of the present target, whose steps can be repeated.
func TestOrdersAfterARollback(t *testing.T) {
	r := newRollout(t, "")
	r.finish(r.op)
	r.must(200, apitest.Admin, "POST", "/v1/import", strings.Replace(parts, `"install":{"type":"shell"}`, `"install":{"type":"shell","fields":{"a":"b"}}`, 1))
	var st struct{ Operation struct{ ID string } }
	r.must(202, apitest.User, "POST", "/v1/clusters/hello/upgrade", `{"services":["nginx"],"strategy":"serial"}`).into(t, &st)
	broken := func(task *model.Task) string {
		if at(task, "nginx", 1, model.Start) {
			return "broken"
		}
		return ""
	}
	r.work(st.Operation.ID, broken)
	back := ""
	for back == "" { // until the leader has begun it
		r.must(200, apitest.User, "GET", "/v1/operations/"+st.Operation.ID+"?wait=1s&index="+strconv.FormatUint(r.Store.Index(), 10), "")
		for _, next := range mustView(t, r.world).ActiveOperations() {
			if next.Follows == st.Operation.ID {
				back = next.ID
			}
		}
	}
	r.work(back, broken)
	if got := r.plan("deploy"); !strings.HasPrefix(got, "417 ERROR") {
		t.Fatal(got)
	}
	var info tree.Info
	r.client("GET", "/service/hello/v1/plans/deploy", "").into(t, &info)
	for _, p := range info.Phases {
		for i, s := range p.Steps {
			if s.Status == "ERROR" {
				r.accepts("plans/deploy/forceComplete" + r.step("deploy", p.Name, i))
			}
		}
	}
	r.finish(back)
	const done = "200 COMPLETE db:COMPLETE:COMPLETE:COMPLETE web:COMPLETE:COMPLETE:COMPLETE"
	if got := r.plan("deploy"); got != done {
		t.Fatalf("after the rollback: %s", got)
	}
	for _, o := range []string{"interrupt", "continue"} {
		if got := r.order("plans/deploy/" + o); !strings.HasPrefix(got, "208 ") {
			t.Errorf("%s: %s", o, got)
		}
	}
	r.accepts("plans/deploy/restart" + r.step("deploy", "web", 0))
	if got := r.plan("deploy"); got != "202 IN_PROGRESS db:COMPLETE:COMPLETE:COMPLETE web:PENDING:COMPLETE:COMPLETE" {
		t.Errorf("restarted: %s", got)
	}
	r.finish(r.op)
	if got := r.plan("deploy"); got != done {
		t.Errorf("at the end: %s", got)
	}
	if a := r.must(200, apitest.User, "GET", "/v1/clusters/hello", ""); !strings.Contains(compact(t, a.body), `"status":"active"`) {
		t.Errorf("%s", a.body)
	}
}
