package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/rpc/proto"
)

// hostProcess is the main function of this test binary when it is started as an agent to be killed:
// it runs two tasks for ever and reports that.
func hostProcess() {
	dir := os.Getenv("COOPR_TEST_HOST")
	launcher, err := confine.NewLauncher("", nil, confine.Limits{})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	h, err := New(Config{Dirs: []string{filepath.Join(dir, "plugins")}, DataDir: filepath.Join(dir, "data"), Launcher: launcher})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	says := func(word string) Sink {
		return sinkFunc(func(l *proto.LogLine) { fmt.Println(word, l.Text) })
	}
	go h.Execute(context.Background(), task("hang", map[string]any{"do": "hang"}), nil)
	go h.Execute(context.Background(), task("spawn", map[string]any{"do": "spawn"}), says("spawned"))
	x := task("exec", nil)
	x.Plugin = "sleeper"
	go h.Execute(context.Background(), x, says("exec"))
	select {}
}

type sinkFunc func(*proto.LogLine)

func (f sinkFunc) Log(l *proto.LogLine) { f(l) }
func (sinkFunc) Save(*proto.SaveState)  {}

// TestKilledAgent checks that kill -9 of the agent leaves no plugin process, not even one whose
// tasks ignore cancellation.
func TestKilledAgent(t *testing.T) {
	dir := t.TempDir()
	plugins := filepath.Join(dir, "plugins")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	install(t, built.chaos, filepath.Join(plugins, "coopr-plugin-chaos"))
	writeExec(t, plugins, "sleeper", "automator", "#!/bin/sh\necho $$ >&2\nexec sleep 1000\n", "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(self)
	agent.Env = append(os.Environ(), "COOPR_TEST_HOST="+dir)
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err == nil {
		err = agent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	spawned := 0
	for lines := bufio.NewScanner(out); (spawned == 0 || len(pids) == 0) && lines.Scan(); {
		word, number, _ := strings.Cut(lines.Text(), " ")
		pid, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(lines.Text())
		}
		if word == "spawned" {
			spawned = pid
		} else {
			pids = append(pids, pid)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "data", "run", "*.json"))
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(f), ".json"))
		if err != nil {
			t.Fatal(err)
		}
		if _, alive := startTime(pid); !alive {
			t.Errorf("process %d is remembered and not there", pid)
		}
		pids = append(pids, pid)
	}
	if len(files) != 2 {
		t.Errorf("remembered: %v", files)
	}
	_ = agent.Process.Kill()
	_ = agent.Wait()
	// The kit cannot end a child of the plugin itself. The child carries the task's marks, so the
	// next agent with the same data ends it.
	eventually(t, "the plugins' end", func() bool {
		for _, p := range pids {
			if _, alive := startTime(p); alive {
				return false
			}
		}
		return true
	})
	killTasks(map[attempt]bool{{"spawn", 7}: true})
	eventually(t, "the plugin's children's end", func() bool { _, alive := startTime(spawned); return !alive })
}

// TestKilledTasksHaveEnded checks that the processes of a task are gone once they were killed. Those of the test need a while to end, as
// their memory has to be freed.
func TestKilledTasksHaveEnded(t *testing.T) {
	var pids []int
	for range 2 {
		cmd := exec.Command("sh", "-c", `x=$(head -c 200000000 /dev/zero | tr '\0' x); echo ready; read -r y`)
		cmd.Env = append(os.Environ(), "COOPR_TASK=large", "COOPR_FENCE=8")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		pids = append(pids, cmd.Process.Pid)
	}
	killTasks(map[attempt]bool{{"large", 8}: true})
	for _, pid := range pids {
		if _, alive := startTime(pid); alive {
			t.Errorf("process %d was killed and has not ended", pid)
		}
	}
}

// TestLeftoversAreReaped checks that a process that has outlived its agent is killed by the next
// one, while an unrelated process with the same pid is not.
func TestLeftoversAreReaped(t *testing.T) {
	left := exec.Command("sleep", "1000")
	stranger := exec.Command("sleep", "1000")
	if err := errors.Join(left.Start(), stranger.Start()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	var sockets string
	h := newHost(t, func(c *Config) {
		l, err := newLeftovers(filepath.Join(c.DataDir, "run"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.makeSockets(c.SocketDir, nil); err != nil {
			t.Fatal(err)
		}
		sockets = l.sockets
		l.write(left.Process.Pid, "left")
		file := l.write(stranger.Process.Pid, "stranger")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var r pidRecord
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		r.Start--
		if b, err = json.Marshal(r); err == nil {
			err = os.WriteFile(file, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	<-ended
	if _, alive := startTime(stranger.Process.Pid); !alive {
		t.Error("a stranger was killed")
	}
	_ = stranger.Process.Kill()
	_ = stranger.Wait()
	if _, err := os.Stat(sockets); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its sockets are left: %v", err)
	}
	if n := h.Processes(); n != 0 {
		t.Errorf("%d processes are remembered", n)
	}
}

// TestBadStarts checks that a plugin that fails to start reports why, is blocked for a while, and
// is used again once it works.
func TestBadStarts(t *testing.T) {
	var start string
	h := newHost(t, func(c *Config) {
		start = strings.TrimPrefix(c.Env[0], "CHAOS_START=")
		c.Backoff, c.BreakAfter, c.StartTimeout = time.Millisecond, 3, 2*time.Second
		c.BackoffMax = 20 * time.Millisecond
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ how, says string }{
		{"garbage", "first line of its standard output must be that of the plugin kit"},
		{"exit", "ended while starting (exit status 7): no libfoo.so"},
		{"hang", "timeout while waiting"},
	} {
		if err := os.WriteFile(start, []byte(c.how), 0o600); err != nil {
			t.Fatal(err)
		}
		// The back-off of the previous case may not be over.
		eventually(t, c.how, func() bool {
			r := h.Execute(t.Context(), task(c.how, nil), nil)
			if r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE {
				t.Errorf("%s: %v", c.how, r)
			}
			return strings.Contains(r.Message, c.says)
		})
	}
	broken := false
	eventually(t, "the breaker", func() bool {
		r := h.Execute(t.Context(), task("again", nil), nil)
		broken = broken || strings.Contains(r.Message, "the next attempt to start it is in")
		return broken
	})
	if err := os.Remove(start); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a start", func() bool {
		return h.Execute(t.Context(), task("well", nil), nil).Outcome == proto.Outcome_OUTCOME_SUCCEEDED
	})
}

// TestCrashKillsChildren checks that the children of a crashed plugin's tasks are killed.
func TestCrashKillsChildren(t *testing.T) {
	h := newHost(t, nil)
	child := make(chan int, 1)
	go func() {
		pid := <-child
		killPlugins(t, h)
		child <- pid
	}()
	rec := &recorder{each: func(s string) {
		pid, _ := strconv.Atoi(s)
		child <- pid
	}}
	if r := h.Execute(t.Context(), task("spawn", map[string]any{"do": "spawn"}), rec); r.Outcome != proto.Outcome_OUTCOME_UNKNOWN {
		t.Errorf("got %v", r)
	}
	pid := <-child
	eventually(t, "the child's end", func() bool { _, alive := startTime(pid); return !alive })
}

// TestIdle checks that an unused process is closed, and that the next task starts a new one.
func TestIdle(t *testing.T) {
	h := newHost(t, func(c *Config) { c.IdleTimeout = 20 * time.Millisecond })
	for i := range 3 {
		if r := h.Execute(t.Context(), task(fmt.Sprint(i), nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
			t.Fatal(r)
		}
		eventually(t, "no process", func() bool { return h.Processes() == 0 })
	}
	h.mu.RLock()
	sup := h.plugs[typeKey{true, "chaos"}].sup
	h.mu.RUnlock()
	sup.mu.Lock()
	defer sup.mu.Unlock()
	if sup.crashes != 0 {
		t.Errorf("an idle process's end counts as %d crashes", sup.crashes)
	}
}

// TestSilentProcess checks that a frozen process is detected by its silence, long before its tasks
// time out.
func TestSilentProcess(t *testing.T) {
	h := newHost(t, func(c *Config) { c.HealthEvery = 100 * time.Millisecond })
	x := task("freeze", map[string]any{"do": "freeze"})
	x.TimeoutMs = 0
	if r := h.Execute(t.Context(), x, nil); r.Outcome != proto.Outcome_OUTCOME_UNKNOWN || !strings.Contains(r.Message, "did not respond") {
		t.Errorf("got %v", r)
	}
	// A busy process is not frozen.
	x = task("sleep", map[string]any{"do": "sleep", "for": "1s"})
	if r := h.Execute(t.Context(), x, nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("got %v", r)
	}
}

// TestNewVersion checks that after a change of the file new tasks get a new process, while the old
// process completes its own; versions never share a process.
func TestNewVersion(t *testing.T) {
	changed := make(chan struct{}, 10)
	h := newHost(t, func(c *Config) { c.OnChange = func() { changed <- struct{}{} } })
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-changed
	old := make(chan *proto.Result, 1)
	go func() {
		old <- h.Execute(t.Context(), task("old", map[string]any{"do": "sleep", "for": "2s"}), nil)
	}()
	eventually(t, "the old process", func() bool { return h.Processes() == 1 })
	sum := h.Types()[0].Checksum
	install(t, built.chaos2, filepath.Join(h.cfg.Dirs[0], "coopr-plugin-chaos"))
	eventually(t, "the new version", func() bool {
		r := h.Execute(t.Context(), task("new", nil), nil)
		if r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
			t.Error(r)
		}
		return h.Types()[0].Plugin == "2.0.0"
	})
	<-changed
	if h.Types()[0].Checksum == sum {
		t.Error("the checksum is the old one")
	}
	if r := <-old; r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("old: %v", r)
	}
	eventually(t, "the old process's end", func() bool { return h.Processes() <= 1 })
	if r := h.Execute(t.Context(), task("after", nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("after: %v", r)
	}
}

// TestChecksum checks that a file other than the configured one is never started.
func TestChecksum(t *testing.T) {
	var path string
	h := newHost(t, func(c *Config) {
		path = filepath.Join(c.Dirs[0], "coopr-plugin-chaos")
		c.Dirs, c.Plugins = nil, []Binary{{Path: path, SHA256: strings.Repeat("0", 64)}}
	})
	r := h.Execute(t.Context(), task("x", nil), nil)
	if r.Outcome != proto.Outcome_OUTCOME_NOTHING_DONE || !strings.Contains(r.Message, strings.Repeat("0", 64)+" is configured") {
		t.Errorf("got %v", r)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sum, err := hashFile(f)
	if err != nil {
		t.Fatal(err)
	}
	right := newHost(t, func(c *Config) {
		c.Dirs, c.Plugins = nil, []Binary{{Path: path, SHA256: strings.ToUpper(sum)}}
	})
	if r := right.Execute(t.Context(), task("x", nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("got %v", r)
	}
}

// TestCache checks that the second agent knows the types without starting a plugin.
func TestCache(t *testing.T) {
	var cfg Config
	first := newHost(t, func(c *Config) { cfg = *c })
	if err := first.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// A plugin that cannot start proves that none is started.
	if err := os.WriteFile(strings.TrimPrefix(cfg.Env[0], "CHAOS_START="), []byte("exit"), 0o600); err != nil {
		t.Fatal(err)
	}
	second, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if types := second.Types(); len(types) != 2 {
		t.Errorf("types: %v", types)
	}
	if err := second.Faults(); err != nil {
		t.Error(err)
	}
}

func TestValidateAndList(t *testing.T) {
	dir := t.TempDir()
	h := newHost(t, func(c *Config) { chaosIn(c, dir) })
	for _, kind := range []model.Kind{model.KindProviderType, model.KindAutomatorType} {
		faults, err := h.Validate(t.Context(), kind, "chaos", "admin", map[string]any{"text": "bad", "mode": "furious"})
		if err != nil || len(faults) != 2 {
			t.Errorf("%s: %v %v", kind, faults, err)
		}
	}
	for i := range 600 { // more than a page
		x := task(fmt.Sprint(i), nil)
		x.Automator, x.Action, x.Cluster, x.Node = false, "CREATE", fmt.Sprint("c", i%2), fmt.Sprint(i)
		x.Input = nil
		if r := h.Execute(t.Context(), x, nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
			t.Fatal(r)
		}
	}
	for cluster, want := range map[string]int{"": 600, "c1": 300, "none": 0} {
		n := 0
		err := h.List(t.Context(), "chaos", &proto.ListRequest{Cluster: cluster}, func(*proto.Resource) error { n++; return nil })
		if err != nil || n != want {
			t.Errorf("cluster %q: %d of %d, %v", cluster, n, want, err)
		}
	}
	// An attempt whose end is unknown finds its node by List.
	x := task("3", nil)
	x.Automator, x.Action, x.Cluster, x.Node, x.Observe, x.Input = false, "CREATE", "c1", "3", true, nil
	if r := h.Execute(t.Context(), x, nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || !r.Adopted {
		t.Errorf("observe: %v", r)
	}
	if err := h.List(t.Context(), "nothing", &proto.ListRequest{}, nil); err == nil {
		t.Error("a type that is not there was listed")
	}
	// The calls are counted, but those of automators, and of what no plugin offers.
	x.Action = "BREW"
	h.Execute(t.Context(), x, nil)
	h.Execute(t.Context(), task("automator", nil), nil)
	failed := errors.New("enough")
	if err := h.List(t.Context(), "chaos", &proto.ListRequest{}, func(*proto.Resource) error { return failed }); err == nil {
		t.Error("the listing did not fail")
	}
	if _, err := h.Validate(t.Context(), model.KindProviderType, "chaos", "admin", nil); err != nil {
		t.Error(err)
	}
	if err := h.Remove(t.Context(), "chaos", &proto.RemoveRequest{Resource: &proto.Resource{Id: "5"}}); err == nil {
		t.Error("the plugin has removed a machine, which it cannot")
	}
	got, other := map[string]int64{}, int64(0)
	for c, n := range h.Stats().Calls {
		if n.Time <= 0 || c.Provider != "chaos" {
			t.Errorf("%+v: %+v", c, n)
		}
		switch c.Operation {
		case callOther:
			other += n.Count
		default:
			got[c.Operation+" "+c.Outcome] = n.Count
		}
	}
	if want := map[string]int64{"CREATE succeeded": 601, "LIST succeeded": 3, "LIST failed": 1, "VALIDATE succeeded": 2,
		"REMOVE failed": 1}; other != 1 || !maps.Equal(got, want) {
		t.Errorf("the calls are %v, and %d of unknown actions", got, other)
	}
}

// writeExec writes an "exec" plugin: a descriptor and its command.
func writeExec(t testing.TB, dir, name, kind, script, more string) {
	t.Helper()
	file := filepath.Join(dir, name+".run")
	desc := fmt.Sprintf("name: %s\nkind: %s\nplugin: 1.0.0\nprotocol: exec\ncommand: [./%s.run]\n%s", name, kind, name, more)
	err := errors.Join(os.WriteFile(file, []byte(script), 0o755),
		os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(desc), fs.FileMode(0o644)))
	if err != nil {
		t.Fatal(err)
	}
}
