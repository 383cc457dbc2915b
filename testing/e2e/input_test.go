package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// request is a request that the client would not send.
type request struct {
	method, path, body string
	header             map[string]string
	large              int64 // so many spaces for a body
	length             int64 // what is said of that; -1 nothing
}

// do sends a request to an agent.
func (a *agent) do(r request) (status int, header http.Header, body []byte, err error) {
	a.mesh.t.Helper()
	reader := io.Reader(strings.NewReader(r.body))
	if r.large > 0 {
		reader = io.LimitReader(blank{}, r.large)
	}
	req, err := http.NewRequestWithContext(a.mesh.context(), r.method, "http://"+a.addr(httpPort)+r.path, reader)
	if err != nil {
		a.mesh.t.Fatal(err)
	}
	if r.large > 0 {
		req.ContentLength = r.length
	}
	req.Header.Set("Authorization", "Bearer "+a.mesh.token)
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, res.Header, body, err
}

// TestBadInput sends invalid requests to the leader and to an agent that forwards them. Each is
// refused with its reason and changes nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	m.must("import", testdata(t, "ledger/definitions"))
	before := m.must("export")
	yaml := map[string]string{"Content-Type": "application/yaml"}
	create := func(name string, nodes int) string {
		return fmt.Sprintf(`{"name":%q,"clusterTemplate":"ledger","numMachines":%d}`, name, nodes)
	}
	post := func(path, body string) request { return request{method: "POST", path: path, body: body} }
	put := func(path, body string) request { return request{method: "PUT", path: path, body: body} }
	with := func(r request, header map[string]string) request { r.header = header; return r }
	tests := map[string]struct {
		request
		status int
		typ    string
		words  []string
	}{
		"wrong token": {with(post("/v1/clusters", create("x", 3)), map[string]string{"Authorization": "Bearer guess"}),
			401, api.ProblemUnauthorized, nil},
		"no token": {with(post("/v1/clusters", create("x", 3)), map[string]string{"Authorization": ""}),
			401, api.ProblemUnauthorized, []string{"Authorization: Bearer"}},
		"unknown tenant": {with(post("/v1/clusters", create("x", 3)), map[string]string{"Coopr-Tenant": "nowhere"}),
			404, api.ProblemNotFound, []string{"nowhere"}},
		"malformed JSON": {post("/v1/clusters", "{\"name\": \"x\",\n \"numMachines\": }"),
			400, api.ProblemMalformed, []string{"line 2"}},
		"cut JSON": {post("/v1/clusters", `{"name": "x`),
			400, api.ProblemMalformed, nil},
		"malformed YAML": {with(post("/v1/clusters", "name: x\nservices: [a\nother: {"), yaml),
			400, api.ProblemMalformed, []string{"line"}},
		"malformed YAML of a definition": {with(put("/v1/services/base", "name: base\n\t- y"), yaml),
			400, api.ProblemMalformed, []string{"line 2"}},
		"a bomb of YAML aliases": {with(post("/v1/import", bomb()), yaml),
			422, api.ProblemInvalid, []string{"aliases"}},
		"unknown field": {post("/v1/clusters", `{"name":"x","clusterTemplat":"ledger","numMachines":3}`),
			422, api.ProblemInvalid, []string{`did you mean \"clusterTemplate\"`}},
		"unknown field of a definition": {put("/v1/clustertemplates/t",
			`{"name":"t","defaults":{"services":["base"],"provider":"ledger","hardwartype":"small"}}`),
			422, api.ProblemInvalid, []string{`did you mean \"hardwaretype\"`}},
		"unknown parameter": {post("/v1/clusters?dryrun=true", create("x", 3)),
			422, api.ProblemInvalid, []string{`did you mean \"dryRun\"`}},
		"a name that does not fit": {post("/v1/clusters", create("no spaces!", 3)),
			422, api.ProblemInvalid, []string{"no spaces!"}},
		"a name that is too long": {post("/v1/clusters", create(strings.Repeat("x", 300), 3)),
			422, api.ProblemInvalid, []string{"name"}},
		"a definition under another name": {put("/v1/services/base", `{"name":"app"}`),
			422, api.ProblemInvalid, []string{"base", "app"}},
		"10,001 nodes": {post("/v1/clusters", create("x", 10001)),
			422, api.ProblemInvalid, []string{"numMachines", "10000"}},
		"0 nodes": {post("/v1/clusters", create("x", 0)),
			422, api.ProblemInvalid, []string{"numMachines"}},
		"less than 0 nodes": {post("/v1/clusters", create("x", -1)),
			422, api.ProblemInvalid, []string{"numMachines"}},
		"more nodes than the template allows": {post("/v1/clusters", create("x", 101)),
			422, "", []string{"100"}},
		"a template that does not exist": {post("/v1/clusters", `{"name":"x","clusterTemplate":"leger","numMachines":3}`),
			422, api.ProblemInvalid, []string{`did you mean \"ledger\"`}},
		"a template that names what does not exist": {put("/v1/clustertemplates/t",
			`{"name":"t","defaults":{"services":["bas"],"provider":"ledgr","hardwaretype":"small","imagetype":"empty"}}`),
			422, api.ProblemInvalid, []string{`did you mean \"base\"`, `did you mean \"ledger\"`}},
		"100 MB": {request{method: "POST", path: "/v1/import", large: 100 << 20, length: 100 << 20},
			413, api.ProblemTooLarge, nil},
		"100 MB of unknown length": {request{method: "POST", path: "/v1/import", large: 100 << 20, length: -1},
			413, api.ProblemTooLarge, nil},
		"no such route":                 {post("/v1/cluster", create("x", 3)), 404, api.ProblemNotFound, nil},
		"no such method":                {request{method: "PATCH", path: "/v1/clusters"}, 405, api.ProblemMethod, nil},
		"a cluster that does not exist": {request{method: "DELETE", path: "/v1/clusters/nope"}, 404, api.ProblemNotFound, []string{"nope"}},
		"an order for nothing":          {post("/v1/operations/nope/pause", ""), 404, api.ProblemNotFound, nil},
		"a request id that does not fit": {with(post("/v1/clusters", create("x", 3)), map[string]string{"Coopr-Request-Id": "a b"}),
			422, api.ProblemInvalid, []string{"Coopr-Request-Id"}},
	}
	for at, a := range map[string]*agent{"leader": m.leader(), "follower": m.follower()} {
		for name, test := range tests {
			t.Run(at+"/"+name, func(t *testing.T) {
				r := test.request
				status, header, body, err := a.do(r)
				for status == http.StatusServiceUnavailable { // the leader has changed just now
					status, header, body, err = a.do(r)
				}
				if test.status == 413 && err != nil && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
					return // it hung up on us: nobody has to read 100 MB to refuse them
				}
				if err != nil {
					t.Fatal(err)
				}
				var p api.Problem
				if status != test.status || json.Unmarshal(body, &p) != nil || p.Status != status ||
					header.Get("Content-Type") != "application/problem+json" {
					t.Fatalf("status %d, %s: %s", status, header.Get("Content-Type"), body)
				}
				if test.typ != "" && p.Type != test.typ {
					t.Errorf("type %s: %s", p.Type, body)
				}
				for _, w := range test.words {
					if !strings.Contains(string(body), w) {
						t.Errorf("nothing says %s: %s", w, body)
					}
				}
			})
		}
	}
	clusters, _, err := m.api().Clusters(m.context(), client.ClusterFilter{}, client.Read{})
	if err != nil || len(clusters) != 0 {
		t.Errorf("bad requests made clusters: %v %v", clusters, err)
	}
	if now := m.must("export"); now != before {
		t.Errorf("bad requests changed definitions:\n%s", now)
	}
	m.stop()
}

// blank is spaces without end.
type blank struct{}

func (blank) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// bomb is a small document that would be a large one.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 12 {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return b.String()
}

// TestRequestOnce repeats a request with the same request id at each agent, also after the leader
// has died. It takes effect once.
func TestRequestOnce(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	m.must("import", testdata(t, "ledger/definitions"))
	r := request{
		method: "POST", path: "/v1/clusters", body: `{"name":"once","clusterTemplate":"ledger","numMachines":3}`,
		header: map[string]string{"Coopr-Request-Id": "mine-1"},
	}
	first := ""
	send := func(a *agent) {
		t.Helper()
		var st api.StartedBody
		m.await("an answer of agent "+a.name, func() error {
			status, header, body, err := a.do(r)
			switch {
			case err != nil:
				return err
			case status == http.StatusServiceUnavailable:
				return fmt.Errorf("%s", body) // no leader for a moment
			case status/100 != 2 || json.Unmarshal(body, &st) != nil || st.Operation == nil:
				t.Fatalf("status %d: %s", status, body)
			case first != "" && header.Get("Coopr-Repeated") != "true":
				t.Errorf("agent %s does not say that it was done before", a.name)
			}
			return nil
		})
		if first == "" {
			first = st.Operation.ID
		}
		if st.Operation.ID != first {
			t.Errorf("agent %s: operation %s, then %s", a.name, first, st.Operation.ID)
		}
	}
	for _, a := range append(m.agents, m.agents...) {
		send(a)
	}
	leader := m.leader()
	leader.kill()
	for _, a := range m.agents {
		if a.alive() {
			send(a)
		}
	}
	m.succeeds(first)
	clusters, _, err := m.api().Clusters(m.context(), client.ClusterFilter{}, client.Read{})
	if err != nil || len(clusters) != 1 {
		t.Errorf("%d clusters: %v", len(clusters), err)
	}
	leader.start()
	m.ready()
	m.remove("once")
	m.stop()
}
