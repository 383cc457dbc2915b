package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/rpc/api"
)

// agentVar makes this test program an agent with this data directory, so that its memory is not that of the test.
const agentVar = "COOPR_LOAD_AGENT"

const rootToken = "root-token-root-token"

func TestMain(m *testing.M) {
	confine.Hook()
	if dir := os.Getenv(agentVar); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve runs an agent until its input ends. It prints the address of its API.
func serve(dir string) error {
	c := config.Default(true)
	c.Name, c.DataDir, c.PluginDir = "a", dir, dir
	c.HTTP.Addr, c.Peer.Addr, c.Gossip.Addr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	a, err := agent.New(agent.Config{Config: c, Build: "load", Logger: log, Credentials: admission.Credentials{Root: rootToken}, Drain: time.Millisecond})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	fmt.Println(a.Addr())
	return a.Run(ctx)
}

// target is an agent that the test loads.
type target struct {
	t    testing.TB
	root *caller
	url  string
	addr string
	pid  int
}

// startAgent starts an agent and waits until it leads.
func startAgent(t testing.TB) *target {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	// While a collection runs, nothing else does. Otherwise what is allocated meanwhile would count as in use.
	cmd.Env = append(os.Environ(), agentVar+"="+filepath.Join(t.TempDir(), "data"), "GODEBUG=gcstoptheworld=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	a := &target{t: t, addr: strings.TrimSpace(addr), pid: cmd.Process.Pid}
	a.url = "http://" + a.addr
	a.root = a.caller(rootToken, "127.0.0.1")
	a.until("the agent leads", func() string {
		status, body := a.root.ask("GET", "/v1/tenants", "")
		if status == http.StatusOK {
			return ""
		}
		return fmt.Sprint(status, " ", body)
	})
	return a
}

// patience is how long a test waits for anything before it gives up. It guards against waiting for ever and does not check speed: the
// attack takes all of a machine that may have other work.
const patience = 10 * time.Minute

// until waits for a condition, which returns what is missing.
func (a *target) until(what string, missing func() string) {
	a.t.Helper()
	over := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := missing()
		if last == "" {
			return
		}
		select {
		case <-over:
			a.t.Fatalf("%s: not within %v: %s", what, patience, last)
		case <-tick.C:
		}
	}
}

// newTenant makes a tenant and returns a token of its administrator.
func (a *target) newTenant(name string) string {
	a.t.Helper()
	if status, body := a.root.ask("PUT", "/v1/tenants/"+name, string(mustJSON(model.Tenant{Name: name}))); status != http.StatusOK {
		a.t.Fatal(status, body)
	}
	status, body := a.root.ask("POST", "/v1/tokens?tenant="+name, string(mustJSON(api.NewToken{Actor: name, Role: model.RoleAdmin})))
	var token api.IssuedToken
	if err := json.Unmarshal([]byte(body), &token); err != nil || status != http.StatusCreated {
		a.t.Fatal(status, body, err)
	}
	return token.Secret
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// size is what an agent takes.
type size struct {
	heap       int64 // bytes in use, as of the last collection
	goroutines int64
	active     int64 // requests
	resident   int64 // bytes of the process
}

func (a *target) size() (s size) {
	a.t.Helper()
	status, body := a.root.ask("GET", "/v1/metrics", "")
	if status != http.StatusOK {
		a.t.Fatal(status, body)
	}
	for name, to := range map[string]*int64{
		"go_gc_heap_live_bytes ": &s.heap, "go_goroutines ": &s.goroutines, "coopr_api_requests_active ": &s.active,
	} {
		_, rest, ok := strings.Cut(body, "\n"+name)
		value, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			a.t.Fatalf("the metrics lack %s: %v", name, err)
		}
		*to = int64(n)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.pid))
	if err != nil {
		return s // not on Linux
	}
	if fields := strings.Fields(string(stat)); len(fields) > 1 {
		n, _ := strconv.ParseInt(fields[1], 10, 64)
		s.resident = n * int64(os.Getpagesize())
	}
	return s
}
