package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/programs"
)

// built holds the binaries that the tests run.
var built struct{ dir, chaos, chaos2, hostile, bin string }

func TestMain(m *testing.M) {
	confine.Hook()
	if os.Getenv("COOPR_TEST_HOST") != "" {
		hostProcess()
		return
	}
	goleak.VerifyTestMain(builder{m})
}

type builder struct{ m *testing.M }

// Run builds the plugins once, runs the tests, and removes them.
func (b builder) Run() int {
	dir, err := os.MkdirTemp("", "coopr-host-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if again := os.Getenv(asNobody); again != "" {
		built.hostile = filepath.Join(again, "hostile", "coopr-plugin-hostile")
		return b.m.Run()
	}
	if err := os.Chmod(dir, 0o755); err != nil { // another user starts plugins of it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	built.dir, built.hostile = dir, filepath.Join(dir, "hostile", "coopr-plugin-hostile")
	built.chaos, built.chaos2 = filepath.Join(dir, "v1", "coopr-plugin-chaos"), filepath.Join(dir, "v2", "coopr-plugin-chaos")
	built.bin = filepath.Join(dir, "bin")
	err = errors.Join(
		programs.Put(filepath.Dir(built.chaos), "./testing/plugins/coopr-plugin-chaos"),
		programs.Put(filepath.Dir(built.hostile), "./testing/plugins/coopr-plugin-hostile"),
		programs.Put(built.bin, "./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-local",
			"./plugins/provider/coopr-node"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "build the plugins: %v\n", err)
		return 1
	}
	out, err := exec.Command("go", "build", "-ldflags", "-w -X main.version=2.0.0", "-o", built.chaos2,
		"github.com/coopr/coopr/testing/plugins/coopr-plugin-chaos").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build the second version of the chaos plugin: %v\n%s", err, out)
		return 1
	}
	return b.m.Run()
}

// newHost starts a host with the chaos plugin in its folder.
func newHost(t testing.TB, change func(*Config)) *Host {
	t.Helper()
	dir := t.TempDir()
	plugins := filepath.Join(dir, "plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	install(t, built.chaos, filepath.Join(plugins, "coopr-plugin-chaos"))
	cfg := Config{
		Dirs: []string{plugins}, DataDir: filepath.Join(dir, "data"), CancelGrace: time.Second,
		Reads:    []string{dir}, // the chaos plugin looks for the file CHAOS_START in it
		Env:      []string{"CHAOS_START=" + filepath.Join(dir, "start"), "CHAOS_DIR="},
		Launcher: newLauncher(t, "", confine.Limits{}),
	}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if n := h.Processes(); n != 0 {
			t.Errorf("%d processes are remembered after Close", n)
		}
	})
	return h
}

// chaosIn lets the chaos plugin write to a folder, and tells it so.
func chaosIn(c *Config, dir string) {
	c.Env = append(c.Env[:1], "CHAOS_DIR="+dir)
	c.Plugins = append(c.Plugins, Binary{Path: filepath.Join(c.Dirs[0], "coopr-plugin-chaos"), Writes: []string{dir}})
}

// newLauncher returns a launcher whose command is this test's program.
func newLauncher(t testing.TB, user string, limits confine.Limits, protected ...string) *confine.Launcher {
	t.Helper()
	l, err := confine.NewLauncher(user, protected, limits)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// install puts a copy of a binary in place, as a package manager would.
func install(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".tmp", b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".tmp", to); err != nil {
		t.Fatal(err)
	}
}

// task returns an automator's task that makes the chaos plugin do something.
func task(id string, fields map[string]any) *proto.Task {
	in, err := json.Marshal(model.TaskInput{TaskID: id, Config: model.TaskConfig{
		Service: &model.TaskService{Name: "s", Action: model.TaskAction{Type: "chaos", Fields: fields}},
	}})
	if err != nil {
		panic(err)
	}
	return &proto.Task{Id: id, Fence: 7, Attempt: 1, Cluster: "c1", Node: "n1", Action: "INSTALL", Service: "s", Plugin: "chaos",
		Automator: true, TimeoutMs: 60_000, Input: in}
}

// recorder is a Sink that keeps everything.
type recorder struct {
	mu    sync.Mutex
	lines []string
	saves map[string]string
	each  func(string)
}

func (r *recorder) Log(l *proto.LogLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, l.Text)
	if r.each != nil {
		r.each(l.Text)
	}
}

func (r *recorder) Save(s *proto.SaveState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.saves == nil {
		r.saves = map[string]string{}
	}
	r.saves[s.Key] = string(s.Value)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !cond() {
		if ctx.Err() != nil {
			t.Fatalf("not within a minute: %s", what)
		}
		runtime.Gosched()
		poll(ctx)
	}
}

func poll(ctx context.Context) {
	timer := time.NewTimer(2 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
