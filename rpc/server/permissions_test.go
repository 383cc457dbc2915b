package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// TestPermissionsPageIsCurrent compares docs/permissions.md, the table that people review, with the routes.
func TestPermissionsPageIsCurrent(t *testing.T) {
	want, err := server.Permissions()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/permissions.md is not what the routes need: run make generate, and review the difference")
	}
}

// TestPermissions sends a request to each route of the document as each role, about things of bob's. What the role's
// policies deny is refused and changes nothing.
func TestPermissions(t *testing.T) {
	w := newWorld(t)
	w.template()
	cluster, operation := w.cluster("web", "2")
	var nodes []model.Node
	w.must(200, apitest.User, "GET", "/v1/nodes?cluster=web", "").into(t, &nodes)
	var tasks []model.Task
	w.must(200, apitest.User, "GET", "/v1/operations/"+operation+"/tasks", "").into(t, &tasks)
	w.must(200, apitest.Admin, "PUT", "/v1/profiles/p", `{"provisioner":{"name":"native","properties":[]}}`)
	w.must(200, apitest.User, "PUT", "/v1/programs/job", job)
	w.must(200, apitest.Admin, "PUT", "/v1/secrets/pin", `{"value":"1"}`)
	names := map[string]string{
		"cluster": cluster, "operation": operation, "node": nodes[0].ID, "task": url.PathEscape(tasks[0].ID), "pod": nodes[0].ID,
		"name": "shop", "version": "1", "profile": "p", "program": "job", "kind": "automatortypes", "plan": "deploy", "number": "1",
		"service": "nginx", "id": "t2", "agent": "a",
	}
	raw, err := server.Document()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []struct {
				Name, In string
				Required bool
			}
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	// People of another tenant have what is theirs there, and nothing of these.
	w.must(201, apitest.Super, "POST", "/v1/tenants", `{"name":"far"}`)
	strangers := map[string]model.Caller{}
	for _, role := range []model.Role{model.RoleRead, model.RoleUser, model.RoleAdmin} {
		var t api.IssuedToken
		w.must(201, apitest.Super, "POST", "/v1/tokens?tenant=far", fmt.Sprintf(`{"actor":"far-%s","role":%q}`, role, role)).into(w.t, &t)
		strangers[t.Secret] = model.Caller{Tenant: "far", Actor: t.Actor, Role: role}
	}
	natives := map[string]model.Caller{
		apitest.Guest: {Tenant: "acme", Actor: "dave", Role: model.RoleRead}, apitest.Other: {Tenant: "acme", Actor: "carol", Role: model.RoleUser},
		apitest.User: {Tenant: "acme", Actor: "bob", Role: model.RoleUser}, apitest.Admin: {Tenant: "acme", Actor: "alice", Role: model.RoleAdmin},
	}
	// The groups that no role maps to.
	for _, group := range []string{"editor", "operator"} {
		name := "an-" + group
		w.must(201, apitest.Super, "POST", "/v1/users?tenant=acme",
			fmt.Sprintf(`{"name":%q,"role":"read","groups":[%q],"password":%q}`, name, group, password))
		natives[w.login(name, password).Secret] = model.Caller{Tenant: "acme", Actor: name, Role: model.RoleRead, Groups: []string{group}}
	}
	nothing := []string{"[]", `{"clusters":0,"ill":0,"failed":0,"waiting":0}`}
	asked := 0
	all := func(people map[string]model.Caller, expect func(model.Caller, rest.Right) bool, secrets ...string) {
		t.Helper()
		index := w.Store.Index()
		for path, methods := range doc.Paths {
			for method, op := range methods {
				right, ok := rest.RightOf(op.OperationID)
				if !ok || right.Action == "" || op.OperationID == "watchEvents" {
					continue // public, or for every token; the stream is of what is listed
				}
				target := regexp.MustCompile(`\{([^}]+)\}`).ReplaceAllStringFunc(path, func(m string) string {
					if n := names[m[1:len(m)-1]]; n != "" {
						return n
					}
					return "x"
				})
				query := url.Values{}
				for _, p := range op.Parameters {
					if p.In == "query" && p.Required {
						query.Set(p.Name, "profile:p")
					}
				}
				for token, who := range people {
					allowed := expect(who, right)
					if allowed && method != "get" {
						continue
					}
					asked++
					a := w.ask(token, strings.ToUpper(method), target+"?"+query.Encode(), "")
					said := fmt.Sprintf("%s %s as %s: status %d %s", method, target, who.Actor, a.status, a.body)
					switch {
					case slices.ContainsFunc(secrets, func(s string) bool { return a.status < 400 && strings.Contains(a.body, s) }):
						t.Errorf("%s: it shows what is another tenant's", said)
					case allowed && a.status == 403 && len(secrets) == 0:
						t.Errorf("%s: allowed", said)
					case allowed || a.status == 403 || a.status == 404:
					case right.Action == access.List && a.status == 200 && slices.Contains(nothing, strings.TrimSpace(a.body)): // nothing of it is theirs
					case method != "get" && (a.status == 400 || a.status == 422): // the body is decoded before the cluster is found
					default:
						t.Errorf("%s: denied", said)
					}
				}
			}
		}
		if now := w.Store.Index(); now != index {
			t.Errorf("the state went from index %d to %d", index, now)
		}
	}
	all(natives, func(who model.Caller, r rest.Right) bool { return allows(t, who, r) })
	if asked < 200 {
		t.Errorf("only %d requests", asked)
	}
	// Strangers see what they have in their own tenant by their role, and nothing of acme.
	all(strangers, func(who model.Caller, r rest.Right) bool { return allows(t, who, r) },
		`"`+cluster+`"`, operation, nodes[0].ID, nodes[0].Hostname, "bob", "alice", "acme", "nginx")
	// Bob shares his cluster with a guest.
	w.must(201, apitest.User, "POST", "/v1/grants", `{"to":"dave","actions":["read","operate"],"resource":"cluster/web"}`)
	all(map[string]model.Caller{apitest.Guest: natives[apitest.Guest]}, func(who model.Caller, r rest.Right) bool {
		shared := r.On == access.TypeCluster || r.On == access.TypeNode
		return allows(t, who, r) || shared && slices.Contains([]access.Action{access.List, access.Read, access.Operate}, r.Action)
	})
}

// allows reports whether the built-in policies allow a caller something with a thing of bob's in the caller's tenant.
func allows(t *testing.T, who model.Caller, right rest.Right) bool {
	t.Helper()
	set, faults := access.NewSet(nil, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	x := access.Resource{Ref: access.Ref{Type: right.On, ID: "x"}, Tenant: who.Tenant, Row: &access.Attributes{Values: map[string]any{"owner": "bob"}}}
	if right.Mesh {
		x.Tenant = ""
	}
	if right.Action == access.Create && (right.On == access.TypeCluster || right.On == access.TypeRun) {
		x.Row = &access.Attributes{Values: map[string]any{"owner": who.Actor}}
	}
	return set.Decide(&access.Request{Principal: access.OfCaller(who), Action: right.Action, Resource: x}).Allowed
}

// policy returns the body of a request that writes a policy document.
func policy(name, text string) string {
	b, _ := json.Marshal(map[string]string{"name": name, "text": text})
	return string(b)
}

// TestPolicies writes policies and checks what they change.
func TestPolicies(t *testing.T) {
	w := newWorld(t)
	w.template()
	const rails = `@id("size") @message("ask the platform team") forbid (principal, action in [Action::"create", Action::"update"], resource is Cluster)
		when { context.after.size > 2 };
		@id("protected") @message("production stays") forbid (principal, action == Action::"delete", resource is Cluster) when { resource.name like "prod*" };`
	w.must(403, apitest.User, "PUT", "/v1/policies/rails", policy("rails", rails))
	w.must(200, apitest.Admin, "PUT", "/v1/policies/rails", policy("rails", rails))
	create := func(name string, nodes int) string {
		return fmt.Sprintf(`{"name":%q,"clusterTemplate":"shop","numMachines":%d}`, name, nodes)
	}
	refused := func(a answer, words ...string) {
		t.Helper()
		if a.status != 403 {
			t.Fatalf("status %d\n%s", a.status, a.body)
		}
		for _, word := range words {
			if !strings.Contains(a.body, word) {
				t.Errorf("%q is missing in %s", word, a.body)
			}
		}
	}
	refused(w.ask(apitest.User, "POST", "/v1/clusters", create("big", 3)), "bob", "create cluster big", "rails/size", "ask the platform team")
	refused(w.ask(apitest.User, "POST", "/v1/clusters?dryRun=true", create("big", 3)), "rails/size")
	refused(w.ask(apitest.Admin, "POST", "/v1/clusters", create("big", 3)), "rails/size")
	w.must(202, apitest.User, "POST", "/v1/clusters", create("prod", 2))
	refused(w.ask(apitest.User, "DELETE", "/v1/clusters/prod", ""), "delete cluster prod", "rails/protected", "production stays")
	w.must(202, apitest.Super, "POST", "/v1/clusters?tenant=acme", create("big", 3)) // a tenant's forbid does not bind superadmins

	// Questions.
	var p api.Permission
	w.must(200, apitest.User, "GET", "/v1/can-i?action=delete&resource=cluster/prod", "").into(t, &p)
	if p.Allowed || len(p.Policies) != 1 || p.Policies[0].Policy != "rails/protected" || !strings.Contains(p.Reason, "production stays") {
		t.Errorf("%+v", p)
	}
	w.must(200, apitest.User, "GET", "/v1/can-i?action=operate&resource=cluster/prod", "").into(t, &p)
	if !p.Allowed || p.Policies[0].Policy != "user/user-owns" {
		t.Errorf("%+v", p)
	}
	w.must(404, apitest.Other, "GET", "/v1/can-i?action=operate&resource=cluster/prod", "")
	w.must(200, apitest.Admin, "GET", "/v1/can-i?action=update&resource=template/shop&as=bob", "").into(t, &p)
	if p.Allowed || p.Actor != "bob" {
		t.Errorf("%+v", p)
	}
	w.must(403, apitest.User, "GET", "/v1/can-i?action=update&resource=template/shop&as=alice", "")
	for query, word := range map[string]string{
		"action=delte&resource=cluster/prod": `did you mean \"delete\"`, "action=read&resource=clustr": `did you mean \"cluster\"`,
		"action=execute&resource=cluster/prod": "does not apply",
	} {
		if a := w.must(422, apitest.User, "GET", "/v1/can-i?"+query, ""); !strings.Contains(a.body, word) {
			t.Errorf("%s: %s", query, a.body)
		}
	}

	// Lists and reads follow at once.
	w.must(404, apitest.Other, "GET", "/v1/clusters/prod", "")
	w.must(200, apitest.Admin, "PUT", "/v1/policies/open", policy("open",
		`permit (principal == User::"carol", action in [Action::"list", Action::"read"], resource is Cluster) when { resource.name == "prod" };`))
	w.must(200, apitest.Other, "GET", "/v1/clusters/prod", "")
	if a := w.must(200, apitest.Other, "GET", "/v1/clusters", ""); !strings.Contains(a.body, `"prod"`) || strings.Contains(a.body, `"big"`) {
		t.Errorf("the list of carol: %s", a.body)
	}
	refused(w.ask(apitest.Other, "POST", "/v1/clusters/prod/stop", ""), "carol", "operate cluster prod", "no policy allows it")
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/open", "")
	w.must(404, apitest.Other, "GET", "/v1/clusters/prod", "")

	// Labels.
	w.must(200, apitest.User, "POST", "/v1/clusters/prod/labels", `{"set":{"env":"prod","a":"1"}}`)
	if a := w.must(200, apitest.User, "POST", "/v1/clusters/prod/labels", `{"remove":["a"]}`); !strings.Contains(a.body, `"labels":{"env":"prod"}`) {
		t.Error(a.body)
	}
	w.must(404, apitest.Other, "POST", "/v1/clusters/prod/labels", `{"set":{"env":"dev"}}`)
	w.must(200, apitest.Admin, "PUT", "/v1/policies/labels", policy("labels",
		`forbid (principal, action == Action::"label", resource is Cluster) when { context.label == "env" && context has value && context.value == "dev" };
		forbid (principal, action == Action::"operate", resource is Cluster) when { resource.hasTag("env") && resource.getTag("env") == "prod" };`))
	refused(w.ask(apitest.User, "POST", "/v1/clusters/prod/labels", `{"set":{"env":"dev"}}`), "label env of cluster prod")
	refused(w.ask(apitest.User, "POST", "/v1/clusters", `{"name":"l","clusterTemplate":"shop","numMachines":1,"labels":{"env":"dev"}}`), "label env of cluster l")
	refused(w.ask(apitest.User, "POST", "/v1/clusters/prod/stop", ""), "operate cluster prod")
	for body, word := range map[string]string{
		`{}`: "is missing", `{"set":{"a b":"1"}}`: "a b", `{"set":{"a":"1"},"remove":["a"]}`: "is in set", `{"set":{"a":"` + strings.Repeat("x", 300) + `"}}`: "256",
	} {
		if a := w.must(422, apitest.User, "POST", "/v1/clusters/prod/labels", body); !strings.Contains(a.body, word) {
			t.Error(a.body)
		}
	}
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/labels", "")

	// Policies of the mesh are a superadmin's, and hold in every tenant.
	freeze := policy("freeze", `@message("frozen") forbid (principal, action == Action::"create", resource is Cluster);`)
	w.must(403, apitest.Admin, "PUT", "/v1/mesh/policies/freeze", freeze)
	w.must(200, apitest.Super, "PUT", "/v1/mesh/policies/freeze", freeze)
	refused(w.ask(apitest.User, "POST", "/v1/clusters", create("small", 1)), "freeze", "frozen")
	refused(w.ask(apitest.Super, "POST", "/v1/clusters?tenant=acme", create("small", 1)), "freeze")
	w.must(202, apitest.Root, "POST", "/v1/clusters?tenant=acme", create("small", 1))
	w.must(404, apitest.Admin, "GET", "/v1/policies/freeze", "")
	w.must(200, apitest.Super, "DELETE", "/v1/mesh/policies/freeze", "")

	// A tenant cannot permit what only the mesh permits, and the mesh names nobody without a tenant.
	w.must(200, apitest.Admin, "PUT", "/v1/policies/all", policy("all", `permit (principal, action, resource);`))
	w.must(403, apitest.Admin, "PUT", "/v1/tenants/acme", `{"maxNodes":0}`)
	w.must(403, apitest.Admin, "DELETE", "/v1/tenants/acme", "")
	w.must(403, apitest.Admin, "GET", "/v1/operator/snapshot", "")
	w.must(200, apitest.User, "PUT", "/v1/clustertemplates/shop", shop)
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/all", "")
	for _, text := range []string{
		`permit (principal == User::"bob", action, resource is Mesh);`, `forbid (principal, action, resource) unless { principal.id == "bob" };`,
	} {
		if a := w.must(422, apitest.Super, "PUT", "/v1/mesh/policies/p", policy("p", text)); !strings.Contains(a.body, "principal.tenant") {
			t.Error(a.body)
		}
	}

	// Faults are found when a document is written.
	for text, word := range map[string]string{
		`permit (principal, action == Action::"delte", resource);`:                        `did you mean \"delete\"`,
		`permit (principal == User::"bobb", action, resource);`:                           `did you mean \"bob\"`,
		`permit (principal, action, resource is Cluster) when { resource.onwer == "x" };`: `did you mean \"owner\"`,
		``: "is missing",
	} {
		if a := w.must(422, apitest.Admin, "PUT", "/v1/policies/p", policy("p", text)); !strings.Contains(a.body, word) {
			t.Errorf("%s: %s", text, a.body)
		}
	}
	// A change that locks everybody out needs force, and only root can undo it.
	lock := policy("lock", `forbid (principal, action, resource is Policy);`)
	if a := w.must(409, apitest.Super, "PUT", "/v1/mesh/policies/lock", lock); !strings.Contains(a.body, "no user could") {
		t.Error(a.body)
	}
	w.must(200, apitest.Super, "PUT", "/v1/mesh/policies/lock?force=true", lock)
	w.must(403, apitest.Super, "DELETE", "/v1/mesh/policies/lock", "")
	w.must(200, apitest.Root, "DELETE", "/v1/mesh/policies/lock", "")
	w.must(200, apitest.Super, "PUT", "/v1/mesh/policies/lock?force=true", lock)
	w.must(200, apitest.Root, "DELETE", "/v1/mesh/policies/lock", "")
}

// TestEventsFollowPolicies checks that an event stream that goes on shows what its reader may list at each moment.
func TestEventsFollowPolicies(t *testing.T) {
	w := newWorld(t)
	w.template()
	id, _ := w.cluster("web", "1")
	label := func(value string) {
		t.Helper()
		w.must(200, apitest.User, "POST", "/v1/clusters/web/labels", `{"set":{"n":"`+value+`"}}`)
	}
	definition := func(name string) {
		t.Helper()
		w.must(200, apitest.Admin, "PUT", "/v1/services/"+name, `{"name":"`+name+`","provisioner":{"actions":{"install":{"type":"shell"}}}}`)
	}
	r := w.events(apitest.Other, "?type=cluster.changed,definition.changed")
	defer r.close()
	next := func(want string) {
		t.Helper()
		if e := r.event(); e.Type != want {
			t.Fatalf("%+v, want %s", e, want)
		}
	}
	label("1")
	definition("a")
	next("definition.changed") // nothing of bob's cluster before it
	w.must(200, apitest.Admin, "PUT", "/v1/policies/open", policy("open",
		`permit (principal == User::"carol", action == Action::"list", resource is Cluster) when { resource.name == "web" };`))
	label("2")
	if e := r.event(); e.Cluster != id {
		t.Fatalf("%+v", e)
	}
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/open", "")
	label("3")
	definition("b")
	next("definition.changed") // and nothing of the policies, which are not for users
}

// TestPoliciesChangeWhileAsked changes policies while many requests are decided.
func TestPoliciesChangeWhileAsked(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.cluster("web", "1")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				if a := w.ask(apitest.User, "GET", "/v1/clusters/web", ""); a.status != 200 {
					t.Errorf("reader %d: status %d", i, a.status)
				}
				if a := w.ask(apitest.Other, "GET", "/v1/clusters/web", ""); a.status != 200 && a.status != 404 {
					t.Errorf("reader %d: status %d", i, a.status)
				}
			}
		})
	}
	open := policy("open", `permit (principal == User::"carol", action == Action::"read", resource is Cluster);`)
	for range 10 {
		w.must(200, apitest.Admin, "PUT", "/v1/policies/open", open)
		w.must(200, apitest.Other, "GET", "/v1/clusters/web", "")
		w.must(200, apitest.Admin, "DELETE", "/v1/policies/open", "")
		w.must(404, apitest.Other, "GET", "/v1/clusters/web", "")
	}
	all.Wait()
}

// TestSnapshotsFollowPolicies checks that snapshots and their differences show only nodes that the reader may list.
func TestSnapshotsFollowPolicies(t *testing.T) {
	w := newWorld(t)
	w.template()
	_, op := w.cluster("web", "2")
	w.Finish(op)
	var nodes []model.Node
	w.must(200, apitest.User, "GET", "/v1/nodes?cluster=web", "").into(t, &nodes)
	hidden, _, _ := strings.Cut(nodes[0].Hostname, ".")
	w.must(200, apitest.Admin, "PUT", "/v1/policies/hidden", policy("hidden",
		`forbid (principal, action == Action::"list", resource is Node) when { resource.name == "`+nodes[0].Hostname+`" };`))
	for _, path := range []string{"/v1/clusters/web/history/1", "/v1/clusters/web/diff?from=0&to=1", "/v1/clusters/web/diff?from=1"} {
		if a := w.must(200, apitest.User, "GET", path, ""); strings.Contains(a.body, hidden) {
			t.Errorf("%s shows the node %s: %s", path, hidden, a.body)
		}
	}
	if a := w.must(200, apitest.User, "GET", "/v1/clusters/web/history/1", ""); !strings.Contains(a.body, nodes[1].Hostname) {
		t.Errorf("the other node is missing in %s", a.body)
	}
}

// TestRunsOfProtectedClusters checks that a run is not stopped, torn down or shortened where its cluster may not be deleted.
func TestRunsOfProtectedClusters(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Admin, "PUT", "/v1/profiles/one", oneRun)
	w.must(200, apitest.User, "PUT", "/v1/programs/job", job)
	var run api.RunDetails
	w.must(202, apitest.User, "POST", "/v1/programs/job/start", `{"profile":"one"}`).into(t, &run)
	w.Up(run.ID)
	w.must(200, apitest.Admin, "PUT", "/v1/policies/stays", policy("stays",
		`@message("it stays") forbid (principal, action == Action::"delete", resource is Cluster);`))
	one := "/v1/runs/" + run.ID
	if a := w.must(403, apitest.User, "POST", one+"/stop", ""); !strings.Contains(a.body, "it stays") {
		t.Error(a.body)
	}
	w.must(200, apitest.User, "POST", one+"/stop", `{"keepalive":true}`)
	w.Happen(run.ID, apitest.Ended(profile.Killed, ""))
	w.must(403, apitest.User, "POST", one+"/deprovision", "")
	w.must(403, apitest.User, "POST", one+"/extend", fmt.Sprintf(`{"expireAt":%d}`, time.Now().Add(time.Second).UnixMilli()))
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/stays", "")
	w.must(200, apitest.User, "POST", one+"/deprovision", "")
}
