package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mesh is an agent and the server of its API, which can lose answers.
type mesh struct {
	*apitest.Agent
	*httptest.Server
	// lose is the number of answers that are lost after the request was served.
	lose atomic.Int32
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	s := apitest.NewStore()
	t.Cleanup(s.Close)
	m := &mesh{Agent: apitest.NewAgent(s, "a")}
	h, err := server.New(server.Config{Services: m.Agent.Services(), Patience: 50 * time.Millisecond, Heartbeat: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.lose.Load() > 0 {
			m.lose.Add(-1)
			h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(m.Server.Close)
	return m
}

func newClient(t *testing.T, token string, addresses ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addresses: addresses, Token: token, Patience: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const shop = `{"name":"shop","defaults":{"services":["nginx"],"provider":"cloud"}}`

// parts are the definitions to which the template "shop" refers.
var parts = map[string][]json.RawMessage{
	"providers":     {json.RawMessage(`{"name":"cloud","providertype":"cloud"}`)},
	"hardwaretypes": {json.RawMessage(`{"name":"small","providermap":{"cloud":{"flavor":"s"}}}`)},
	"imagetypes":    {json.RawMessage(`{"name":"debian","providermap":{"cloud":{"image":"d"}}}`)},
	"services": {json.RawMessage(`{"name":"nginx","provisioner":{"actions":{"install":{"type":"shell"},"configure":{"type":"shell"},` +
		`"start":{"type":"shell"},"stop":{"type":"shell"}}}}`)},
}

func TestRoundTrip(t *testing.T) {
	ctx := context.Background()
	m := newMesh(t)
	admin, user, super := newClient(t, apitest.Admin, m.URL), newClient(t, apitest.User, m.URL), newClient(t, apitest.Super, m.URL)
	if _, _, err := admin.Import(ctx, parts, false); err != nil {
		t.Fatal(err)
	}
	body, meta, err := admin.PutDefinition(ctx, model.KindClusterTemplate, "shop", json.RawMessage(shop))
	if err != nil || meta.Index == 0 || !strings.Contains(string(body), `"version":1`) {
		t.Fatalf("%s %+v %v", body, meta, err)
	}
	if _, _, err := admin.CreateDefinition(ctx, model.KindClusterTemplate, json.RawMessage(shop)); !errors.Is(err, client.ErrConflict) {
		t.Errorf("%v", err)
	}
	if all, _, err := user.Definitions(ctx, model.KindClusterTemplate, client.Read{}); err != nil || len(all) != 1 {
		t.Errorf("%d %v", len(all), err)
	}
	if all, _, err := user.Versions(ctx, model.KindClusterTemplate, "shop", client.Read{}); err != nil || len(all) != 1 {
		t.Errorf("%d %v", len(all), err)
	}
	req := model.CreateCluster{Name: "one", ClusterTemplate: "shop", NumMachines: 2}
	st, _, err := user.CreateCluster(ctx, req, true)
	if err != nil || st.Operation != nil || st.Preview.Tasks != 12 {
		t.Fatalf("%+v %v", st, err)
	}
	st, _, err = user.CreateCluster(ctx, req, false)
	if err != nil {
		t.Fatal(err)
	}
	op := st.Operation.ID
	tasks, meta, err := user.Tasks(ctx, op, "", client.Page{Offset: 1, Limit: 2}, client.Read{})
	if err != nil || len(tasks) != 2 || meta.Total != 12 {
		t.Errorf("%d of %d: %v", len(tasks), meta.Total, err)
	}
	m.Log(op+"/0", "hello\n")
	r, err := user.TaskLog(ctx, op+"/0", 0, false)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r)
	r.Close()
	if string(text) != "hello\n" {
		t.Errorf("%q", text)
	}
	if task, _, err := user.Task(ctx, op+"/0", client.Read{}); err != nil || task.Action != model.Create {
		t.Errorf("%+v %v", task, err)
	}
	if d, _, err := user.Order(ctx, op, "pause", "why not"); err != nil || d.Status != model.OpPaused {
		t.Errorf("%+v %v", d, err)
	}
	if _, _, err := user.Order(ctx, op, "resume", ""); err != nil {
		t.Error(err)
	}
	m.Finish(op)
	if st, _, err = user.Operate(ctx, "one", api.Operate{Type: model.OpConfigure, Config: map[string]any{"a": 1}, DryRun: true}); err != nil ||
		st.Operation != nil {
		t.Errorf("%+v %v", st, err)
	}
	for _, typ := range []model.OperationType{model.OpStop, model.OpStart, model.OpRestart, model.OpConfigure, model.OpDelete} {
		st, _, err := user.Operate(ctx, "one", api.Operate{Type: typ})
		if err != nil || st.Operation.Type != typ {
			t.Fatalf("%s: %+v %v", typ, st.Operation, err)
		}
		if typ == model.OpDelete {
			_, _, err = user.Order(ctx, st.Operation.ID, "abort", "")
		} else {
			m.Finish(st.Operation.ID)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for name, err := range map[string]error{
		"clusters":   second(user.Clusters(ctx, client.ClusterFilter{Statuses: []string{"active"}}, client.Read{})),
		"cluster":    second(user.Cluster(ctx, "one", client.Read{})),
		"operations": second(user.Operations(ctx, "one", nil, client.Page{}, client.Read{})),
		"operation":  second(user.Operation(ctx, op, client.Read{Consistency: api.Consistent})),
		"nodes":      second(user.Nodes(ctx, "one", client.Page{}, client.Read{})),
		"node":       second(user.Node(ctx, "00000001-1000", client.Read{})),
		"export":     second(admin.Export(ctx, client.Read{})),
		"plugins":    second(user.Plugins(ctx, client.Read{})),
		"agents":     second(user.Agents(ctx, client.Read{})),
		"tenants":    second(user.Tenants(ctx, client.Read{})),
		"tenant":     second(user.TenantByName(ctx, "acme", client.Read{})),
		"tokens":     second(admin.Tokens(ctx, client.Read{})),
		"health":     user.Health(ctx),
		"metrics":    user.Metrics(ctx, io.Discard),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := super.Join(ctx, []string{"a", "b"}); err != nil || n != 2 {
		t.Errorf("%d %v", n, err)
	}
	if s, err := user.Status(ctx); err != nil || s.Name != "a" {
		t.Errorf("%+v %v", s, err)
	}
	if ms, err := user.Members(ctx); err != nil || len(ms) != 1 {
		t.Errorf("%+v %v", ms, err)
	}
	if ps, err := super.RaftPeers(ctx); err != nil || len(ps) != 1 {
		t.Errorf("%+v %v", ps, err)
	}
	for name, err := range map[string]error{
		"transfer": super.RaftTransfer(ctx, "x"), "remove": super.RaftRemove(ctx, "x"), "leave": super.Leave(ctx, "x", false),
	} {
		if !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	tok, _, err := admin.CreateToken(ctx, api.NewToken{Actor: "x"})
	if err != nil || tok.Secret == "" {
		t.Errorf("%+v %v", tok, err)
	}
	if _, err := admin.DeleteToken(ctx, tok.ID); err != nil {
		t.Error(err)
	}
	if _, _, err := super.CreateTenant(ctx, model.Tenant{Name: "n"}); err != nil {
		t.Error(err)
	}
	if got, _, err := super.PutTenant(ctx, model.Tenant{Name: "n", MaxNodes: 3}); err != nil || got.MaxNodes != 3 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := super.DeleteTenant(ctx, "n"); err != nil {
		t.Error(err)
	}
	if done, _, err := admin.Import(ctx, map[string][]json.RawMessage{"services": {json.RawMessage(`{"name":"s"}`)}}, false); err != nil ||
		len(done.Written) != 1 {
		t.Errorf("%+v %v", done, err)
	}
	var snap bytes.Buffer
	if n, err := super.SnapshotSave(ctx, &snap); err != nil || n == 0 {
		t.Errorf("%d %v", n, err)
	}
	if _, err := admin.DeleteDefinition(ctx, model.KindService, "s", 0, false); err != nil {
		t.Error(err)
	}
	if err := super.SnapshotRestore(ctx, &snap, api.RestoreOptions{Unsigned: true}); err != nil {
		t.Error(err)
	}
	if _, _, err := admin.Definition(ctx, model.KindService, "s", 0, client.Read{}); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, _ client.Meta, err error) error { return err }

func TestProblemsAreTyped(t *testing.T) {
	m := newMesh(t)
	_, _, err := newClient(t, apitest.User, m.URL).CreateCluster(context.Background(),
		model.CreateCluster{Name: "a b", NumMachines: 10001}, false)
	var e *client.Error
	if !errors.As(err, &e) || e.Type != api.ProblemInvalid || e.Status != 422 || len(e.Faults) != 3 || !errors.Is(err, client.ErrInvalid) {
		t.Fatalf("%#v", err)
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 4 {
		t.Errorf("not one fault a line: %v", err)
	}
	if _, _, err := newClient(t, "guess", m.URL).Tenants(context.Background(), client.Read{}); !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("%v", err)
	}
	// The server is not an agent of a mesh.
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if _, err := newClient(t, "x", other.URL).Status(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "is the address right?") {
		t.Errorf("%v", err)
	}
}

func TestWritesAreDoneOnce(t *testing.T) {
	ctx := context.Background()
	m := newMesh(t)
	c := newClient(t, apitest.Admin, m.URL)
	for name, trouble := range map[string]func(){
		"a lost answer":       func() { m.lose.Store(2) },
		"no leader":           func() { m.Fail(problem.NoLeader, problem.NoLeader) },
		"an unknown outcome":  func() { m.Fail(problem.UnknownOutcome) },
		"an outcome and loss": func() { m.Fail(fmt.Errorf("x: %w", problem.UnknownOutcome)); m.lose.Store(1) },
	} {
		trouble()
		body := fmt.Appendf(nil, `{"name":"s","description":%q}`, name) // an unchanged definition is no new version
		if _, _, err := c.PutDefinition(ctx, model.KindService, "s", body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, _, err := c.Versions(ctx, model.KindService, "s", client.Read{}); err != nil || len(all) != 4 {
		t.Errorf("%d versions of 4 writes: %v", len(all), err)
	}
	// The caller chooses the request id.
	own := client.WithRequestID(ctx, "mine")
	for i := range 2 {
		_, meta, err := c.PutDefinition(own, model.KindService, "s", json.RawMessage(`{"name":"s"}`))
		if err != nil || meta.Repeated != (i == 1) {
			t.Errorf("%+v %v", meta, err)
		}
	}
}

func TestSeveralAddresses(t *testing.T) {
	ctx := context.Background()
	m := newMesh(t)
	dead := httptest.NewServer(nil)
	dead.Close()
	c := newClient(t, apitest.Admin, dead.URL, m.URL)
	if _, _, err := c.PutDefinition(ctx, model.KindService, "s", json.RawMessage(`{"name":"s"}`)); err != nil {
		t.Error(err)
	}
	impatient, err := client.New(client.Config{Addresses: []string{dead.URL}, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer impatient.Close()
	if _, err := impatient.Status(ctx); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	for _, bad := range []string{"", "http://", "a b", "ftp://x", "host/path"} {
		if _, err := client.New(client.Config{Addresses: []string{bad}}); err == nil {
			t.Errorf("address %q is taken", bad)
		}
	}
	for in, want := range map[string]string{"h": "http://h:55054", "h:1": "http://h:1", "https://h": "https://h:55054",
		"::1": "http://[::1]:55054", "[::1]:5": "http://[::1]:5"} {
		c, err := client.New(client.Config{Addresses: []string{in}})
		if err != nil || c.Addresses()[0] != want {
			t.Errorf("%s: %v %v", in, c, err)
		}
	}
}

func TestBlockingRead(t *testing.T) {
	ctx := context.Background()
	m := newMesh(t)
	c := newClient(t, apitest.Admin, m.URL)
	_, meta, err := c.Clusters(ctx, client.ClusterFilter{}, client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan client.Meta)
	go func() {
		_, m, _ := c.Clusters(ctx, client.ClusterFilter{}, client.Read{After: meta.Index, Wait: time.Minute})
		got <- m
	}()
	if _, _, err := c.PutDefinition(ctx, model.KindService, "s", json.RawMessage(`{"name":"s"}`)); err != nil {
		t.Fatal(err)
	}
	if index := m.Index(); (<-got).Index != index {
		t.Errorf("not index %d", index)
	}
}

func TestEventsResume(t *testing.T) {
	m := newMesh(t)
	c := newClient(t, apitest.Admin, m.URL)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// touch writes a service, which makes an event about it.
	touch := func(name string) {
		t.Helper()
		if _, _, err := c.PutDefinition(context.Background(), model.KindService, name, json.RawMessage(`{"name":"`+name+`"}`)); err != nil {
			t.Error(err)
		}
	}
	connected := make(chan struct{}, 10)
	var mu sync.Mutex
	seen := map[string]int{}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	done := make(chan error, 1)
	go func() {
		done <- c.Events(ctx, client.EventFilter{Connected: func() { connected <- struct{}{} }}, func(e model.Event) error {
			mu.Lock()
			defer mu.Unlock()
			seen[e.Subject]++
			return nil
		})
	}()
	<-connected
	for round := range 3 {
		for i := range 5 {
			touch(fmt.Sprintf("s%d-%d", round, i))
		}
		if round < 2 {
			m.CloseClientConnections()
			// An event that occurs while the client is disconnected arrives later.
			touch(fmt.Sprintf("s%d-gap", round))
			<-connected
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for count() < 17 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if n := count(); n != 17 {
		t.Errorf("%d events of 17: %v", n, seen)
	}

	// A snapshot that is restored has no events.
	super := newClient(t, apitest.Super, m.URL)
	var saved bytes.Buffer
	_, err := super.SnapshotSave(context.Background(), &saved)
	if err == nil {
		err = super.SnapshotRestore(context.Background(), &saved, api.RestoreOptions{Unsigned: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	err = c.Events(context.Background(), client.EventFilter{After: 11}, func(model.Event) error { return nil })
	if !errors.Is(err, client.ErrConflict) {
		t.Errorf("%v", err)
	}
	// Events returns the function's own error.
	mine := errors.New("mine")
	go func() {
		<-connected
		touch("last")
	}()
	err = c.Events(context.Background(), client.EventFilter{Connected: func() { connected <- struct{}{} }},
		func(model.Event) error { return mine })
	if err != mine { //nolint:errorlint // it must be the same error
		t.Errorf("%v", err)
	}
}
