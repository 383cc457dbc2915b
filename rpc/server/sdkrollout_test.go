package server_test

import (
	"fmt"
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
