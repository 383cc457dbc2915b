package server_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// TestOwnActions checks that a plan of the template carries out an action of a service's own, tries it again after a failure, and leaves
// the state of the service as it is.
func TestOwnActions(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "POST", "/v1/import", strings.Replace(parts, `"actions":{`, `"actions":{"drain":{"type":"shell"},`, 1))
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"links":`,
		`"plans":{"bounce":{"phases":{"all":{"service":"nginx","steps":[{"default":[["drain","stop"],["start"]]}]}}}},"links":`, 1))
	_, op := w.cluster("hello", "1")
	w.Finish(op)
	if a := w.must(200, apitest.User, "POST", "/service/hello/v1/plans/bounce/start", `{"GRACE":"5"}`); !strings.Contains(a.body, "{GRACE=5}") {
		t.Errorf("%s", a.body)
	}
	v, err := w.View(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	run := v.ActiveOperations()[0].ID
	if a := w.must(202, apitest.User, "GET", "/service/hello/v1/plans/bounce", ""); !strings.Contains(a.body, "hello1-1000:[drain, stop]") {
		t.Errorf("%s", a.body)
	}
	first, _ := w.Next(run)
	w.Report(first.ID, model.TaskReady, "busy") // it is tried again
	if a := w.must(202, apitest.User, "GET", "/service/hello/v1/plans/bounce", ""); !strings.Contains(a.body, `"DELAYED"`) {
		t.Errorf("%s", a.body)
	}
	w.must(200, apitest.User, "POST", "/service/hello/v1/plans/bounce/restart", "")
	if a := w.ask(apitest.User, "GET", "/service/hello/v1/pod/hello1-1000/status", ""); !strings.Contains(a.body, `"RUNNING"`) {
		t.Errorf("%s", a.body)
	}
	w.Finish(run)
	w.must(200, apitest.User, "GET", "/service/hello/v1/plans/bounce", "")
	var tasks []model.Task
	w.must(200, apitest.User, "GET", "/v1/operations/"+run+"/tasks", "").into(t, &tasks)
	i := slices.IndexFunc(tasks, func(t model.Task) bool { return t.Own == "drain" })
	if i < 0 || tasks[i].Service != "nginx" || tasks[i].Action != model.Run || tasks[i].Status != model.TaskSucceeded {
		t.Errorf("%+v", tasks)
	}
	if v, err = w.View(t.Context(), "", 0); err != nil {
		t.Fatal(err)
	}
	id := string(model.OperationID(run).Cluster())
	nodes := v.Nodes("acme", id)
	if len(nodes) != 1 || nodes[0].States["nginx"] != "START" || nodes[0].States["nginx:drain"] != "" {
		t.Errorf("%+v", nodes[0].States)
	}
}

// TestOwnActionsOfOldVoters checks that a plan with an action of a service's own does not start while some voters would end it in another
// way.
func TestOwnActionsOfOldVoters(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "POST", "/v1/import", strings.Replace(parts, `"actions":{`, `"actions":{"drain":{"type":"shell"},`, 1))
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"links":`,
		`"plans":{"a":{"phases":{"all":{"service":"nginx","steps":[{"default":[["drain"]]}]}}},
		"b":{"phases":{"all":{"service":"nginx","steps":[{"default":[["stop","start"]]}]}}}},"links":`, 1))
	_, op := w.cluster("hello", "1")
	w.Finish(op)
	for level := uint32(1); level < logformat.OwnActionLevel; level++ {
		w.Must(&pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level, Mesh: "m"}}})
	}
	a := w.must(409, apitest.User, "POST", "/v1/clusters/hello/plans/a/start", "{}")
	if p := a.problem(t); !strings.Contains(p.Detail, "coopr members -o wide") {
		t.Errorf("%+v", p)
	}
	w.must(200, apitest.User, "POST", "/v1/clusters/hello/plans/b/start", "{}")
	// Neither does a cluster begin whose record they would shorten.
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", strings.Replace(shop, `"links":`, `"plans":{"own":{"recovers":
		{"service":"nginx","when":"restart"},"phases":{"all":{"service":"nginx","steps":[{"default":[["stop","start"]]}]}}}},"links":`, 1))
	a = w.must(409, apitest.User, "POST", "/v1/clusters", `{"name":"other","clusterTemplate":"shop","numMachines":1}`)
	if p := a.problem(t); !strings.Contains(p.Detail, "plans with recovers") {
		t.Errorf("%+v", p)
	}
}
