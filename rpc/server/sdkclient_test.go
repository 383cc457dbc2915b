package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
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

// TestPodStatusIsLive checks that the status of a pod follows the tasks of an operation that is under way.
func TestPodStatusIsLive(t *testing.T) {
	w := newWorld(t)
	w.template()
	_, op := w.cluster("hello", "1")
	var tasks []model.Task
	show := func() string {
		t.Helper()
		var p tree.Pod
		w.client("GET", "/service/hello/v1/pod/hello1-1000/status", "").into(t, &p)
		return p.Tasks[0].Status // of nginx
	}
	run := func(op string, want map[model.Action][2]string) {
		t.Helper()
		for {
			w.must(200, apitest.User, "GET", "/v1/operations/"+op+"/tasks", "").into(t, &tasks)
			j := 0
			for j < len(tasks) && tasks[j].Status != model.TaskReady {
				j++
			}
			if j == len(tasks) {
				break
			}
			task := tasks[j]
			states, is := want[task.Action]
			is = is && task.Service == "nginx"
			w.Report(task.ID, model.TaskLeased, "")
			if got := show(); is && got != states[0] {
				t.Errorf("during %s: %q, not %q", task.Action, got, states[0])
			}
			w.Report(task.ID, model.TaskSucceeded, "")
			if got := show(); is && got != states[1] {
				t.Errorf("after %s: %q, not %q", task.Action, got, states[1])
			}
		}
	}
	run(op, map[model.Action][2]string{
		model.Install: {"STAGING", "STAGING"}, model.Configure: {"STAGING", "STAGING"}, model.Start: {"STARTING", "RUNNING"},
	})
	var st struct{ Operation struct{ ID string } }
	w.must(202, apitest.User, "POST", "/v1/clusters/hello/restart", `{"services":["nginx"]}`).into(t, &st)
	if got := show(); got != "RUNNING" {
		t.Errorf("before the restart begins: %q", got)
	}
	run(st.Operation.ID, map[model.Action][2]string{model.Stop: {"KILLING", "KILLED"}, model.Start: {"STARTING", "RUNNING"}})
}

// TestPodInfo checks the fields of `pod info` that the SDK's own tests read, and that the command has no secrets.
func TestPodInfo(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "POST", "/v1/import", strings.Replace(parts, `"start":{"type":"shell"}`,
		`"start":{"type":"shell","fields":{"script":"serve --port 80","password":"hunter2"}}`, 1))
	id, op := w.cluster("hello", "1")
	info := func() (string, api.PodInfo) {
		t.Helper()
		var out []api.PodInfo
		a := w.client("GET", "/service/hello/v1/pod/hello1-1000/info", "")
		if a.into(t, &out); len(out) != 2 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return compact(t, a.body), out[0]
	}
	if text, _ := info(); strings.Contains(text, "TASK_") {
		t.Errorf("before it is started: %s", text)
	}
	w.Finish(op)
	text, p := info()
	if p.Info.TaskID.Value == "" || p.Info.TaskID != p.Status.TaskID || p.Status.TaskID.Value != p.Status.ID || p.Status.State != "TASK_RUNNING" ||
		p.Info.SlaveID.Value != "vm-0" || p.Info.Command.Value != "serve --port 80" || !strings.HasPrefix(p.Info.TaskID.Value, id) {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(text, `"command":{"value":"serve --port 80"}`) || !strings.Contains(text, `"slaveId":{"value":"vm-0"}`) ||
		!strings.Contains(text, `"command":{"value":"shell"}`) || strings.Contains(text, "hunter2") {
		t.Errorf("%s", text)
	}
	if a := w.client("POST", "/service/hello/v1/pod/hello1-1000/pause", ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if text, _ := info(); strings.Contains(text, "TASK_") || !strings.Contains(text, `"status":"PAUSING"`) {
		t.Errorf("paused: %s", text)
	}
}

// TestPodTaskIDOfOldVoters checks that the id of a task is the same during and after its start while some voters would not keep the number
// of the start.
func TestPodTaskIDOfOldVoters(t *testing.T) {
	w := newWorld(t)
	w.template()
	for level := uint32(1); level < logformat.OrdersLevel; level++ {
		w.Must(&pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level, Mesh: "m"}}})
	}
	_, op := w.cluster("hello", "1")
	id := func() string {
		t.Helper()
		var out tree.Pod
		w.client("GET", "/service/hello/v1/pod/hello1-1000/status", "").into(t, &out)
		return out.Tasks[0].ID
	}
	before := id()
	w.Work(op, func(model.Task) string {
		if now := id(); now != before {
			t.Errorf("during the start, %s is %s", before, now)
		}
		return ""
	})
	if now := id(); now != before {
		t.Errorf("after the start, %s is %s", before, now)
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

// TestPodOrdersWhileAPlanIsOpen sends the requests of S27 and S28: a node can be restarted and paused while an operation is open, waits
// or has failed, and a step that is at work there launches its services anew.
func TestPodOrdersWhileAPlanIsOpen(t *testing.T) {
	r := newRollout(t, "")
	r.finish(r.op)
	nodes := []string{"hello1-1000", "hello1-1001", "hello1-1002"}
	operations := func() (out []string) {
		for _, op := range mustView(t, r.world).ActiveOperations() {
			out = append(out, string(op.Type)+" "+string(op.Status))
		}
		slices.Sort(out)
		return out
	}
	var st struct{ Operation struct{ ID string } }
	r.must(202, apitest.User, "POST", "/v1/clusters/hello/restart", `{"services":["nginx"],"strategy":"serial"}`).into(t, &st)
	main := st.Operation.ID
	stopped := 0
	r.work(main, func(task *model.Task) string {
		switch {
		case at(task, "nginx", 1, model.Start) && stopped == 1:
			if got := r.order("pod/" + nodes[1] + "/resume"); !strings.HasPrefix(got, "200 ") { // nothing is paused there
				t.Errorf("a resume where a step is at work: %s", got)
			}
			r.accepts("pod/" + nodes[1] + "/restart")
			// The step begins again, and recovery restarts the node's other service after it.
			if got := operations(); !slices.Equal(got, []string{"recover running", "restart running"}) {
				t.Errorf("a restart where a step is at work begins %v", got)
			}
			// A node that the plan has not come to is restarted by recovery, now, and once.
			r.accepts("pod/" + nodes[2] + "/restart")
			r.accepts("pod/" + nodes[2] + "/restart")
			// So is one that it is done with.
			r.accepts("pod/" + nodes[0] + "/restart")
			if got := operations(); !slices.Equal(got, []string{"recover running", "recover running", "recover running", "restart running"}) {
				t.Errorf("%v", got)
			}
			return "" // of the attempt that was cancelled
		case at(task, "nginx", 1, model.Stop):
			stopped++
		}
		return ""
	})
	r.work(main, func(task *model.Task) string {
		if at(task, "nginx", 1, model.Stop) {
			stopped++
		}
		return ""
	})
	finishAll := func() {
		for _, op := range mustView(t, r.world).ActiveOperations() {
			r.finish(op.ID)
		}
	}
	finishAll()
	if got := operations(); stopped != 2 || len(got) > 0 {
		t.Errorf("stopped %d times, and %v goes on", stopped, got)
	}
	// A step that has failed leaves its node to orders.
	r.must(200, apitest.Admin, "POST", "/v1/import", strings.Replace(parts, `"install":{"type":"shell"}`, `"install":{"type":"shell","fields":{"a":"b"}}`, 1))
	r.must(202, apitest.User, "POST", "/v1/clusters/hello/upgrade", `{"services":["nginx"],"strategy":"serial","onFailure":"pause"}`).into(t, &st)
	main = st.Operation.ID
	r.work(main, func(task *model.Task) string {
		if at(task, "nginx", 1, model.Start) {
			return "broken"
		}
		return ""
	})
	r.accepts("pod/" + nodes[1] + "/restart")
	for _, op := range mustView(t, r.world).ActiveOperations() {
		if op.ID != main {
			r.finish(op.ID)
		}
	}
	if got := operations(); !slices.Equal(got, []string{"upgrade paused"}) {
		t.Errorf("%v", got)
	}
	r.accepts("pod/" + nodes[2] + "/pause")
	r.accepts("plans/deploy/continue")
	finishAll()
	finishAll() // each waits where the other one is at work
	// The node stays paused, and recovery with it, until it is resumed.
	if got := operations(); len(got) > 0 || r.plan("deploy") != "200 COMPLETE" || r.plan("recovery") != "202 STARTED hello1-1002:PAUSED" {
		t.Errorf("%v go on: %s, %s", got, r.plan("deploy"), r.plan("recovery"))
	}
}

// TestPauseDuringAStep checks that a pause of a node where a step is at work stops all its services once the step has ended, and that they
// stay paused when the operation ends (D9).
func TestPauseDuringAStep(t *testing.T) {
	r := newRollout(t, "")
	r.finish(r.op)
	var st struct{ Operation struct{ ID string } }
	r.must(202, apitest.User, "POST", "/v1/clusters/hello/restart", `{"services":["nginx"],"strategy":"serial"}`).into(t, &st)
	asked, pause := false, ""
	pod := func() string {
		t.Helper()
		var p tree.Pod
		r.client("GET", "/service/hello/v1/pod/hello1-1001/status", "").into(t, &p)
		return p.Tasks[0].Status + " " + p.Tasks[1].Status
	}
	r.work(st.Operation.ID, func(task *model.Task) string {
		switch {
		case at(task, "nginx", 1, model.Start) && !asked:
			asked = true
			r.accepts("pod/hello1-1001/pause")
			for _, op := range mustView(t, r.world).ActiveOperations() {
				if op.Type == model.OpPauseNode {
					pause = op.ID
				}
			}
			if r.finish(pause); slices.ContainsFunc(r.Tasks(pause), func(task model.Task) bool { return task.Attempt > 0 }) {
				t.Error("the pause begins while the step is at work")
			}
			if got := pod(); got != "PAUSING PAUSING" {
				t.Errorf("meanwhile: %s", got)
			}
		case at(task, "nginx", 2, model.Stop): // the step has ended, and the operation goes on
			r.finish(pause)
		}
		return ""
	})
	if got := pod(); got != "PAUSED PAUSED" {
		t.Errorf("at the end: %s", got)
	}
	if got := len(r.Tasks(pause)); got != 2 {
		t.Errorf("%d tasks stop the node's services", got)
	}
	if left := mustView(t, r.world).ActiveOperations(); len(left) > 0 {
		t.Errorf("%d operations go on", len(left))
	}
	n, _ := mustView(t, r.world).Node("acme", r.id+"-1001")
	if n.States["nginx"] != model.Stop.String() || n.States["php"] != model.Stop.String() {
		t.Errorf("%v", n.States)
	}
	r.accepts("pod/hello1-1001/resume")
	for _, op := range mustView(t, r.world).ActiveOperations() {
		r.finish(op.ID)
	}
	if got := pod(); got != "RUNNING RUNNING" {
		t.Errorf("resumed: %s", got)
	}
}

// TestPauseWhileTheMachineIsMade checks that a node that has nothing to stop yet cannot be paused.
func TestPauseWhileTheMachineIsMade(t *testing.T) {
	r := newRollout(t, "")
	task, _ := r.Next(r.op)
	r.Report(task.ID, model.TaskLeased, "")
	node := "hello1-" + task.Node[len(task.Node)-4:]
	for _, names := range []string{"", `["nginx"]`} {
		if got := r.order("pod/"+node+"/pause", names); task.Action != model.Create || !strings.HasPrefix(got, "409 ") {
			t.Errorf("during %s, of %q: %s", task.Action, names, got)
		}
	}
}

// TestRestartOfANodeAgain checks that a node that an operation on several nodes has restarted already is restarted once more by an order,
// though the operation is still at work on the others.
func TestRestartOfANodeAgain(t *testing.T) {
	r := newRollout(t, "")
	r.finish(r.op)
	var st struct{ Operation struct{ ID string } }
	r.must(202, apitest.User, "POST", "/v1/clusters/hello/recover", `{"nodeNames":["hello1-1000","hello1-1001"]}`).into(t, &st)
	starts, asked := 0, false
	for {
		task, ok := r.Next(st.Operation.ID)
		if !ok {
			break
		}
		r.Report(task.ID, model.TaskSucceeded, "")
		if at(&task, "nginx", 0, model.Start) {
			starts++
		}
		left := slices.ContainsFunc(r.Tasks(st.Operation.ID), func(other model.Task) bool {
			return strings.HasSuffix(other.Node, "-1000") && other.Status != model.TaskSucceeded
		})
		if !left && !asked {
			asked = true
			r.accepts("pod/hello1-1000/restart")
		}
	}
	if starts != 2 {
		t.Errorf("it was started %d times", starts)
	}
	if got := r.plan("recovery"); !strings.HasPrefix(got, "200 COMPLETE") {
		t.Errorf("%s", got)
	}
}

// TestConcurrentRestarts checks that services and nodes can be restarted during operations on other services or other nodes of a cluster, each
// once, and that the refusal of an order that clashes names the step.
func TestConcurrentRestarts(t *testing.T) {
	r := newRollout(t, "")
	r.finish(r.op)
	begin := func(body string) string {
		t.Helper()
		var st struct{ Operation struct{ ID string } }
		r.must(202, apitest.User, "POST", "/v1/clusters/hello/recover", body).into(t, &st)
		return st.Operation.ID
	}
	starts := func(op string) string {
		var out []string
		for _, task := range r.Tasks(op) {
			if task.Action == model.Start {
				out = append(out, task.Service+" "+strings.Split(task.Hostname, ".")[0])
			}
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	}
	all := func() (out []string) {
		for _, op := range mustView(t, r.world).ActiveOperations() {
			out = append(out, string(op.Type)+": "+starts(op.ID))
		}
		slices.Sort(out)
		return out
	}
	want := func(why string, want ...string) {
		t.Helper()
		if got := all(); !slices.Equal(got, want) {
			t.Errorf("%s: %q", why, got)
		}
	}
	first := begin(`{"nodeNames":["hello1-1000","hello1-1001"],"services":["nginx"]}`)
	const one = "recover: nginx hello1-1000, nginx hello1-1001"
	want("a restart of some services of some nodes", one)
	r.accepts("pod/hello1-1000/restart")
	want("a concurrent restart of a whole node", one, "recover: php hello1-1000")
	r.accepts("pod/hello1-1000/restart")
	want("the same again", one, "recover: php hello1-1000")
	if again := begin(`{"nodeNames":["hello1-1001"],"services":["nginx"]}`); again != first {
		t.Errorf("what %s restarts is restarted by %s, too", first, again)
	}
	begin(`{"nodeNames":["hello1-1001","hello1-1002"]}`)
	want("a concurrent restart of two nodes", one, "recover: nginx hello1-1002, php hello1-1001, php hello1-1002", "recover: php hello1-1000")
	for len(mustView(t, r.world).ActiveOperations()) > 0 { // each waits where another one is at work
		for _, op := range mustView(t, r.world).ActiveOperations() {
			r.finish(op.ID)
		}
	}
	// While a step is at work on another service of the node, the order waits for its end.
	var st struct{ Operation struct{ ID string } }
	r.must(202, apitest.User, "POST", "/v1/clusters/hello/restart", `{"services":["nginx"],"strategy":"serial"}`).into(t, &st)
	waits := ""
	r.work(st.Operation.ID, func(task *model.Task) string {
		if at(task, "nginx", 1, model.Start) && waits == "" {
			waits = begin(`{"nodeNames":["hello1-1001"],"services":["php"]}`)
			if r.finish(waits); slices.ContainsFunc(r.Tasks(waits), func(task model.Task) bool { return task.Attempt > 0 }) {
				t.Error("it begins while the step is at work")
			}
		}
		return ""
	})
	r.finish(waits)
	want("at the end")
	// An order that clashes.
	r.accepts("pod/hello1-1001/pause")
	a := r.ask(apitest.User, "POST", "/v1/clusters/hello/recover", `{"nodeNames":["hello1-1001"],"services":["nginx"]}`)
	if a.status != 409 || !strings.Contains(a.problem(t).Detail, `step "hello1-1001:[stop nginx, stop php]" of phase "hello1-1001" in operation `) {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = r.ask(apitest.User, "POST", "/v1/clusters/hello/recover", `{"nodeNames":["hello1-1001"],"services":["no"]}`)
	if a.status/100 != 4 || !strings.Contains(a.body, "no service") {
		t.Errorf("a service that the node does not have: %d %s", a.status, a.body)
	}
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
