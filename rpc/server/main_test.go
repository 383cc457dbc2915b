package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is an agent with its API on a real port.
type world struct {
	*apitest.Agent
	t        testing.TB
	url      string
	http     *http.Client
	handler  http.Handler
	log      *safeBuffer
	registry *prometheus.Registry
	clusters int // whose plans the test starts
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return serve(t, newAgent(t), nil)
}

// newAgent returns the only agent of a new mesh.
func newAgent(t testing.TB) *apitest.Agent {
	t.Helper()
	s := apitest.NewStore()
	t.Cleanup(s.Close)
	return apitest.NewAgent(s, "a")
}

// serve serves an agent's API on a port; change may replace some of its services.
func serve(t testing.TB, a *apitest.Agent, change func(*rest.Services)) *world {
	t.Helper()
	return serveWithin(t, a, rest.Bounds{}, change)
}

// serveWithin is serve with bounds of what tenants and strangers may do.
func serveWithin(t testing.TB, a *apitest.Agent, bounds rest.Bounds, change func(*rest.Services)) *world {
	t.Helper()
	w := &world{Agent: a, t: t, log: &safeBuffer{}, registry: prometheus.NewRegistry()}
	services := a.Services()
	if change != nil {
		change(&services)
	}
	h, err := server.New(server.Config{
		Services: services, Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registry: w.registry, Name: "test", Patience: 300 * time.Millisecond, Heartbeat: 50 * time.Millisecond, Bounds: bounds,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Config = server.NewServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Start()
	t.Cleanup(s.Close)
	w.url, w.http, w.handler = s.URL, s.Client(), h
	return w
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t testing.TB) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("no problem document: %v\n%s", err, a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if p.Status != a.status || p.Title == "" || !strings.HasPrefix(p.Type, "urn:coopr:problem:") {
		t.Errorf("status %d, document %+v", a.status, p)
	}
	return p
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%v\n%s", err, a.body)
	}
}

// ask sends a request; headers are "Name: value". The body is JSON unless a
// header says otherwise.
func (w *world) ask(token, method, path, body string, headers ...string) answer {
	w.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	return w.send(context.Background(), token, method, path, r, headers...)
}

func (w *world) send(ctx context.Context, token, method, path string, body io.Reader, headers ...string) answer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// must is like ask, and fails the test unless the status is as expected.
func (w *world) must(status int, token, method, path, body string, headers ...string) answer {
	w.t.Helper()
	a := w.ask(token, method, path, body, headers...)
	if a.status != status {
		w.t.Fatalf("%s %s: status %d, not %d\n%s", method, path, a.status, status, a.body)
	}
	return a
}

const shop = `{"name":"shop","description":"A shop","defaults":{"services":["nginx","php"],"provider":"cloud"},
	"constraints":{"size":{"max":10001}},"links":[{"label":"Shop","url":"http://%host.service.nginx[0]%/"}]}`

// parts are the definitions to which the template "shop" refers.
const parts = `{"providers":[{"name":"cloud","providertype":"cloud"}],
	"hardwaretypes":[{"name":"small","providermap":{"cloud":{"flavor":"s","cost":"0.25"}}}],
	"imagetypes":[{"name":"debian","providermap":{"cloud":{"image":"d"}}}],
	"services":[
		{"name":"nginx","provisioner":{"actions":{"install":{"type":"shell"},"configure":{"type":"shell"},"start":{"type":"shell"},
			"stop":{"type":"shell"}}}},
		{"name":"php","provisioner":{"actions":{"install":{"type":"shell"},"start":{"type":"shell"},"stop":{"type":"shell"}}}}]}`

// template writes the template "shop" and what it refers to.
func (w *world) template() {
	w.t.Helper()
	w.must(200, apitest.Admin, "POST", "/v1/import", parts)
	w.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", shop)
}

// cluster creates a cluster as bob and returns its id and operation.
func (w *world) cluster(name string, nodes string) (id, op string) {
	w.t.Helper()
	a := w.must(202, apitest.User, "POST", "/v1/clusters", `{"name":"`+name+`","clusterTemplate":"shop","numMachines":`+nodes+`}`)
	var st api.StartedBody
	a.into(w.t, &st)
	return st.ID, st.Operation.ID
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
