package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/testing/programs"
)

// bin has the plugins and the agent. They are built when a benchmark needs them.
var bin = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "coopr-bench-")
	built = dir
	if err == nil {
		err = programs.Put(dir, "./plugins/...", "./cmd/coopr-agent", "./testing/plugins/coopr-plugin-chaos")
	}
	if err != nil {
		panic(err)
	}
	return dir
})

// built is the folder of bin, to be removed.
var built string

func TestMain(m *testing.M) {
	confine.Hook()
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// mesh is three agents in this process.
type mesh struct {
	b       *testing.B
	agents  []*agent.Agent
	leader  *agent.Agent
	configs []agent.Config
	stops   []func() // end an agent and wait for it
}

// run starts an agent, for the first time or again.
func (m *mesh) run(i int) {
	m.b.Helper()
	a, err := agent.New(m.configs[i])
	if err != nil {
		m.b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	m.agents[i] = a
	m.stops[i] = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			m.b.Log("agent:", err)
		}
	})
}

// freePort returns a port below the range of outgoing connections. A hundred agents have so many of
// these that they would occupy each other's ports.
func freePort(b *testing.B) string {
	for range 1000 {
		addr := fmt.Sprint("127.0.0.1:", 12_000+ports.Add(1)%20_000)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	b.Fatal("there is no free port")
	return ""
}

// ports counts the ports tried. Runs of the benchmarks start at different numbers.
var ports = func() *atomic.Int64 { n := &atomic.Int64{}; n.Store(int64(os.Getpid()) * 977); return n }()

// newMesh starts agents and waits for a leader and for all workers.
func newMesh(b *testing.B, store string, slots, count int, change ...func(*agent.Config)) *mesh {
	m := &mesh{b: b, agents: make([]*agent.Agent, count), stops: make([]func(), count)}
	var join []string
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("BENCH_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	for i := range count {
		c := config.Default(true)
		c.Name, c.DataDir = fmt.Sprintf("a%d", i), filepath.Join(b.TempDir(), fmt.Sprint(i))
		c.HTTP.Addr, c.Peer.Addr, c.Gossip.Addr = freePort(b), freePort(b), freePort(b)
		c.BootstrapExpect, c.PluginDir, c.Worker.Slots, c.Raft.Store = count, bin(), slots, store
		join = append(join, c.Gossip.Addr)
		m.configs = append(m.configs, agent.Config{Config: c, Build: "bench", Logger: log, Credentials: admission.Credentials{Root: "bench-token-bench-token"}, Drain: time.Second})
	}
	for i := range m.configs {
		m.configs[i].Join = join
		for _, f := range change {
			f(&m.configs[i])
		}
		m.run(i)
	}
	b.Cleanup(func() {
		var all sync.WaitGroup
		for _, stop := range m.stops {
			all.Go(stop)
		}
		all.Wait()
	})
	for start := time.Now(); time.Since(start) < 30*time.Second; time.Sleep(20 * time.Millisecond) {
		ready := 0
		for _, a := range m.agents {
			var st struct {
				LeaderReady bool   `json:"leaderReady"`
				Session     string `json:"session"`
				Alive       int    `json:"alive"`
			}
			if m.try(a, "GET", "/v1/status", nil, &st) == nil && st.Session != "" && st.Alive == count {
				ready++
			}
			if st.LeaderReady {
				m.leader = a
			}
		}
		var types []model.PluginType
		if ready == count && m.leader != nil && m.try(m.leader, "GET", "/v1/plugins", nil, &types) == nil && len(types) >= 4 {
			return m
		}
	}
	b.Fatal("the mesh did not become ready")
	return nil
}

// try makes one request of an agent's API.
func (m *mesh) try(a *agent.Agent, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, "http://"+a.Addr()+path, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+a.Token())
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(res.Body); err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, buf.String())
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(buf.Bytes(), out)
}

func (m *mesh) call(method, path string, in, out any) {
	m.b.Helper()
	if err := m.try(m.leader, method, path, in, out); err != nil {
		m.b.Fatal(err)
	}
}

// index returns the index of the last entry that the leader has applied.
func (m *mesh) index() int {
	m.b.Helper()
	req, _ := http.NewRequest("GET", "http://"+m.leader.Addr()+"/v1/providers", nil)
	req.Header.Set("Authorization", "Bearer "+m.leader.Token())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		m.b.Fatal(err)
	}
	defer res.Body.Close()
	index, err := strconv.Atoi(res.Header.Get("Coopr-Index"))
	if err != nil {
		m.b.Fatal(err)
	}
	return index
}

// define writes the definitions of a cluster whose services have these actions.
func (m *mesh) define(services int, actions []string, action model.ServiceAction, provider model.Provider) []string {
	var defs []map[string]any
	put := func(kind model.Kind, v any) {
		m.call("PUT", "/v1/"+string(kind)+"/"+nameOf(v), v, nil)
		defs = append(defs, nil)
	}
	provider.Name = "p"
	put(model.KindProvider, provider)
	put(model.KindHardwareType, model.HardwareType{Base: model.Base{Name: "h"}, ProviderMap: map[string]map[string]any{"p": {"flavor": "x"}}})
	put(model.KindImageType, model.ImageType{Base: model.Base{Name: "i"}, ProviderMap: map[string]map[string]any{"p": {"image": "x"}}})
	t := model.ClusterTemplate{Base: model.Base{Name: "t"}, Defaults: model.Defaults{Provider: "p", HardwareType: "h", ImageType: "i"}}
	var names []string
	for i := range services {
		s := model.Service{Base: model.Base{Name: fmt.Sprintf("s%02d", i)},
			Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{}}}
		for _, a := range actions {
			s.Provisioner.Actions[a] = action
		}
		put(model.KindService, s)
		t.Defaults.Services = append(t.Defaults.Services, model.DefaultService{Name: s.Name})
		names = append(names, s.Name)
	}
	put(model.KindClusterTemplate, t)
	return names
}

func nameOf(v any) string {
	b, _ := json.Marshal(v)
	var n struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(b, &n)
	return n.Name
}

type startedOp struct {
	Operation model.Operation `json:"operation"`
	Cluster   struct {
		ID string `json:"id"`
	} `json:"cluster"`
}

// operation waits for the end of an operation.
func (m *mesh) wait(id string) model.Operation {
	m.b.Helper()
	index := ""
	for {
		var op struct {
			model.Operation
		}
		req, _ := http.NewRequest("GET", "http://"+m.leader.Addr()+"/v1/operations/"+id+index, nil)
		req.Header.Set("Authorization", "Bearer "+m.leader.Token())
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			m.b.Fatal(err)
		}
		err = json.NewDecoder(res.Body).Decode(&op)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 {
			m.b.Fatal(res.Status, err)
		}
		if op.Status.Ended() {
			if op.Status != model.OpSucceeded {
				m.b.Fatalf("operation %s: %s: %s", id, op.Status, op.Message)
			}
			return op.Operation
		}
		index = "?wait=30s&index=" + strings.TrimSpace(res.Header.Get("Coopr-Index"))
	}
}
