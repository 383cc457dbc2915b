package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

const provider = `{"name":"cloud","providertype":"cloud","provisioner":{"region":"north","pin":"1234","key":"k-1","api_password":"pw",` +
	`"nested":{"secret_token":"deep","plain":"x"}}}`

func TestDefinitions(t *testing.T) {
	w := newWorld(t)
	a := w.must(201, apitest.Admin, "POST", "/v1/services", "name: nginx\ndescription: Web\nprovisioner:\n  actions:\n    install: {type: "+
		"shell, fields: {script: a.sh}}\n", "Content-Type: application/yaml")
	var svc model.Service
	a.into(t, &svc)
	if svc.Name != "nginx" || svc.Version != 1 || svc.Provisioner.Actions["install"].Type != "shell" {
		t.Errorf("%+v", svc)
	}
	w.must(200, apitest.Admin, "PUT", "/v1/services/nginx", `{"name":"nginx","description":"Web, again","version":99}`)
	w.must(200, apitest.Guest, "GET", "/v1/services/nginx", "").into(t, &svc)
	if svc.Version != 2 || svc.Description != "Web, again" {
		t.Errorf("%+v", svc)
	}
	w.must(200, apitest.Guest, "GET", "/v1/services/nginx/versions/1", "").into(t, &svc)
	if svc.Version != 1 || svc.Description != "Web" {
		t.Errorf("%+v", svc)
	}
	var all []model.Service
	w.must(200, apitest.Guest, "GET", "/v1/services/nginx/versions", "").into(t, &all)
	if len(all) != 2 {
		t.Errorf("%d versions", len(all))
	}
	w.must(200, apitest.Admin, "DELETE", "/v1/services/nginx/versions/1", "")
	w.must(404, apitest.Admin, "DELETE", "/v1/services/nginx/versions/1", "")
	w.must(200, apitest.Admin, "DELETE", "/v1/services/nginx", "")
	if a := w.must(200, apitest.Guest, "GET", "/v1/services", ""); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("not an empty list: %s", a.body)
	}
	// Tenants do not see each other's definitions.
	w.must(200, apitest.Super, "PUT", "/v1/services/mine", `{"name":"mine"}`)
	w.must(404, apitest.Admin, "GET", "/v1/services/mine", "")
	w.must(200, apitest.Super, "PUT", "/v1/services/theirs?tenant=acme", `{"name":"theirs"}`)
	w.must(200, apitest.Admin, "GET", "/v1/services/theirs", "")
}

func TestSecretsStayInside(t *testing.T) {
	w := newWorld(t)
	w.template()
	secrets := []string{"1234", "k-1", `"pw"`, "deep", "hunter2"}
	clean := func(what string, a answer) {
		t.Helper()
		for _, s := range secrets {
			if strings.Contains(a.body, s) {
				t.Errorf("%s tells %s: %s", what, s, a.body)
			}
		}
	}
	clean("put", w.must(200, apitest.Admin, "PUT", "/v1/providers/cloud", provider))
	got := w.must(200, apitest.Admin, "GET", "/v1/providers/cloud", "")
	clean("get", got)
	clean("list", w.must(200, apitest.Guest, "GET", "/v1/providers", ""))
	clean("version", w.must(200, apitest.Guest, "GET", "/v1/providers/cloud/versions/1", ""))
	id, op := w.cluster("shop1", "2")
	for _, path := range []string{"/v1/clusters", "/v1/clusters/" + id, "/v1/nodes", "/v1/nodes/" + id + "-1000", "/v1/operations/" + op} {
		clean(path, w.must(200, apitest.User, "GET", path, ""))
	}
	clean("create", w.must(200, apitest.User, "POST", "/v1/clusters?dryRun=true", `{"name":"x","clusterTemplate":"shop","numMachines":2}`))
	clean("create", w.must(202, apitest.User, "POST", "/v1/clusters", `{"name":"x","clusterTemplate":"shop","numMachines":2}`))
	clean("export", w.must(200, apitest.User, "GET", "/v1/export", ""))
	if a := w.must(200, apitest.Admin, "GET", "/v1/export", ""); !strings.Contains(a.body, "1234") {
		t.Error("an admin's export lacks the secrets")
	}
	clean("log", answer{body: w.log.String()})

	// A provider that was read with redacted secrets keeps them when it is written back.
	w.must(200, apitest.Admin, "PUT", "/v1/providers/cloud", strings.Replace(got.body, "north", "south", 1))
	a := w.must(200, apitest.Admin, "GET", "/v1/export", "")
	if !strings.Contains(a.body, "1234") || !strings.Contains(a.body, "deep") || !strings.Contains(a.body, "south") ||
		strings.Contains(a.body, model.Redacted) {
		t.Errorf("%s", a.body)
	}
	p := w.must(422, apitest.Admin, "PUT", "/v1/providers/new",
		`{"name":"new","providertype":"cloud","provisioner":{"pin":"[redacted]"}}`).problem(t)
	if len(p.Errors) != 1 || p.Errors[0].Path != "provisioner.pin" {
		t.Errorf("%+v", p)
	}
	for _, token := range []string{apitest.Admin, apitest.User, apitest.Guest} {
		if strings.Contains(w.log.String(), token) {
			t.Errorf("the log has a token")
		}
	}
}

func TestImportAndExport(t *testing.T) {
	w := newWorld(t)
	body := `{"services":[{"name":"nginx","icon":"old"},{"name":"php"}],"providers":[` + provider + `],"clustertemplates":[` + shop + `]}`
	a := w.must(200, apitest.Admin, "POST", "/v1/import", body)
	var done api.Imported
	a.into(t, &done)
	if len(done.Written) != 4 || done.Written[0].Version != 1 || len(done.Warnings) != 6 || done.Warnings[0].Subject != "providers/cloud" ||
		done.Warnings[4].Path != "provisioner.nested.secret_token" || done.Warnings[5].Path != "provisioner.pin" {
		t.Errorf("%+v", done)
	}
	index := w.Index()
	exported := w.must(200, apitest.Admin, "GET", "/v1/export", "")
	// A definition that is the same as before gets no new version.
	changed := strings.ReplaceAll(exported.body, "old", "new")
	w.must(200, apitest.Admin, "POST", "/v1/import", changed).into(t, &done)
	versions := map[string]int{}
	for _, d := range done.Written {
		versions[d.Name] = d.Version
	}
	if versions["nginx"] != 2 || versions["php"] != 1 {
		t.Errorf("%+v", done)
	}
	if w.Index() != index+1 {
		t.Error("an import is not one change")
	}
	w.must(200, apitest.Admin, "POST", "/v1/import", "kind: services\nname: y1\n---\nkind: service\nname: y2\n",
		"Content-Type: application/yaml").into(t, &done)
	if len(done.Written) != 2 || done.Written[1].Name != "y2" {
		t.Errorf("%+v", done)
	}
}

func TestBlockingReads(t *testing.T) {
	w := newWorld(t)
	w.template()
	a := w.must(200, apitest.User, "GET", "/v1/clusters", "")
	index := a.header.Get("Coopr-Index")
	// A read with an earlier index is answered immediately.
	w.must(200, apitest.User, "GET", "/v1/clusters?index=1&wait=10m", "")
	// Without a change, the read returns the same state after the wait.
	a = w.must(200, apitest.User, "GET", "/v1/clusters?wait=20ms&index="+index, "")
	if a.header.Get("Coopr-Index") != index {
		t.Errorf("index %s, not %s", a.header.Get("Coopr-Index"), index)
	}
	got := make(chan answer)
	go func() { got <- w.ask(apitest.User, "GET", "/v1/clusters?wait=10m&index="+index, "") }()
	select {
	case a := <-got:
		t.Fatalf("did not wait: %s", a.body)
	case <-time.After(30 * time.Millisecond):
	}
	w.cluster("new", "1")
	a = <-got
	var list []api.ClusterSummary
	a.into(t, &list)
	if len(list) != 1 || list[0].Name != "new" || list[0].NumNodes != 1 || list[0].OwnerID != "bob" || list[0].Progress.StepsTotal != 8 {
		t.Errorf("%+v", list)
	}
}

func TestAdministratorsRevokeNoTokenOfTheMesh(t *testing.T) {
	w := newWorld(t)
	issue := func(by, body, tenant string) api.IssuedToken {
		t.Helper()
		var token api.IssuedToken
		w.must(201, by, "POST", "/v1/tokens?tenant="+tenant, body).into(t, &token)
		return token
	}
	admin := issue(apitest.Super, `{"actor":"ann","role":"admin"}`, "main")
	operator := issue(apitest.Super, `{"actor":"ops","role":"superadmin"}`, "acme")
	w.must(403, admin.Secret, "DELETE", "/v1/tokens/t1", "") // root's, of the same tenant
	w.must(403, apitest.Admin, "DELETE", "/v1/tokens/"+operator.ID, "")
	w.must(404, apitest.Admin, "DELETE", "/v1/tokens/"+admin.ID, "")
	for _, secret := range []string{apitest.Super, operator.Secret, admin.Secret} {
		w.must(200, secret, "GET", "/v1/tokens", "")
	}
	w.must(200, apitest.Admin, "DELETE", "/v1/tokens/t3", "") // bob's, a user of the tenant
	w.must(200, apitest.Super, "DELETE", "/v1/tokens/"+operator.ID+"?tenant=acme", "")
}

func TestNobodyGetsAnothersName(t *testing.T) {
	w := newWorld(t)
	w.must(201, apitest.Super, "POST", "/v1/tokens", `{"actor":"ops","role":"superadmin"}`)
	w.must(201, apitest.Super, "POST", "/v1/tokens?tenant=acme", `{"actor":"zoe","role":"admin"}`)
	w.must(201, apitest.Super, "POST", "/v1/tokens", `{"actor":"ann","role":"admin"}`)
	for _, name := range []string{"root", "coopr", "system", "dev", "Root", "COOPR"} {
		for _, by := range []string{apitest.Admin, apitest.Super} {
			p := w.must(422, by, "POST", "/v1/tokens", `{"actor":"`+name+`"}`).problem(t)
			if len(p.Errors) != 1 || p.Errors[0].Path != "actor" {
				t.Errorf("%s: %+v", name, p)
			}
		}
	}
	for _, name := range []string{"ops", "OPS", "zoe", "Bob", "Alice", "BOB"} {
		w.must(409, apitest.Admin, "POST", "/v1/tokens", `{"actor":"`+name+`"}`)
	}
	w.must(409, apitest.Super, "POST", "/v1/tokens?tenant=acme", `{"actor":"Bob"}`)
	// Tokens can be replaced, and the names of other tenants are free.
	w.must(201, apitest.Admin, "POST", "/v1/tokens", `{"actor":"bob"}`)
	w.must(201, apitest.Admin, "POST", "/v1/tokens", `{"actor":"alice","role":"admin"}`)
	w.must(201, apitest.Super, "POST", "/v1/tokens?tenant=acme", `{"actor":"zoe","role":"admin"}`)
	w.must(201, apitest.Admin, "POST", "/v1/tokens", `{"actor":"Ann"}`)
}

func TestTokensInURLsAreRefused(t *testing.T) {
	leader, follower := pair(t)
	for _, w := range []*world{leader, follower} {
		for _, by := range []string{"", apitest.Guest} {
			for _, path := range []string{"/v1/tenants", "/v1/members", "/v1/events"} {
				a := w.must(422, by, "GET", path+"?token="+apitest.User, "")
				p := a.problem(t)
				if len(p.Errors) != 1 || p.Errors[0].Path != "query.token" || !strings.Contains(p.Errors[0].Message, "Authorization: Bearer") {
					t.Errorf("%s: %+v", path, p)
				}
				if strings.Contains(a.body, apitest.User) {
					t.Errorf("%s: the answer has the token", path)
				}
			}
		}
		if strings.Contains(w.log.String(), apitest.User) {
			t.Error("the log has the token")
		}
	}
}

// slow signals the begin and the end of a blocking read.
type slow struct {
	rest.State
	begun, ended chan struct{}
}

func (s *slow) View(ctx context.Context, c api.Consistency, after uint64) (rest.View, error) {
	if after > 0 {
		close(s.begun)
		defer close(s.ended)
	}
	return s.State.View(ctx, c, after)
}

func TestClientThatGoesAwayEndsItsRequest(t *testing.T) {
	a := newAgent(t)
	b := &slow{begun: make(chan struct{}), ended: make(chan struct{})}
	w := serve(t, a, func(s *rest.Services) { b.State, s.State = s.State, b })
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "GET", w.url+"/v1/clusters?index=99&wait=10m", nil)
	req.Header.Set("Authorization", "Bearer "+apitest.User)
	go func() {
		<-b.begun // the request must reach the server before it is cancelled
		cancel()
	}()
	if resp, err := w.http.Do(req); err == nil {
		resp.Body.Close()
		t.Error("an answer")
	}
	<-b.ended
}

func TestClusters(t *testing.T) {
	w := newWorld(t)
	w.template()
	var st api.StartedBody
	w.must(200, apitest.User, "POST", "/v1/clusters?dryRun=true", "name: dry\nclusterTemplate: shop\nnodes: 3\n",
		"Content-Type: application/yaml").into(t, &st)
	if !st.DryRun || st.Operation != nil || st.Cluster != nil || st.Preview.Layout.Nodes() != 3 || st.Preview.Tasks != 24 ||
		len(st.Preview.Stages) != 6 {
		t.Errorf("%+v", st.Preview.Stages)
	}
	id, op := w.cluster("shop1", "2")
	// A user does not see the clusters of other users. An admin sees them.
	for _, path := range []string{"/v1/clusters/shop1", "/v1/operations/" + op, "/v1/operations/" + op + "/tasks",
		"/v1/tasks/" + strings.ReplaceAll(op, "/", "%2F") + "%2F0", "/v1/nodes/" + id + "-1000", "/v1/nodes?cluster=shop1"} {
		w.must(404, apitest.Other, "GET", path, "")
		w.must(200, apitest.Admin, "GET", path, "")
		w.must(200, apitest.Guest, "GET", path, "")
	}
	w.must(404, apitest.Other, "DELETE", "/v1/clusters/shop1", "")
	w.must(404, apitest.Other, "POST", "/v1/operations/"+op+"/abort", "")
	for _, path := range []string{"/v1/clusters", "/v1/operations", "/v1/nodes"} {
		if a := w.must(200, apitest.Other, "GET", path, ""); strings.TrimSpace(a.body) != "[]" {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	w.must(409, apitest.User, "POST", "/v1/clusters/shop1/restart", "")
	var tasks []model.Task
	a := w.must(200, apitest.User, "GET", "/v1/operations/"+op+"/tasks?limit=3&offset=1", "")
	a.into(t, &tasks)
	if len(tasks) != 3 || a.header.Get("Coopr-Total") != "16" || tasks[0].ID != op+"/1" {
		t.Errorf("%d tasks of %s", len(tasks), a.header.Get("Coopr-Total"))
	}
	var od api.OperationDetails
	w.must(200, apitest.User, "POST", "/v1/operations/"+op+"/pause", `{"reason":"lunch"}`).into(t, &od)
	if od.Status != model.OpPaused || od.Message != "lunch" {
		t.Errorf("%+v", od)
	}
	w.must(200, apitest.User, "POST", "/v1/operations/"+op+"/resume", "")
	w.must(409, apitest.User, "POST", "/v1/operations/"+op+"/resume", "")
	w.Finish(op)
	var details api.ClusterDetails
	w.must(200, apitest.User, "GET", "/v1/clusters/shop1", "").into(t, &details)
	if details.Status != model.ClusterActive || len(details.Nodes) != 2 || len(details.Links) != 1 ||
		details.Links[0].URL != "http://shop11-1000.local/" ||
		details.Progress.StepsCompleted != 16 || details.Progress.ActionStatus != model.OpSucceeded {
		t.Errorf("%+v %+v", details.Links, details.Progress)
	}
	w.must(404, apitest.User, "POST", "/v1/clusters/shop1/services/ngin/restart", "")
	w.must(202, apitest.User, "POST", "/v1/clusters/shop1/services/nginx/restart", "").into(t, &st)
	if st.Operation.Type != model.OpRestart || len(st.Operation.Services) != 1 || st.ID != id {
		t.Errorf("%+v", st.Operation)
	}
	w.must(200, apitest.User, "POST", "/v1/operations/"+st.Operation.ID+"/abort", "")
	w.must(202, apitest.User, "PUT", "/v1/clusters/shop1/config", `{"config":{"nginx":{"workers":8}}}`).into(t, &st)
	var config map[string]any
	w.must(200, apitest.User, "GET", "/v1/clusters/shop1/config", "").into(t, &config)
	if fmt.Sprint(config) != "map[nginx:map[workers:8]]" {
		t.Errorf("%v", config)
	}
	w.must(422, apitest.User, "PUT", "/v1/clusters/shop1/config", `{"restart":true}`)
	w.must(200, apitest.User, "POST", "/v1/operations/"+st.Operation.ID+"/abort", "")
	w.must(202, apitest.User, "POST", "/v1/clusters/shop1/configure", "").into(t, &st)
	w.must(200, apitest.User, "POST", "/v1/operations/"+st.Operation.ID+"/abort", "")
	w.must(202, apitest.User, "DELETE", "/v1/clusters/"+id+"?graceful=true", "").into(t, &st)
	if st.Operation.Type != model.OpDelete {
		t.Errorf("%+v", st.Operation)
	}
	var ops []api.OperationDetails
	w.must(200, apitest.User, "GET", "/v1/operations?cluster=shop1&status=running", "").into(t, &ops)
	if len(ops) != 1 || ops[0].ID != st.Operation.ID {
		t.Errorf("%+v", ops)
	}
}

func TestTenantsAndTokens(t *testing.T) {
	w := newWorld(t)
	var tenants []model.Tenant
	w.must(200, apitest.Guest, "GET", "/v1/tenants", "").into(t, &tenants)
	if len(tenants) != 1 || tenants[0].Name != "acme" {
		t.Errorf("%+v", tenants)
	}
	w.must(201, apitest.Super, "POST", "/v1/tenants", `{"name":"new","maxNodes":5}`)
	w.must(409, apitest.Super, "POST", "/v1/tenants", `{"name":"new"}`)
	w.must(200, apitest.Super, "PUT", "/v1/tenants/new", `{"maxNodes":6}`)
	var token api.IssuedToken
	w.must(201, apitest.Super, "POST", "/v1/tokens", `{"actor":"zoe","role":"admin"}`, "Coopr-Tenant: new").into(t, &token)
	if token.Secret == "" || token.ID == "" || token.Tenant != "new" || token.Role != model.RoleAdmin {
		t.Errorf("%+v", token)
	}
	a := w.must(200, token.Secret, "GET", "/v1/tokens", "")
	if !strings.Contains(a.body, "zoe") || strings.Contains(a.body, token.Secret) {
		t.Errorf("%s", a.body)
	}
	w.must(404, apitest.Admin, "DELETE", "/v1/tokens/"+token.ID, "")
	w.must(200, token.Secret, "DELETE", "/v1/tokens/"+token.ID, "")
	w.must(401, token.Secret, "GET", "/v1/tokens", "")
	w.must(200, apitest.Super, "DELETE", "/v1/tenants/new", "")
	w.must(404, apitest.Super, "GET", "/v1/tenants/new", "")
	// A request can have its token in several places.
	w.must(200, "", "GET", "/v1/tenants", "", "Authorization: token="+apitest.Guest)
	w.must(200, "", "GET", "/v1/tenants", "", "Authorization: bearer "+apitest.Guest)
	if strings.Contains(w.log.String(), apitest.Guest) {
		t.Error("the log has a token")
	}
}

func TestMesh(t *testing.T) {
	w := newWorld(t)
	w.must(200, "", "GET", "/v1/healthz", "")
	w.must(200, apitest.Guest, "GET", "/v1/members", "")
	w.must(200, apitest.Guest, "GET", "/v1/status", "")
	w.must(200, apitest.Guest, "GET", "/v1/plugins", "")
	w.must(200, apitest.Guest, "GET", "/v1/agents", "")
	w.must(200, apitest.Guest, "GET", "/v1/agents/a", "")
	w.must(404, apitest.Guest, "GET", "/v1/agents/b", "")
	w.must(200, apitest.Super, "POST", "/v1/join", `{"addresses":["10.0.0.1"]}`)
	w.StoreResources(t.TempDir(), 1, 1) // has the agent id-blobs on record, with a session
	w.Must(&pb.Command{Change: &pb.Command_EndSession{EndSession: &pb.EndSession{Session: "blobs"}}})
	w.must(200, apitest.Super, "POST", "/v1/leave", `{"agent":"id-blobs"}`)
	w.must(404, apitest.Super, "POST", "/v1/leave", `{"agent":"id-blobs"}`)
	if a := w.must(200, apitest.Super, "GET", "/v1/audit?tenant=*&type=agent.removed", ""); !strings.Contains(a.body, `"actor":"root"`) {
		t.Errorf("the removal of an agent on the audit log: %s", a.body)
	}
	if joined, left := w.Joined(); len(joined) != 1 || len(left) != 1 || left[0] != "id-blobs" {
		t.Errorf("%v %v", joined, left)
	}
	follower := apitest.NewAgent(w.Store, "b")
	follower.Follow(w.url, false, http.DefaultTransport)
	serve(t, follower, nil).must(200, apitest.Root, "POST", "/v1/leave", "") // it has no vote
	w.must(200, apitest.Super, "GET", "/v1/operator/raft/peers", "")
	w.must(404, apitest.Super, "DELETE", "/v1/operator/raft/peers/id-x", "")
	if a := w.must(200, apitest.Guest, "GET", "/v1/metrics", ""); !strings.Contains(a.body, "coopr_api_requests_total") ||
		!strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		t.Errorf("%v %s", a.header, a.body)
	}
	w.must(200, apitest.Admin, "PUT", "/v1/services/kept", `{"name":"kept"}`)
	saved := w.must(200, apitest.Super, "GET", "/v1/operator/snapshot", "")
	w.must(200, apitest.Admin, "DELETE", "/v1/services/kept", "")
	w.must(200, apitest.Super, "POST", "/v1/operator/snapshot?unsigned=true", saved.body, "Content-Type: application/octet-stream")
	w.must(200, apitest.Admin, "GET", "/v1/services/kept", "")
	held := func(want bool) {
		t.Helper()
		ready, attention := w.must(200, apitest.Guest, "GET", "/v1/readyz", "").body, w.must(200, apitest.User, "GET", "/v1/attention", "").body
		if strings.Contains(ready, `"held":true`) != want || strings.Contains(attention, `"hold":{`) != want {
			t.Errorf("held or not:\n%s\n%s", ready, attention)
		}
	}
	held(true)
	w.must(403, apitest.Admin, "POST", "/v1/operator/resume", "")
	w.must(200, apitest.Super, "POST", "/v1/operator/resume", "")
	held(false)
	w.must(409, apitest.Super, "POST", "/v1/operator/resume", "")
	restore := func(query string, want int) {
		t.Helper()
		w.must(want, apitest.Super, "POST", "/v1/operator/snapshot?unsigned=true&"+query, saved.body, "Content-Type: application/octet-stream")
	}
	restore("resume=true&file=a.snap", 200)
	held(false)
	restore("file=a%1b.snap", 422)
	restore("file="+strings.Repeat("x", 300), 422)
	held(false)
	if k := w.must(200, apitest.Super, "GET", "/v1/operator/keyring", ""); !strings.Contains(k.body, `"key":`) {
		t.Errorf("the keyring: %s", k.body)
	}

	got, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(got)
	for _, want := range []string{"coopr_api_requests_total", "coopr_api_request_duration_seconds", "listMembers", "putService"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s among the metrics", want)
		}
	}
}

// broken is a Mesh whose Members panics.
type broken struct{ rest.Mesh }

func (broken) Members() []api.Member { panic("members") }

func TestPanicsAreProblems(t *testing.T) {
	a := newAgent(t)
	w := serve(t, a, func(s *rest.Services) { s.Mesh = broken{s.Mesh} })
	p := w.must(500, apitest.Guest, "GET", "/v1/members", "").problem(t)
	if p.Type != api.ProblemInternal || strings.Contains(p.Detail, "members") {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(w.log.String(), "panic") {
		t.Error("the log does not tell")
	}
	w.must(200, apitest.Guest, "GET", "/v1/status", "")
}
