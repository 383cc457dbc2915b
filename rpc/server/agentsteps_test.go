package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// withAgentStep is the template shop with a plan that has a step on an agent before one on the nodes.
func withAgentStep(automator string) (services, template string) {
	services = strings.Replace(parts, `"actions":{`, `"actions":{"probe":{"type":"`+automator+`"},`, 1)
	template = strings.Replace(shop, `"links":`, `"plans":{"backup":{"phases":{
		"look":{"service":"nginx","steps":[{"agent":[["probe"]]},{"default":[["stop","start"]]}]},
		"end":{"service":"nginx","steps":[{"agent":[["probe"]]}]}}}},"links":`, 1)
	return services, template
}

// TestAgentStepsNeedTheRight checks that a step on an agent is written, started, and let go on only with the right host:exec, and carries
// out only what somebody with the right wrote.
func TestAgentStepsNeedTheRight(t *testing.T) {
	w := newWorld(t)
	w.template()
	services, template := withAgentStep("shell")
	w.must(200, apitest.Admin, "POST", "/v1/import", services)
	w.forbidden(apitest.Admin, "PUT", "/v1/clustertemplates/shop", template)
	w.forbidden(apitest.Admin, "PUT", "/v1/partialtemplates/part",
		`{"name":"part",`+template[strings.Index(template, `"plans":`):strings.Index(template, `"links":`)]+`"description":"x"}`)
	w.must(200, apitest.Super, "PUT", "/v1/clustertemplates/shop?tenant=acme", template)
	// Scripts are among the resources that such a step uses.
	w.forbidden(apitest.Admin, "POST", "/v1/plugins/sync", ``)

	_, op := w.cluster("hello", "1") // by a user, as it runs nothing on an agent
	w.Finish(op)
	const start, asSuper = "/v1/clusters/hello/plans/backup/start", "?tenant=acme"
	w.forbidden(apitest.User, "POST", start, `{}`)
	w.forbidden(apitest.Admin, "POST", start, `{}`)
	if a := w.ask(apitest.Super, "POST", start+asSuper, `{}`); a.status != http.StatusForbidden || !strings.Contains(a.body, "service nginx, version ") {
		t.Errorf("the action of a stranger: %d %s", a.status, a.body)
	}
	w.must(200, apitest.Super, "POST", "/v1/import?tenant=acme", services)
	_, op = w.cluster("world", "1")
	w.Finish(op)
	const plan = "/service/world/v1/plans/backup/"
	w.must(200, apitest.Super, "POST", plan+"start"+asSuper, `{}`)
	v, err := w.View(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	run := v.ActiveOperations()[0].ID
	// The right to operate the cluster is enough to hold the plan, but not to let it go on.
	w.must(200, apitest.User, "POST", plan+"interrupt", ``)
	for _, order := range []string{"continue", "restart", "start", "restart?phase=look", "continue?phase=look",
		"forceComplete?phase=look", "forceComplete?phase=look&step=agent:[probe]"} {
		w.forbidden(apitest.User, "POST", plan+order, `{}`)
	}
	w.forbidden(apitest.User, "POST", "/v1/operations/"+run+"/resume", `{}`)
	w.must(200, apitest.Super, "POST", plan+"continue"+asSuper, ``)
	w.must(200, apitest.User, "POST", plan+"forceComplete", ``) // nothing begins
	w.Finish(run)
	w.forbidden(apitest.User, "POST", plan+"restart", ``)
	w.forbidden(apitest.User, "POST", plan+"start", `{}`)
}

// TestAgentStepsOfOtherAutomators checks that an automator that works on nodes only is refused when the template is written.
func TestAgentStepsOfOtherAutomators(t *testing.T) {
	w := newWorld(t)
	w.template()
	services, template := withAgentStep("chef-solo")
	w.must(200, apitest.Super, "POST", "/v1/import?tenant=acme", services)
	a := w.must(422, apitest.Super, "PUT", "/v1/clustertemplates/shop?tenant=acme", template)
	if !strings.Contains(a.body, "action probe of nginx is of automator chef-solo, which works on a node only") {
		t.Errorf("%s", a.body)
	}
}

// TestAgentStep checks how a step on an agent is shown, that orders work on it, that its failure ends the plan, and that it leaves nothing
// on the nodes.
func TestAgentStep(t *testing.T) {
	w := newWorld(t)
	w.template()
	services, template := withAgentStep("shell")
	w.must(200, apitest.Super, "POST", "/v1/import?tenant=acme", services)
	w.must(200, apitest.Super, "PUT", "/v1/clustertemplates/shop?tenant=acme", template)
	_, op := w.cluster("hello", "2")
	w.Finish(op)
	const plan = "/service/hello/v1/plans/backup"
	order := func(text string) {
		t.Helper()
		w.must(200, apitest.Super, "POST", plan+"/"+text, `{}`)
	}
	shows := func(status int, words ...string) {
		t.Helper()
		a := w.must(status, apitest.Super, "GET", plan+"?tenant=acme", "")
		for _, word := range words {
			if !strings.Contains(a.body, word) {
				t.Errorf("no %s in %s", word, a.body)
			}
		}
	}
	shows(202, `"agent:[probe]"`)
	order("start?tenant=acme")
	v, err := w.View(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	run := v.ActiveOperations()[0].ID
	next := func() model.Task {
		t.Helper()
		task, ok := w.Next(run)
		if !ok {
			t.Fatal("there is no next task")
		}
		return task
	}
	before := v.Nodes("acme", string(model.OperationID(run).Cluster()))
	if task := next(); task.Node != "" || task.Service != "nginx" || task.Own != "probe" {
		t.Errorf("%+v", task)
	}
	// It fails: the nodes are left alone, until it is done again.
	w.Report(next().ID, model.TaskFailed, "no room")
	shows(417, `"ERROR"`)
	if _, ok := w.Next(run); ok {
		t.Error("the plan goes on after a failure")
	}
	order("restart?phase=look&step=agent:[probe]&tenant=acme")
	w.Report(next().ID, model.TaskRunning, "")
	shows(202, `"STARTED"`)
	order("restart?phase=look&step=agent:[probe]&tenant=acme") // while it is at work
	if task := next(); task.Own != "probe" || task.Status != model.TaskReady && task.Status != model.TaskUncertain {
		t.Errorf("%+v", task)
	}
	order("forceComplete?phase=look&step=agent:[probe]&tenant=acme")
	order("interrupt?phase=end&tenant=acme")
	w.Finish(run)
	shows(202, `"WAITING"`)
	order("continue?phase=end&tenant=acme")
	if task := next(); task.Own != "probe" || task.Attempt != 0 {
		t.Errorf("%+v", task)
	}
	w.Finish(run)
	shows(200)
	var tasks []model.Task
	w.must(200, apitest.Super, "GET", "/v1/operations/"+run+"/tasks?tenant=acme", "").into(t, &tasks)
	on := slices.DeleteFunc(tasks, func(t model.Task) bool { return t.Node != "" })
	if len(on) != 2 {
		t.Errorf("%+v", tasks)
	}
	if v, err = w.View(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	for i, n := range v.Nodes("acme", string(model.OperationID(run).Cluster())) {
		if n.States["nginx"] != before[i].States["nginx"] || len(n.States) != len(before[i].States) {
			t.Errorf("%+v", n.States)
		}
	}
}
