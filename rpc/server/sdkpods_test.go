package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/apitest"
)

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
