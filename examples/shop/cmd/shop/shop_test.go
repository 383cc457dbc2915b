package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain runs the shop itself when a test starts this binary as one of the tiers, so that the
// tests use real processes.
func TestMain(m *testing.M) {
	if os.Getenv("SHOP_TEST_AS_PROGRAM") == "1" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// process is a tier that a test has started.
type process struct {
	*exec.Cmd
	url  string // where it serves
	mu   sync.Mutex
	log  bytes.Buffer
	done chan struct{} // closed when it has ended
}

var readyLine = regexp.MustCompile(`msg=ready .*addr=(\S+)`)

// start runs one tier and waits until it serves; it is killed at the end.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	p.Env = []string{"SHOP_TEST_AS_PROGRAM=1"}
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(p.done)
		defer close(ready)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.mu.Lock()
			p.log.Write(append(lines.Bytes(), '\n'))
			p.mu.Unlock()
			if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
				ready <- "http://" + m[1]
			}
		}
		_ = p.Wait() // the state is in p.ProcessState
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%v:\n%s", args, p.log.String())
		}
	})
	var ok bool
	if p.url, ok = <-ready; !ok {
		t.Fatalf("%v ended: %s\n%s", args, p.ProcessState, p.log.String())
	}
	return p
}

// stop sends SIGTERM and waits; the tier must end well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code := p.ProcessState.ExitCode(); code != 0 {
		t.Errorf("%v: %s after SIGTERM", p.Args[1:], p.ProcessState)
	}
}

// client leaves nothing open for goleak to find.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// shopHealth asks the balancer until ok accepts its answer.
func shopHealth(t *testing.T, url string, ok func(status int, h health) bool) health {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, body := get(t, url+"/health")
		var h health
		if err := json.Unmarshal([]byte(body), &h); err == nil && ok(status, h) {
			return h
		}
		if time.Now().After(end) {
			t.Fatalf("never as wanted; the last answer: %d %s", status, body)
		}
		<-tick.C
	}
}

func alive(n, of int) func(int, health) bool {
	return func(status int, h health) bool { return status == 200 && h.Alive == n && h.Backends == of }
}

// TestThreeTiers runs the whole shop, takes parts of it away, and puts them back.
func TestThreeTiers(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "shop.db")
	for _, want := range []string{"seeded " + db, db + " is seeded already"} {
		var out strings.Builder
		p := program{stdout: &out, stderr: io.Discard, getenv: func(string) string { return "" }}
		if code := p.run(t.Context(), []string{"seed", "--data", db}); code != 0 || strings.TrimSpace(out.String()) != want {
			t.Fatalf("seed: %d, %q; want %q", code, out.String(), want)
		}
	}
	store := start(t, "store", "--listen", "127.0.0.1:0", "--name", "s1", "--data", db)
	web1 := start(t, "web", "--listen", "127.0.0.1:0", "--name", "w1", "--store", store.url, "--greeting", "Hi <you>")
	web2 := start(t, "web", "--listen", "127.0.0.1:0", "--name", "w2", "--store", store.url)
	conf := filepath.Join(dir, "balancer.conf")
	configure := func(urls ...string) {
		t.Helper()
		text := "name = b1\ninterval = 20ms\nbackends = " + strings.Join(urls, ",") + "\n"
		if err := errors.Join(os.WriteFile(conf+".new", []byte(text), 0o644), os.Rename(conf+".new", conf)); err != nil {
			t.Fatal(err)
		}
	}
	configure(web1.url, web2.url)
	balancer := start(t, "balancer", "--listen", "127.0.0.1:0", "--config", conf)

	h := shopHealth(t, balancer.url, alive(2, 2))
	if h.Balancer != "b1" || h.Store != "s1" || h.Visits != 0 || h.Web != "w1" && h.Web != "w2" {
		t.Fatalf("health: %+v", h)
	}
	seen := map[string]bool{}
	for n := 1; n <= 4; n++ {
		status, body := get(t, balancer.url+"/")
		if status != 200 || !strings.Contains(body, fmt.Sprintf("visitor number <b>%d</b>", n)) || !strings.Contains(body, "coffee") {
			t.Fatalf("visit %d: %d %s", n, status, body)
		}
		for _, w := range []string{"w1", "w2"} {
			if strings.Contains(body, "b1 asked "+w+", which asked s1") {
				seen[w] = true
			}
		}
		if strings.Contains(body, "asked w1") && !strings.Contains(body, "<h1>Hi &lt;you&gt;</h1>") {
			t.Errorf("the greeting is not there, or not escaped: %s", body)
		}
	}
	if len(seen) != 2 {
		t.Errorf("only %v were asked", seen)
	}

	// A web server is killed: no request fails, the next check counts it out.
	if err := web1.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-web1.done
	for range 4 {
		if status, body := get(t, balancer.url+"/"); status != 200 || !strings.Contains(body, "b1 asked w2") {
			t.Errorf("with w1 dead: %d %s", status, body)
		}
	}
	shopHealth(t, balancer.url, alive(1, 2))

	// A third comes by a new file; the dead one goes.
	web3 := start(t, "web", "--listen", "127.0.0.1:0", "--name", "w3", "--store", store.url)
	configure(web2.url, web3.url)
	shopHealth(t, balancer.url, alive(2, 2))

	// A bad file changes nothing.
	configure("ftp://nowhere")
	if err := balancer.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		balancer.mu.Lock()
		defer balancer.mu.Unlock()
		return strings.Contains(balancer.log.String(), "settings are not applied")
	})
	shopHealth(t, balancer.url, alive(2, 2))

	// The store is killed and comes back with what it had, on the same address.
	if err := store.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-store.done
	status, body := get(t, balancer.url+"/health")
	if status != 503 || !strings.Contains(body, "balancer b1") {
		t.Errorf("without a store: %d %s", status, body)
	}
	store = start(t, "store", "--listen", strings.TrimPrefix(store.url, "http://"), "--name", "s1", "--data", db)
	if h := shopHealth(t, balancer.url, alive(2, 2)); h.Visits != 8 {
		t.Errorf("visits after the store's death: %+v", h)
	}

	for _, p := range []*process{balancer, web2, web3, store} {
		p.stop(t)
	}
}

// eventually waits until cond holds.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	end := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(end) {
			t.Fatal("the condition never held")
		}
		<-tick.C
	}
}

// TestStopLetsRequestsFinish sends SIGTERM while an answer is on its way.
func TestStopLetsRequestsFinish(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			once.Do(func() { close(arrived) })
			<-finish
		}
		writeJSON(w, 200, health{Web: "slow"})
	}))
	defer slow.Close()
	balancer := start(t, "balancer", "--listen", "127.0.0.1:0", "--backends", slow.URL, "--timeout", "30s")
	shopHealth(t, balancer.url, alive(1, 1))
	answer := make(chan int, 1)
	go func() {
		status, _ := get(t, balancer.url+"/slow")
		answer <- status
	}()
	<-arrived
	if err := balancer.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		balancer.mu.Lock()
		defer balancer.mu.Unlock()
		return strings.Contains(balancer.log.String(), "stopping")
	})
	close(finish)
	if status := <-answer; status != 200 {
		t.Errorf("the request in flight got %d", status)
	}
	<-balancer.done
	if !balancer.ProcessState.Success() {
		t.Errorf("balancer: %s", balancer.ProcessState)
	}
}

func TestBalancerWithoutWebServers(t *testing.T) {
	balancer := start(t, "balancer", "--listen", "127.0.0.1:0", "--name", "b1")
	status, body := get(t, balancer.url+"/")
	if status != 503 || strings.TrimSpace(body) != `{"error":"balancer b1: no web server: no web servers are configured"}` {
		t.Errorf("%d %s", status, body)
	}
}

// TestSkippedServersAreTried sends a request between a web server's return and the check that notices
// it.
func TestSkippedServersAreTried(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, health{Web: "back"})
	}))
	defer web.Close()
	log := slog.New(slog.DiscardHandler)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	p := &pool{log: log, client: &http.Client{Transport: transport}}
	dead := "http://127.0.0.1:1"
	p.set([]string{dead, web.URL})
	for _, url := range []string{dead, web.URL} {
		p.mark(url, errors.New("connection refused"))
	}
	balancer := httptest.NewServer(balancerHandler("b1", log, p, transport))
	defer balancer.Close()
	for range 4 {
		if status, body := get(t, balancer.URL+"/"); status != 200 || !strings.Contains(body, `"back"`) {
			t.Errorf("%d %s", status, body)
		}
	}
}

func TestStoreHTTP(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "d"))
	srv := httptest.NewServer(storeHandler("s", d))
	defer srv.Close()
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/keys/a", "", 404, `{"error":"no key \"a\""}`},
		{"PUT", "/keys/a", "x<y", 200, `{"store":"s","value":"x<y"}`},
		{"GET", "/keys/a", "", 200, `{"store":"s","value":"x<y"}`},
		{"PUT", "/keys/a%20b", "x", 400, `{"error":"key \"a b\": want ^[A-Za-z0-9._-]{1,200}$"}`},
		{"PUT", "/keys/big", strings.Repeat("x", maxValue+1), 413, `{"error":"value of \"big\": more than 1048576 bytes"}`},
		{"POST", "/visits", "", 200, `{"store":"s","visits":1}`},
		{"GET", "/keys", "", 200, `{"keys":{"a":"x<y","visits":"1"},"store":"s"}`},
		{"DELETE", "/keys/a", "", 204, ""},
		{"DELETE", "/keys/a", "", 404, `{"error":"no key \"a\""}`},
		{"GET", "/health", "", 200, `{"store":"s","visits":1}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, srv.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != c.status || strings.TrimSpace(string(b)) != c.want {
			t.Errorf("%s %s: %d %s; want %d %s", c.method, c.path, resp.StatusCode, b, c.status, c.want)
		}
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, srv.URL+"/health"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if err := os.Remove(d.path); err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, srv.URL+"/health"); status != 500 || !strings.Contains(body, "no such file") {
		t.Errorf("with its file gone: %d %s", status, body)
	}
}

func TestCommandLine(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer srv.Close()
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"", 2, "", "shop is the example's"},
		{"help", 0, "shop is the example's", ""},
		{"sell", 2, "", `no command "sell"`},
		{"web --help", 0, "", "-greeting"},
		{"web", 2, "", "shop web: usage: store: missing: want http://HOST:PORT"},
		{"web --store nowhere", 2, "", `"nowhere": want http://HOST:PORT`},
		{"balancer --backends ftp://a,http://b/c", 2, "", `"ftp://a": want http://HOST:PORT`},
		{"balancer --interval 0s", 2, "", "interval: want more than 0"},
		{"store --listen nonsense --data " + filepath.Join(t.TempDir(), "d"), 1, "", "serve on nonsense"},
		{"check", 2, "", "want one URL, got 0"},
		{"check " + srv.URL, 0, "hello", ""},
		{"check http://127.0.0.1:1/", 1, "", "connection refused"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs strings.Builder
			p := program{stdout: &out, stderr: &errs, getenv: func(string) string { return "" }}
			code := p.run(t.Context(), strings.Fields(c.args))
			if code != c.code || !strings.Contains(out.String(), c.stdout) || !strings.Contains(errs.String(), c.stderr) {
				t.Errorf("code %d, stdout %q, stderr %q", code, out.String(), errs.String())
			}
		})
	}
}

func TestCheckWaits(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked < 3 {
			writeError(w, 503, "not yet")
		}
	}))
	defer srv.Close()
	p := program{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}
	if err := p.check(t.Context(), []string{"--wait", "30s", srv.URL}); err != nil || asked != 3 {
		t.Errorf("%v after %d tries", err, asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.check(ctx, []string{"--wait", "30s", srv.URL}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
