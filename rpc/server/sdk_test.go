package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// TestPlansWhereTheSDKHasThem sends the requests of the SDK's clients to all paths that
// they use.
func TestPlansWhereTheSDKHasThem(t *testing.T) {
	w := newWorld(t)
	w.template()
	c := w.plannedCluster("hello")
	id, p := c.id, one(tree.Pending)
	p.name = "deploy"
	c.begin(model.OpCreate, p)
	for _, base := range []string{"/v1/clusters/hello", "/v1/service/hello", "/v1/multi/hello", "/service/hello/v1", "/v1/clusters/" + id} {
		if a := w.must(200, "", "GET", base+"/plans", "", "Authorization: token="+apitest.User); compact(t, a.body) != `["deploy","recovery"]` {
			t.Errorf("%s: %s", base, a.body)
		}
		w.must(202, "", "GET", base+"/plans/deploy", "", "Authorization: token="+apitest.User)
		w.must(200, "", "POST", base+"/plans/deploy/interrupt", "", "Authorization: token="+apitest.User)
		w.must(208, "", "POST", base+"/plans/deploy/interrupt", "", "Authorization: token="+apitest.User)
		w.must(200, "", "POST", base+"/plans/deploy/continue", "", "Authorization: token="+apitest.User)
		a := w.must(200, "", "POST", base+"/plans/deploy/start", `{"A":"b"}`, "Authorization: token="+apitest.User)
		if !strings.Contains(a.body, "Received cmd: start deploy with parameters: {A=b}") {
			t.Errorf("%s", a.body)
		}
		w.must(200, "", "GET", base+"/debug/plans", "", "Authorization: token="+apitest.User)
		w.must(401, "", "GET", base+"/plans", "", "Authorization: token=nobody's")
		w.must(404, apitest.User, "GET", base+"/nothing", "")
	}
	// A follower forwards these requests.
	b := apitest.NewAgent(w.Store, "b")
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	b.Follow(w.url, true, transport)
	f := serve(t, b, nil)
	f.must(202, "", "GET", "/service/hello/v1/plans/deploy", "", "Authorization: token="+apitest.User)
	f.must(200, "", "POST", "/service/hello/v1/plans/deploy/forceComplete?phase=test-phase&step="+url.QueryEscape(stepName("s0")), "", "Authorization: token="+apitest.User)
	f.must(208, "", "POST", "/v1/multi/hello/plans/deploy/forceComplete?phase=test-phase&step="+url.QueryEscape(stepName("s0")), "", "Authorization: token="+apitest.User)
	if a := f.must(404, "", "GET", "/v1/service/hello/plans/no", "", "Authorization: token="+apitest.User); a.body != "Plan no not found" {
		t.Errorf("%q", a.body)
	}
	w.must(200, apitest.User, "POST", "/v1/clusters/hello/plans/deploy/restart", "")
	for _, base := range []string{"/v1/clusters/no", "/v1/service/no", "/v1/multi/no", "/service/no/v1"} {
		if a := w.must(404, apitest.User, "GET", base+"/plans", ""); a.body != "Service no not found" {
			t.Errorf("%s: %q", base, a.body)
		}
	}
	// The deprecated routes are about the plan deploy.
	w.must(202, apitest.User, "GET", "/service/hello/v1/plan", "")
	w.must(200, apitest.User, "POST", "/service/hello/v1/plan/interrupt", "")
	w.must(200, apitest.User, "POST", "/v1/service/hello/plan/continue", "")
	w.must(200, apitest.User, "POST", "/v1/multi/hello/plan/forceComplete?phase=test-phase&step="+url.QueryEscape(stepName("s0")), "")
	w.must(200, apitest.User, "POST", "/v1/service/hello/plan/restart", "")
	w.must(405, apitest.User, "DELETE", "/service/hello/v1/plans", "")
	// The plans of another tenant cannot be seen, and a reader cannot give orders.
	w.must(404, apitest.Super, "GET", "/service/"+id+"/v1/plans", "")
	w.must(403, apitest.Guest, "POST", "/service/hello/v1/plans/deploy/stop", "")
}

// TestClusterHealth checks the cases of docs/spec/plans.md §5, "Health".
func TestClusterHealth(t *testing.T) {
	const pending, prepared, starting, started, done = tree.Pending, tree.Prepared, tree.Starting, tree.Started, tree.Complete
	named := func(name string, status ...tree.Status) testPlan {
		p := one(status...)
		p.name, p.strategy = name, "parallel"
		return p
	}
	canary := named("deploy", pending, pending)
	canary.strategy = "parallel-canary"
	rows := []struct {
		name  string
		plans []testPlan
		want  int
	}{
		{"error", []testPlan{named("deploy", tree.Error)}, 500},
		{"pending", []testPlan{named("deploy", prepared, pending, starting, starting, starting)}, 204},
		{"starting", []testPlan{named("deploy", starting, started, done, done, done)}, 202},
		{"running", []testPlan{named("deploy", done)}, 200},
		{"recovery pending", []testPlan{named("deploy", done), named("recovery", pending)}, 203},
		{"recovery starting", []testPlan{named("deploy", done), named("recovery", starting)}, 205},
		{"backup", []testPlan{named("deploy", done), named("backup-s3", starting)}, 320},
		{"restore", []testPlan{named("deploy", done), named("restore-s3", starting)}, 321},
		{"both", []testPlan{named("deploy", done), named("backup-s3", starting), named("restore-s3", starting)}, 321},
		{"waiting", []testPlan{canary}, 207},
		{"delayed", []testPlan{named("deploy", tree.Delayed, done)}, 208},
	}
	typeOf := map[string]model.OperationType{
		"deploy": model.OpCreate, "recovery": model.OpRecover, "backup-s3": model.OpRun, "restore-s3": model.OpRun,
	}
	w := newWorld(t)
	for i, r := range rows {
		c := w.plannedCluster(fmt.Sprintf("hello-%d", i))
		for _, p := range r.plans {
			c.begin(typeOf[p.name], p)
		}
		a := w.ask(apitest.Guest, "GET", "/service/"+c.name+"/v1/health?verbose=true", "")
		if a.status != r.want {
			t.Errorf("%s: %d, not %d: %s", r.name, a.status, r.want, a.body)
		}
		if a.status == http.StatusNoContent {
			continue // has no body in HTTP
		}
		var h tree.Health
		a.into(t, &h)
		if h.Code != r.want {
			t.Errorf("%s: the body says %d", r.name, h.Code)
		}
	}
}

// TestDebugPlans checks the filters. The body reports a filter that matches nothing.
func TestDebugPlans(t *testing.T) {
	w := newWorld(t)
	w.plannedCluster("hello").begin(model.OpCreate, testPlan{name: "deploy", phases: []phase{
		{"a", false, []step{{"a0", tree.Complete}}},
		{"b", false, []step{{"b0", tree.Starting}, {"b1", tree.Pending}}},
	}})
	var d tree.Debug
	w.must(200, apitest.Guest, "GET", "/v1/clusters/hello/debug/plans?sync=true", "").into(t, &d)
	if d.State != "DEPLOYING" || len(d.Plans) != 2 || d.Plans[0].Total != 3 || d.Plans[0].Completed != 1 || len(d.Active) != 1 {
		t.Errorf("%+v", d)
	}
	w.must(200, apitest.Guest, "GET", "/v1/clusters/hello/debug/plans?plan=deploy&phase=b&step="+url.QueryEscape(stepName("b1")), "").into(t, &d)
	if len(d.Plans) != 1 || len(d.Plans[0].Phases) != 1 || len(d.Plans[0].Phases[0].Steps) != 1 {
		t.Errorf("%+v", d)
	}
	for _, q := range []string{"plan=no", "plan=deploy&phase=no", "plan=deploy&phase=a&step=" + url.QueryEscape(stepName("b0")), "step=" + url.QueryEscape(stepName("a0"))} {
		if a := w.must(200, apitest.Guest, "GET", "/v1/clusters/hello/debug/plans?"+q, ""); !strings.Contains(a.body, `"invalid-input": "`) {
			t.Errorf("%s: %s", q, a.body)
		}
	}
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b.String()
}

// TestPods checks the cases of docs/spec/plans.md §9 that only read.
func TestPods(t *testing.T) {
	w := newWorld(t)
	w.template()
	id, _ := w.cluster("hello", "2")
	for _, base := range []string{"/v1/clusters/hello", "/v1/service/hello", "/v1/multi/" + id, "/service/hello/v1"} {
		a := w.must(200, "", "GET", base+"/pod", "", "Authorization: token="+apitest.Guest)
		if compact(t, a.body) != `["hello1-1000","hello1-1001"]` {
			t.Errorf("%s", a.body)
		}
		if a := w.must(404, apitest.Guest, "GET", base+"/pod/no/status", ""); a.body != "Pod no not found" {
			t.Errorf("%s", a.body)
		}
		w.must(404, apitest.Guest, "GET", base+"/pod/no/info", "")
	}
	never := `{"name":"hello1-1000","tasks":[{"id":"` + id + `-1000/nginx","name":"hello1-1000-nginx"},{"id":"` + id + `-1000/php","name":"hello1-1000-php"}]}`
	if a := w.must(200, apitest.Guest, "GET", "/service/hello/v1/pod/hello1-1000/status", ""); compact(t, a.body) != never {
		t.Errorf("%s", a.body)
	}
	for state, shown := range map[string]string{"START": "RUNNING", "START?": "STARTING", "STOP": "KILLED", "STOP?": "KILLING", "CONFIGURE": ""} {
		c := w.plannedCluster("pods-" + strings.ToLower(strings.TrimSuffix(state, "?")) + strconv.Itoa(len(state)))
		c.state = state
		c.begin(model.OpCreate, one(tree.Pending))
		var p tree.Pod
		w.must(200, apitest.Guest, "GET", "/v1/clusters/"+c.id+"/pod/s0/status", "").into(t, &p)
		if len(p.Tasks) != 1 || p.Tasks[0].Status != shown {
			t.Errorf("%s: %+v", state, p)
		}
	}
	var all tree.Pods
	w.must(200, apitest.Guest, "GET", "/v1/clusters/hello/pod/status", "").into(t, &all)
	if all.Service != "hello" || len(all.Pods) != 1 || all.Pods[0].Name != "nginx+php" || len(all.Pods[0].Instances) != 2 {
		t.Errorf("%+v", all)
	}
	var infos []api.PodInfo
	w.must(200, apitest.Guest, "GET", "/v1/clusters/hello/pod/"+id+"-1001/info", "").into(t, &infos)
	if len(infos) != 2 || infos[1].Info.Service != "php" || infos[1].Info.Pod != "hello1-1001" || infos[1].Status.Name != "hello1-1001-php" {
		t.Errorf("%+v", infos)
	}
}
