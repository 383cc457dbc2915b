package server_test

import (
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// between calls a function after a write is carried out and before its answer is made.
type between struct{ then func() }

func (b *between) call() {
	if then := b.then; then != nil {
		b.then = nil
		then()
	}
}

// services wraps the services that write.
func (b *between) services(s *rest.Services) {
	s.Tenants = lateTenants{s.Tenants, b}
	s.Tokens = lateTokens{s.Tokens, b}
	s.Definitions = lateDefinitions{s.Definitions, b}
	s.Clusters = lateClusters{s.Clusters, b}
	s.Operations = lateOperations{s.Operations, b}
	s.Resources = lateResources{s.Resources, b}
	s.Runs = lateRuns{s.Runs, b}
}

type lateTenants struct {
	rest.Tenants
	*between
}

func (l lateTenants) Put(ctx context.Context, who model.Caller, t model.Tenant, createOnly bool) (api.Written, error) {
	defer l.call()
	return l.Tenants.Put(ctx, who, t, createOnly)
}

type lateTokens struct {
	rest.Tokens
	*between
}

func (l lateTokens) Create(ctx context.Context, who model.Caller, t model.Token) (string, api.Written, error) {
	defer l.call()
	return l.Tokens.Create(ctx, who, t)
}

type lateDefinitions struct {
	rest.Definitions
	*between
}

func (l lateDefinitions) Put(ctx context.Context, who model.Caller, defs []model.StoredDefinition, opts rest.PutOptions) (api.Written, error) {
	defer l.call()
	return l.Definitions.Put(ctx, who, defs, opts)
}

type lateClusters struct {
	rest.Clusters
	*between
}

func (l lateClusters) Create(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (api.Started, error) {
	defer l.call()
	return l.Clusters.Create(ctx, who, req, dryRun)
}

func (l lateClusters) Operate(ctx context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error) {
	defer l.call()
	return l.Clusters.Operate(ctx, who, cluster, req)
}

func (l lateClusters) Resolve(ctx context.Context, who model.Caller, cluster, reason string) (api.Written, error) {
	defer l.call()
	return l.Clusters.Resolve(ctx, who, cluster, reason)
}

type lateOperations struct {
	rest.Operations
	*between
}

func (l lateOperations) Order(ctx context.Context, who model.Caller, operation, order, reason string) (api.Written, error) {
	defer l.call()
	return l.Operations.Order(ctx, who, operation, order, reason)
}

type lateResources struct {
	rest.Resources
	*between
}

func (l lateResources) Upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (model.ResourceVersion,
	api.Written, error) {
	defer l.call()
	return l.Resources.Upload(ctx, who, n, content)
}

func (l lateResources) Order(ctx context.Context, who model.Caller, order string, k model.ResourceKey, version int) (api.Written, error) {
	defer l.call()
	return l.Resources.Order(ctx, who, order, k, version)
}

type lateRuns struct {
	rest.Runs
	*between
}

func (l lateRuns) ChangeSetting(ctx context.Context, who model.Caller, s api.Setting) (api.Written, error) {
	defer l.call()
	return l.Runs.ChangeSetting(ctx, who, s)
}

func (l lateRuns) Start(ctx context.Context, who model.Caller, req api.StartRun) (api.Written, error) {
	defer l.call()
	return l.Runs.Start(ctx, who, req)
}

func (l lateRuns) Order(ctx context.Context, who model.Caller, run string, e profile.Event) (api.Written, error) {
	defer l.call()
	return l.Runs.Order(ctx, who, run, e)
}

// TestAnswersAreTheirOwn carries out another write of the same object, or deletes the object, after
// each write and before its answer. The answer must be what the first write did. The same request,
// sent again, must have the same answer.
func TestAnswersAreTheirOwn(t *testing.T) {
	b := &between{}
	w := serve(t, newAgent(t), b.services)
	w.StoreResources(t.TempDir(), 4000, 8000, shellType)
	other := serve(t, w.Agent, nil)
	const goSh = "/v1/plugins/automatortypes/shell/scripts/go.sh"

	requests := 0
	// same sends a request, which meets the others after it is carried out, and then sends it again.
	same := func(q asked, others ...asked) answer {
		t.Helper()
		b.then = func() { other.tell(map[string]bool{}, others) }
		requests++
		id := api.HeaderRequest + ": request-" + strings.Repeat("x", requests)
		first := w.must(q.status, q.token, q.method, q.path, q.body, id)
		for _, s := range q.says {
			if !strings.Contains(first.body, s) {
				t.Errorf("%s %s: no %q in %s", q.method, q.path, s, first.body)
			}
		}
		if b.then != nil {
			t.Errorf("%s %s: nothing came between", q.method, q.path)
		}
		if strings.HasSuffix(q.path, "/tokens") {
			return first // its secret is shown once
		}
		again := w.ask(q.token, q.method, q.path, q.body, id)
		if again.status != first.status || again.body != first.body || again.header.Get(api.HeaderIndex) != first.header.Get(api.HeaderIndex) ||
			again.header.Get(api.HeaderRepeated) != "true" {
			t.Errorf("%s %s again: %d %s\nthe first time: %d %s", q.method, q.path, again.status, again.body, first.status, first.body)
		}
		return first
	}

	// Definitions.
	for path, rest := range map[string]string{
		"/v1/services/x":      ``,
		"/v1/providers/x":     `,"providertype":"cloud","provisioner":{"region":"north","key":"secret"}`,
		"/v1/hardwaretypes/x": `,"providermap":{"x":{"flavor":"small"}}`,
	} {
		mine, theirs := `{"name":"x","description":"mine"`+rest+`}`, `{"name":"x","description":"theirs"`+rest+`}`
		first := same(asked{apitest.Admin, "PUT", path, mine, 200, []string{`"mine"`, `"version":1`}},
			asked{apitest.Admin, "PUT", path, theirs, 200, []string{`"version":2`}})
		if strings.Contains(first.body, "secret") {
			t.Error("a secret is shown:", first.body)
		}
		same(asked{apitest.Admin, "PUT", path, mine, 200, []string{`"mine"`, `"version":3`}},
			asked{apitest.Admin, "DELETE", path + "?force=true", "", 200, nil})
		kind, _ := strings.CutPrefix(path, "/v1/")
		kind, _ = strings.CutSuffix(kind, "/x")
		same(asked{apitest.Admin, "POST", "/v1/" + kind, mine, 201, []string{`"mine"`}},
			asked{apitest.Admin, "DELETE", path + "?force=true", "", 200, nil})
	}
	same(asked{apitest.Admin, "POST", "/v1/import", `{"services":[{"name":"i"},{"name":"j"}]}`, 200, []string{`"name":"i","version":1`,
		`"name":"j","version":1`}},
		asked{apitest.Admin, "PUT", "/v1/services/i", `{"name":"i","description":"theirs"}`, 200, nil},
		asked{apitest.Admin, "DELETE", "/v1/services/j?force=true", "", 200, nil})

	// Tenants and tokens.
	same(asked{apitest.Super, "PUT", "/v1/tenants/x", `{"name":"x","maxNodes":7}`, 200, []string{`"maxNodes":7`}},
		asked{apitest.Super, "PUT", "/v1/tenants/x", `{"name":"x","maxNodes":8}`, 200, nil})
	same(asked{apitest.Super, "PUT", "/v1/tenants/x", `{"name":"x","maxNodes":9}`, 200, []string{`"maxNodes":9`}},
		asked{apitest.Super, "DELETE", "/v1/tenants/x", "", 200, nil})
	tokens := map[string]bool{}
	b.then = func() {
		var theirs api.IssuedToken
		other.must(201, apitest.Admin, "POST", "/v1/tokens", `{"actor":"eve"}`).into(t, &theirs)
		tokens[theirs.ID] = true
	}
	var mine api.IssuedToken
	w.must(201, apitest.Admin, "POST", "/v1/tokens", `{"actor":"eve"}`).into(t, &mine)
	if tokens[mine.ID] || mine.Actor != "eve" || mine.Created == 0 {
		t.Errorf("the answer has another's token: %+v", mine)
	}
	w.must(200, apitest.Admin, "DELETE", "/v1/tokens/"+mine.ID, "", api.HeaderRequest+": drop")
	w.must(200, apitest.Admin, "DELETE", "/v1/tokens/"+mine.ID, "", api.HeaderRequest+": drop")
	w.must(404, apitest.Admin, "DELETE", "/v1/tokens/"+mine.ID, "")

	// Profiles, programs, schedules.
	const labelled = `{"label":"LABEL","provisioner":{"name":"native","properties":[{"name":"numMachines","value":"1"}]}}`
	label := func(l string) string { return strings.Replace(labelled, "LABEL", l, 1) }
	same(asked{apitest.Admin, "PUT", "/v1/profiles/p", label("mine"), 200, []string{`"mine"`, `"ENABLED"`}},
		asked{apitest.Admin, "PUT", "/v1/profiles/p", label("theirs"), 200, nil},
		asked{apitest.Admin, "POST", "/v1/profiles/p/disable", "", 200, nil})
	same(asked{apitest.Admin, "PUT", "/v1/profiles/p", label("mine"), 200, []string{`"mine"`, `"DISABLED"`}},
		asked{apitest.Admin, "DELETE", "/v1/profiles/p", "", 200, nil})
	same(asked{apitest.User, "PUT", "/v1/programs/g", job, 200, []string{`"version":1`, `"true"`}},
		asked{apitest.User, "PUT", "/v1/programs/g", `{"steps":[{"name":"go","command":["false"]}]}`, 200, nil})
	same(asked{apitest.User, "PUT", "/v1/programs/g", job, 200, []string{`"version":3`, `"true"`}},
		asked{apitest.User, "DELETE", "/v1/programs/g", "", 200, nil})
	same(asked{apitest.User, "PUT", "/v1/programs/g", job, 200, []string{`"version":4`}},
		asked{apitest.User, "PUT", "/v1/programs/h", job, 200, nil})
	const daily = `{"program":"g","cron":"0 3 * * *"}`
	same(asked{apitest.User, "PUT", "/v1/schedules/s", daily, 200, []string{`0 3 `, `"ENABLED"`}},
		asked{apitest.User, "PUT", "/v1/schedules/s", `{"program":"g","cron":"0 4 * * *"}`, 200, nil})
	same(asked{apitest.User, "PUT", "/v1/schedules/s", daily, 200, []string{`0 3 `}},
		asked{apitest.User, "DELETE", "/v1/schedules/s", "", 200, nil})

	// Runs.
	w.must(200, apitest.Admin, "PUT", "/v1/profiles/fast", `{"provisioner":{"name":"cloud"}}`)
	b.then = func() {
		w.Happen(newest(other), profile.Event{Kind: profile.Stop, Reason: "theirs"})
	}
	started := w.must(202, apitest.User, "POST", "/v1/runs", `{"program":"g","profile":"fast"}`, api.HeaderRequest+": run")
	if strings.Contains(started.body, "theirs") {
		t.Error("the answer holds another's order:", started.body)
	}
	if again := w.must(202, apitest.User, "POST", "/v1/runs", `{"program":"g","profile":"fast"}`, api.HeaderRequest+": run"); again.body != started.body {
		t.Errorf("again: %s\nthe first time: %s", again.body, started.body)
	}

	// Operations.
	w.template()
	_, aborted := w.cluster("aborted", "2")
	same(asked{apitest.User, "POST", "/v1/operations/" + aborted + "/pause", "", 200, []string{`"paused"`, `"progress":{"total":16,`}},
		asked{apitest.User, "POST", "/v1/operations/" + aborted + "/abort", "", 200, nil})
	id, op := w.cluster("kept", "2")
	w.Finish(op)
	same(asked{apitest.User, "DELETE", "/v1/clusters/" + id, "", 202, []string{`"running"`}},
		asked{apitest.User, "POST", "/v1/clusters/" + id + "/stop", "", 409, nil})

	// Resources.
	same(asked{apitest.Admin, "POST", goSh, "one", 201, []string{`"version":1`, `"inactive"`}},
		asked{apitest.Admin, "POST", goSh, "two", 201, []string{`"version":2`}},
		asked{apitest.Admin, "DELETE", goSh + "/versions/1", "", 200, nil})
	same(asked{apitest.Admin, "POST", goSh + "/versions/2/stage", "", 200, []string{`"version":2`, `"staged"`}},
		asked{apitest.Admin, "POST", goSh + "/versions/2/recall", "", 200, nil},
		asked{apitest.Admin, "DELETE", goSh, "", 200, nil})
	w.must(201, apitest.Admin, "POST", goSh+"?then=stage", "three")
	same(asked{apitest.Admin, "POST", "/v1/plugins/sync", "", 200, []string{`"active":[{`}},
		asked{apitest.Admin, "POST", goSh + "/versions/1/recall", "", 200, nil},
		asked{apitest.Admin, "POST", "/v1/plugins/sync", "", 200, []string{`"active":[]`}})
}

var runID = regexp.MustCompile(`"id":"([0-9a-v]{16})"`)

// newest returns the id of the newest run.
func newest(w *world) string {
	w.t.Helper()
	m := runID.FindStringSubmatch(w.must(200, apitest.Admin, "GET", "/v1/runs", "").body)
	if m == nil {
		w.t.Fatal("there is no run")
	}
	return m[1]
}
