package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
)

func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(201, apitest.Super, "POST", "/v1/tenants", `{"name":"small","maxClusters":1}`)
	create := func(name, nodes string) string {
		return fmt.Sprintf(`{"name":%q,"clusterTemplate":"shop","numMachines":%s}`, name, nodes)
	}
	longBody := `{"name":"x","description":"` + strings.Repeat("x", 1000) + `"`
	tests := []struct {
		name, token, method, path, body string
		headers                         []string
		status                          int
		typ                             string
		// words must be in the detail or the faults of the answer.
		words []string
		paths []string // of all faults
	}{
		{name: "no token", method: "GET", path: "/v1/clusters", status: 401, typ: api.ProblemUnauthorized,
			words: []string{"Authorization: Bearer"}},
		{name: "wrong token", token: "guess", method: "GET", path: "/v1/clusters", status: 401, typ: api.ProblemUnauthorized},
		{name: "wrong token, local route", token: "guess", method: "GET", path: "/v1/members", status: 401, typ: api.ProblemUnauthorized},
		{name: "another scheme", method: "GET", path: "/v1/clusters", headers: []string{"Authorization: Basic " + apitest.Admin}, status: 401,
			typ: api.ProblemUnauthorized},
		{name: "unknown tenant", token: apitest.Super, method: "GET", path: "/v1/clusters", headers: []string{"Coopr-Tenant: nowhere"},
			status: 404, typ: api.ProblemNotFound, words: []string{"nowhere"}},
		{name: "unknown tenant in the query", token: apitest.Super, method: "GET", path: "/v1/clusters?tenant=nowhere", status: 404,
			typ: api.ProblemNotFound},
		{name: "two tenants", token: apitest.Super, method: "GET", path: "/v1/clusters?tenant=acme", headers: []string{"Coopr-Tenant: main"},
			status: 422, typ: api.ProblemInvalid},
		{name: "another's tenant", token: apitest.Admin, method: "GET", path: "/v1/clusters", headers: []string{"Coopr-Tenant: main"},
			status: 403, typ: api.ProblemForbidden, words: []string{"acme", "main"}},
		{name: "all tenants where that means nothing", token: apitest.Super, method: "GET", path: "/v1/clusters?tenant=*", status: 404,
			typ: api.ProblemNotFound},
		{name: "reader writes", token: apitest.Guest, method: "POST", path: "/v1/clusters", body: create("x", "1"), status: 403,
			typ: api.ProblemForbidden, words: []string{"dave", "role read", "create cluster x"}},
		{name: "user writes definitions", token: apitest.User, method: "PUT", path: "/v1/clustertemplates/shop", body: shop, status: 403,
			typ: api.ProblemForbidden},
		{name: "admin steers the mesh", token: apitest.Admin, method: "POST", path: "/v1/join", body: `{"addresses":["a"]}`, status: 403,
			typ: api.ProblemForbidden},
		{name: "admin saves a snapshot", token: apitest.Admin, method: "GET", path: "/v1/operator/snapshot", status: 403,
			typ: api.ProblemForbidden},
		{name: "admin makes a superadmin", token: apitest.Admin, method: "POST", path: "/v1/tokens", body: `{"actor":"eve","role":"superadmin"}`,
			status: 403, typ: api.ProblemForbidden},
		{name: "no such role", token: apitest.Admin, method: "POST", path: "/v1/tokens", body: `{"actor":"e v","role":"king"}`, status: 422,
			typ: api.ProblemInvalid, paths: []string{"actor", "role"}},

		{name: "malformed JSON", token: apitest.User, method: "POST", path: "/v1/clusters", body: "{\"name\": \"x\",\n \"numMachines\": }",
			status: 400, typ: api.ProblemMalformed, words: []string{"line 2", "column"}},
		{name: "cut JSON", token: apitest.Admin, method: "PUT", path: "/v1/clustertemplates/shop", body: longBody, status: 400,
			typ: api.ProblemMalformed},
		{name: "malformed YAML", token: apitest.User, method: "POST", path: "/v1/clusters", body: "name: x\nservices: [a\nother: {",
			headers: []string{"Content-Type: application/yaml"}, status: 400, typ: api.ProblemMalformed, words: []string{"line"}},
		{name: "malformed YAML definition", token: apitest.Admin, method: "POST", path: "/v1/services", body: "name: x\n\t- y",
			headers: []string{"Content-Type: application/yaml"}, status: 400, typ: api.ProblemMalformed, words: []string{"line"}},
		{name: "no body", token: apitest.User, method: "POST", path: "/v1/clusters", status: 400, typ: api.ProblemMalformed,
			words: []string{"body"}},
		{name: "a list for an object", token: apitest.User, method: "POST", path: "/v1/clusters", body: "[]", status: 422,
			typ: api.ProblemInvalid},
		{name: "a form", token: apitest.User, method: "POST", path: "/v1/clusters", body: "a=b",
			headers: []string{"Content-Type: application/x-www-form-urlencoded"}, status: 415, typ: api.ProblemMalformed,
			words: []string{"application/json"}},
		{name: "unknown fields", token: apitest.User, method: "POST", path: "/v1/clusters",
			body: `{"name":"x","clusterTemplat":"shop","numMachines":1,"colour":"red"}`, status: 422, typ: api.ProblemInvalid,
			words: []string{`did you mean "clusterTemplate"`}, paths: []string{"clusterTemplat", "colour", "clusterTemplate"}},
		{name: "unknown field of a definition", token: apitest.Admin, method: "PUT", path: "/v1/clustertemplates/shop",
			body: `{"name":"shop","defaults":{"services":["a"],"provider":"p","hardwartype":"x"}}`, status: 422, typ: api.ProblemInvalid,
			words: []string{`did you mean "hardwaretype"`}, paths: []string{"defaults.hardwartype"}},
		{name: "10,001 nodes and a bad name", token: apitest.User, method: "POST", path: "/v1/clusters", body: create("no spaces!", "10001"),
			status: 422, typ: api.ProblemInvalid, words: []string{"10000"}, paths: []string{"name", "numMachines"}},
		{name: "0 nodes", token: apitest.User, method: "POST", path: "/v1/clusters", body: create("x", "0"), status: 422, typ: api.ProblemInvalid,
			paths: []string{"numMachines"}},
		{name: "less than no nodes", token: apitest.User, method: "POST", path: "/v1/clusters", body: create("x", "-3"), status: 422,
			typ: api.ProblemInvalid, paths: []string{"numMachines"}},
		{name: "name of the path", token: apitest.Admin, method: "PUT", path: "/v1/clustertemplates/other", body: shop, status: 422,
			typ: api.ProblemInvalid, words: []string{"shop", "other"}, paths: []string{"name"}},
		{name: "exists", token: apitest.Admin, method: "POST", path: "/v1/clustertemplates", body: shop, status: 409, typ: api.ProblemConflict},
		{name: "no template", token: apitest.User, method: "POST", path: "/v1/clusters",
			body: `{"name":"x","clusterTemplate":"nothing","numMachines":1}`, status: 422, typ: api.ProblemInvalid, paths: []string{"clusterTemplate"}},
		{name: "more than the template allows", token: apitest.User, method: "POST", path: "/v1/clusters",
			body: `{"name":"x","clusterTemplate":"tiny","numMachines":9}`, status: 422, typ: api.ProblemInvalid,
			words: []string{"more than the 2 nodes"}, paths: []string{"numMachines"}},
		{name: "unsolvable", token: apitest.User, method: "POST", path: "/v1/clusters",
			body: `{"name":"x","clusterTemplate":"apart","numMachines":1}`, status: 422, typ: api.ProblemUnsolvable,
			words: []string{"may not share a node"}, paths: []string{"constraints.layout.cantcoexist[0]"}},
		{name: "no cluster", token: apitest.User, method: "GET", path: "/v1/clusters/nothing", status: 404, typ: api.ProblemNotFound,
			words: []string{"nothing", "acme"}},
		{name: "nearly a template", token: apitest.User, method: "GET", path: "/v1/clustertemplates/shopp", status: 404, typ: api.ProblemNotFound,
			words: []string{`did you mean "shop"`}},
		{name: "no version", token: apitest.User, method: "GET", path: "/v1/clustertemplates/shop/versions/7", status: 404,
			typ: api.ProblemNotFound, words: []string{"version 7"}},
		{name: "version 0", token: apitest.User, method: "GET", path: "/v1/clustertemplates/shop/versions/0", status: 422,
			typ: api.ProblemInvalid},
		{name: "version x", token: apitest.User, method: "GET", path: "/v1/clustertemplates/shop/versions/x", status: 422,
			typ: api.ProblemInvalid},
		{name: "no route", token: apitest.User, method: "GET", path: "/v1/clusterz", status: 404, typ: api.ProblemNotFound,
			words: []string{"/v1/openapi.json"}},
		{name: "no method", token: apitest.User, method: "PATCH", path: "/v1/clusters", status: 405, typ: api.ProblemMethod,
			words: []string{"GET", "POST"}},
		{name: "unknown parameter", token: apitest.User, method: "GET", path: "/v1/clusters?statsu=active", status: 422, typ: api.ProblemInvalid,
			words: []string{`did you mean "status"`}, paths: []string{"query.statsu"}},
		{name: "unknown status", token: apitest.User, method: "GET", path: "/v1/clusters?status=actve", status: 422, typ: api.ProblemInvalid,
			words: []string{"active"}},
		{name: "bad waits", token: apitest.User, method: "GET", path: "/v1/clusters?index=x&wait=soon&consistency=maybe", status: 422,
			typ: api.ProblemInvalid, paths: []string{"query.consistency", "query.index", "query.wait"}},
		{name: "bad limit", token: apitest.User, method: "GET", path: "/v1/operations?limit=0x", status: 422, typ: api.ProblemInvalid},
		{name: "bad request id", token: apitest.User, method: "POST", path: "/v1/clusters", body: create("x", "1"),
			headers: []string{"Coopr-Request-Id: no good"}, status: 422, typ: api.ProblemInvalid},
		{name: "bad event id", token: apitest.User, method: "GET", path: "/v1/events", headers: []string{"Last-Event-ID: x"}, status: 422,
			typ: api.ProblemInvalid},
		{name: "empty import", token: apitest.Admin, method: "POST", path: "/v1/import", body: `{"services":[]}`, status: 422,
			typ: api.ProblemInvalid},
		{name: "import with faults", token: apitest.Admin, method: "POST", path: "/v1/import",
			body: `{"services":[{"name":"a b"},{"name":"ok"}],"providers":[{"name":"p"}]}`, status: 422, typ: api.ProblemInvalid,
			paths: []string{"services[0].name", "providers[0].providertype"}},
		{name: "import twice the same", token: apitest.Admin, method: "POST", path: "/v1/import",
			body: `{"services":[{"name":"a"},{"name":"a"}]}`, status: 422, typ: api.ProblemInvalid, words: []string{"twice"}},
		{name: "join nobody", token: apitest.Super, method: "POST", path: "/v1/join", body: `{}`, status: 422, typ: api.ProblemInvalid,
			paths: []string{"addresses"}},
		{name: "bad tenant", token: apitest.Super, method: "PUT", path: "/v1/tenants/x", body: `{"name":"y","maxNodes":-1}`, status: 422,
			typ: api.ProblemInvalid, paths: []string{"maxNodes", "name"}},
		{name: "tenant of others", token: apitest.Admin, method: "GET", path: "/v1/tenants/main", status: 404, typ: api.ProblemNotFound},
		{name: "no snapshot", token: apitest.Super, method: "POST", path: "/v1/operator/snapshot", body: "junk",
			headers: []string{"Content-Type: application/octet-stream"}, status: 422, typ: api.ProblemInvalid, words: []string{"not a snapshot"}},
		{name: "nothing to transfer to", token: apitest.Super, method: "POST", path: "/v1/operator/raft/transfer", status: 409,
			typ: api.ProblemConflict},
	}
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/tiny",
		`{"name":"tiny","defaults":{"services":["nginx"],"provider":"cloud"},"constraints":{"size":{"max":2}}}`)
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/apart",
		`{"name":"apart","defaults":{"services":["nginx","php"],"provider":"cloud"},"constraints":{"layout":{"cantcoexist":[["nginx","php"]]}}}`)
	changes := func() uint64 {
		var rep audit.Verification
		w.must(200, apitest.Super, "GET", "/v1/audit/verify", "").into(w.t, &rep)
		return rep.Head.Seq
	}
	before := changes()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			a := w.ask(tt.token, tt.method, tt.path, tt.body, tt.headers...)
			if a.status != tt.status {
				t.Fatalf("status %d, not %d: %s", a.status, tt.status, a.body)
			}
			p := a.problem(t)
			if p.Type != tt.typ {
				t.Errorf("type %s, not %s", p.Type, tt.typ)
			}
			for _, word := range tt.words {
				if !strings.Contains(a.body, word) && !strings.Contains(strings.ReplaceAll(a.body, `\"`, `"`), word) {
					t.Errorf("%q is not said: %s", word, a.body)
				}
			}
			if tt.paths != nil {
				got := map[string]bool{}
				for _, f := range p.Errors {
					got[f.Path] = true
				}
				for _, path := range tt.paths {
					if !got[path] {
						t.Errorf("no fault at %s: %s", path, a.body)
					}
				}
				if len(got) != len(tt.paths) {
					t.Errorf("%d faults, not %d: %s", len(got), len(tt.paths), a.body)
				}
			}
		})
	}
	w.t = t
	if after := changes(); after != before {
		t.Errorf("refused requests made %d changes", after-before)
	}
}

func TestStatusesOfTheBackend(t *testing.T) {
	for err, want := range map[error]struct {
		status int
		typ    string
	}{
		problem.New(problem.NotFound, "gone"):       {404, api.ProblemNotFound},
		problem.New(problem.Conflict, "busy"):       {409, api.ProblemConflict},
		problem.New(problem.Forbidden, "no"):        {403, api.ProblemForbidden},
		problem.New(problem.Quota, "full"):          {429, api.ProblemQuota},
		fmt.Errorf("%w", problem.NoLeader):          {503, api.ProblemNoLeader},
		problem.New(problem.UnknownOutcome, "lost"): {503, api.ProblemUnknownOutcome},
		fmt.Errorf("disk on fire"):                  {500, api.ProblemInternal},
	} {
		w := newWorld(t)
		w.template()
		w.Fail(slices.Repeat([]error{err}, 1000)...) // enough for all repetitions of the request
		a := w.must(want.status, apitest.User, "POST", "/v1/clusters", `{"name":"x","clusterTemplate":"shop","numMachines":1}`)
		p := a.problem(t)
		if p.Type != want.typ {
			t.Errorf("%v: %s", err, p.Type)
		}
		if want.status == 503 && a.header.Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", err)
		}
		if want.typ == api.ProblemUnknownOutcome && !strings.Contains(p.Detail, "same Coopr-Request-Id") {
			t.Errorf("no advice: %s", p.Detail)
		}
		if want.status == 500 && strings.Contains(a.body, "disk") {
			t.Errorf("the inside is told outside: %s", a.body)
		}
		if want.status == 500 && !strings.Contains(w.log.String(), "disk on fire") {
			t.Error("the log does not have the cause")
		}
	}
	w := newWorld(t)
	w.template()
	for i := range 3 {
		w.cluster(fmt.Sprintf("quota-%d", i), "1")
	}
	a := w.must(429, apitest.User, "POST", "/v1/clusters", `{"name":"x","clusterTemplate":"shop","numMachines":1}`)
	if p := a.problem(t); p.Type != api.ProblemQuota {
		t.Errorf("%+v", p)
	}
}

// endless is a body of left bytes that counts the bytes that were read.
type endless struct {
	left  int64
	taken atomic.Int64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.left)
	for i := range p[:n] {
		p[i] = ' '
	}
	e.left -= n
	e.taken.Add(n)
	return int(n), nil
}

func TestHugeBodiesAreRefusedUnread(t *testing.T) {
	w := newWorld(t)
	for _, announced := range []bool{true, false} {
		body := &endless{left: 100 << 20}
		req, err := http.NewRequest("POST", w.url+"/v1/import", body)
		if err != nil {
			t.Fatal(err)
		}
		if announced {
			req.ContentLength = 100 << 20
		}
		req.Header.Set("Authorization", "Bearer "+apitest.Admin)
		req.Header.Set("Content-Type", "application/json")
		resp, err := w.http.Do(req)
		if err != nil {
			// The server closes the connection instead of reading the body. The
			// request with Expect below shows that it answers first.
			t.Logf("announced %v: %v", announced, err)
		} else {
			if resp.StatusCode != 413 {
				t.Errorf("status %d", resp.StatusCode)
			}
			resp.Body.Close()
		}
		// The buffers at the two ends of the connection take some 10 MiB, too.
		if body.taken.Load() > 64<<20 {
			t.Errorf("announced %v: %d MiB were taken", announced, body.taken.Load()>>20)
		}
	}
	// A client that sends Expect is refused before it sends a byte of the body.
	body := &endless{left: 100 << 20}
	transport := w.http.Transport.(*http.Transport).Clone()
	transport.ExpectContinueTimeout = 1 << 40
	defer transport.CloseIdleConnections()
	req, _ := http.NewRequest("POST", w.url+"/v1/import", body)
	req.ContentLength = 100 << 20
	req.Header.Set("Authorization", "Bearer "+apitest.Admin)
	req.Header.Set("Expect", "100-continue")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 || body.taken.Load() != 0 {
		t.Errorf("status %d, %d bytes taken", resp.StatusCode, body.taken.Load())
	}
	data, _ := io.ReadAll(resp.Body)
	answer{resp.StatusCode, resp.Header, string(data)}.problem(t)
}

func TestServerHasLimits(t *testing.T) {
	s := server.NewServer(nil)
	if s.ReadHeaderTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 || s.WriteTimeout != 0 {
		t.Errorf("%+v", s)
	}
	w := newWorld(t)
	req, _ := http.NewRequest("GET", w.url+"/v1/clusters", nil)
	req.Header.Set("X-Long", strings.Repeat("x", 100<<10))
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 431 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestConfiguredLimits(t *testing.T) {
	a := newAgent(t)
	h, err := server.New(server.Config{Services: a.Services(), MaxBody: 2000, MaxWatches: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	w := &world{Agent: a, t: t, url: s.URL, http: s.Client()}
	body := `{"name":"s","description":"` + strings.Repeat("x", 1900) + `"}`
	w.must(200, apitest.Admin, "PUT", "/v1/services/s", body)
	body = strings.Replace(body, "xx", strings.Repeat("x", 200), 1)
	w.must(413, apitest.Admin, "PUT", "/v1/services/s", body).problem(t)
	// The same applies to a body without an announced length.
	b := w.send(context.Background(), apitest.Admin, "PUT", "/v1/services/s", io.MultiReader(strings.NewReader(body)))
	if b.status != 413 || b.problem(t).Type != api.ProblemTooLarge {
		t.Errorf("%d %s", b.status, b.body)
	}
	// Only one reader may wait. A second one is refused until the first is gone.
	first := w.events(apitest.Admin, "")
	if p := w.must(503, apitest.Admin, "GET", "/v1/clusters?index=99", "").problem(t); p.Type != api.ProblemBusy {
		t.Errorf("%+v", p)
	}
	w.must(200, apitest.Admin, "GET", "/v1/clusters", "")
	first.close()
	eventually(t, "the place is free", func() bool {
		return w.ask(apitest.Admin, "GET", "/v1/clusters?index=99&wait=1ms", "").status == 200
	})
}
