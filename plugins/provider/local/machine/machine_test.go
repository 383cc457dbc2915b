package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets this test binary act as coopr-node, because a supervisor is started from the
// program's own file.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// box is a node's folder with its command.
type box struct {
	t   *testing.T
	dir string
}

func newBox(t *testing.T) *box {
	// A path that is far too long for a socket.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 20), strings.Repeat("path", 20))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := &box{t, dir}
	t.Cleanup(func() {
		if err := Shutdown(context.Background(), dir, 100*time.Millisecond); err != nil {
			t.Error(err)
		}
	})
	return b
}

// run runs coopr-node as a script would.
func (b *box) run(args ...string) (string, int) {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(self)
	cmd.Args = append([]string{programName}, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), NodeDirVar + "=" + b.dir, "COOPR_TASK=t1", "COOPR_FENCE=7", "BASE=base"}
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	return out.String(), cmd.ProcessState.ExitCode()
}

func (b *box) ok(args ...string) string {
	b.t.Helper()
	out, code := b.run(args...)
	if code != 0 {
		b.t.Fatalf("%v: exit status %d\n%s", args, code, out)
	}
	return out
}

func (b *box) status(name string) Status {
	b.t.Helper()
	out, _ := b.run("status", name, "--json")
	var list []Status
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		b.t.Fatalf("%s: %v", out, err)
	}
	if len(list) == 0 {
		return Status{}
	}
	return list[0]
}

func (b *box) eventually(what string, cond func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(b.dir, superLog))
			b.t.Fatalf("not within a minute: %s\n%s", what, log)
		}
	}
}

// TestRestartOfASlowProcess restarts the only process of a node, which takes longer to end than a
// supervisor without processes waits for requests.
func TestRestartOfASlowProcess(t *testing.T) {
	b := newBox(t)
	b.ok("start", "web", "--", "sh", "-c", `trap 'sleep 1; exit 0' TERM; echo ready; while :; do sleep 0.05; done`)
	b.eventually("the log", func() bool {
		out, _ := b.run("logs", "web")
		return strings.Contains(out, "ready")
	})
	first := b.status("web")
	b.ok("restart", "web")
	if s := b.status("web"); s.PID == first.PID || s.State != "running" {
		t.Errorf("restart: %+v", s)
	}
}

func TestStartStop(t *testing.T) {
	b := newBox(t)
	if _, code := b.run("status", "web"); code != exitNotRunning {
		t.Errorf("before: %d", code)
	}
	b.ok("stop", "web") // nothing to do
	b.ok("start", "web", "--env", "A=1", "--env=B=2", "--", "sh", "-c", `echo "$A$B $BASE $COOPR_TASK$COOPR_FENCE. $PWD"; exec sleep 1000`)
	first := b.status("web")
	if first.State != "running" || first.PID == 0 {
		t.Fatalf("%+v", first)
	}
	b.eventually("the log", func() bool {
		out, _ := b.run("logs", "web")
		return out == "12 base . "+b.dir+"\n"
	})
	b.ok("start", "web", "--env", "A=1", "--env=B=2", "--", "sh", "-c", `echo "$A$B $BASE $COOPR_TASK$COOPR_FENCE. $PWD"; exec sleep 1000`)
	if s := b.status("web"); s.PID != first.PID {
		t.Errorf("the same again: %+v", s)
	}
	b.ok("start", "own", "--env", "BASE", "--", "sh", "-c", `echo "$BASE"; exec sleep 1000`)
	b.eventually("the log", func() bool { out, _ := b.run("logs", "own"); return out == "base\n" })
	b.ok("stop", "own")
	b.ok("start", "web", "--", "sleep", "1001")
	second := b.status("web")
	if second.PID == first.PID || second.State != "running" {
		t.Errorf("another command: %+v", second)
	}
	b.ok("restart", "web")
	if s := b.status("web"); s.PID == second.PID || s.State != "running" {
		t.Errorf("restart: %+v", s)
	}
	b.ok("stop", "web")
	if s := b.status("web"); s.State == "running" {
		t.Errorf("stopped: %+v", s)
	}
	b.eventually("the supervisor's end", func() bool { return len(Processes(b.dir)) == 0 })
	if out, code := b.run("restart", "web"); code != exitFailed || !strings.Contains(out, "use coopr-node start") {
		t.Errorf("restart of nothing: %d %s", code, out)
	}
}

func TestRestartsAfterCrash(t *testing.T) {
	b := newBox(t)
	b.ok("start", "bad", "--", "sh", "-c", "echo crash; exit 3")
	b.eventually("restarts", func() bool { return b.status("bad").Restarts >= 2 })
	if s := b.status("bad"); s.Last != "exit status 3" {
		t.Errorf("%+v", s)
	}
	b.ok("stop", "bad")
	// A process that ends successfully is not restarted, unless its restart policy is always.
	b.ok("start", "once", "--", "true")
	b.eventually("its end", func() bool { return b.status("once").State == "exited" })
	b.ok("start", "always", "--restart", "always", "--", "true")
	b.eventually("restarts", func() bool { return b.status("always").Restarts >= 1 })
	b.ok("start", "never", "--restart=never", "--", "false")
	b.eventually("its end", func() bool { return b.status("never").State == "stopped" })
	if out, code := b.run("start", "nothing", "--", "no-such-command"); code != exitFailed || !strings.Contains(out, "no-such-command") {
		t.Errorf("%d %s", code, out)
	}
}

// TestShutdownTakesAll checks that processes that ignore TERM, daemons that left their group and
// session, and orphans without our variables all end.
func TestShutdownTakesAll(t *testing.T) {
	b := newBox(t)
	b.ok("start", "deaf", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
	b.ok("start", "daemons", "--", "sh", "-c", "cd /; setsid sleep 1000 & (env -i setsid sleep 1000 &) & sleep 1000")
	var pids []int
	b.eventually("all processes", func() bool { pids = Processes(b.dir); return len(pids) >= 7 })
	if err := Shutdown(t.Context(), b.dir, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if _, _, alive := stat(pid); alive {
			t.Errorf("process %d is left", pid)
		}
	}
	if err := Shutdown(t.Context(), b.dir, time.Second); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestSupervisorKilled checks that processes die with their supervisor, and that the next
// supervisor restarts them.
func TestSupervisorKilled(t *testing.T) {
	b := newBox(t)
	b.ok("start", "web", "--", "sh", "-c", "sleep 1000 & sleep 1000")
	web := b.status("web").PID
	super, _, _ := stat(web)
	if err := syscall.Kill(super, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.eventually("the process's end", func() bool { _, _, alive := stat(web); return !alive })
	b.ok("start", "other", "--", "sleep", "1000")
	b.eventually("web again", func() bool { return b.status("web").State == "running" })
	b.eventually("no more than needed", func() bool { return len(Processes(b.dir)) == 5 }) // supervisor, other, web and its two
}

// TestLogIsBounded checks that a process that writes for ever does not fill the disk.
func TestLogIsBounded(t *testing.T) {
	b := newBox(t)
	b.ok("start", "loud", "--", "sh", "-c", "yes 'a line of forty characters, more or less' | head -c 5000000; echo; echo end; sleep 1000")
	b.eventually("the end", func() bool {
		out, _ := b.run("logs", "loud")
		return strings.HasSuffix(out, "\nend\n")
	})
	var total int64
	for _, s := range []string{".log", ".log.1"} {
		fi, err := os.Stat(filepath.Join(b.dir, logsDir, "loud"+s))
		if err != nil {
			t.Fatal(err)
		}
		total += fi.Size()
	}
	if total > 2*maxLog+64<<10 {
		t.Errorf("%d bytes", total)
	}
}

// TestManyStartAtOnce checks that any number of concurrent scripts starts one supervisor.
func TestManyStartAtOnce(t *testing.T) {
	b := newBox(t)
	done := make(chan string, 20)
	for i := range cap(done) {
		go func() {
			out, code := b.run("start", fmt.Sprint("p", i), "--", "sleep", "1000")
			if code != 0 {
				done <- out
				return
			}
			done <- ""
		}()
	}
	for range cap(done) {
		if out := <-done; out != "" {
			t.Error(out)
		}
	}
	b.eventually("one supervisor and its processes", func() bool { return len(Processes(b.dir)) == cap(done)+1 })
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"start"}, {"start", "a b", "--", "x"}, {"start", "x"}, {"start", "x", "--env", "novalue", "--", "y"},
		{"start", "x", "--env"},
		{"start", "x", "--restart", "maybe", "--", "y"}, {"start", "x", "--what=ever", "--", "y"}, {"stop", "x", "--grace", "soon"},
		{"dance", "x"}, {"config"}} {
		t.Setenv(NodeDirVar, t.TempDir())
		if code := Main(args, io.Discard, io.Discard); code != exitUsage {
			t.Errorf("%v: %d", args, code)
		}
	}
	if code := Main([]string{"help"}, io.Discard, io.Discard); code != exitOK {
		t.Error(code)
	}
}

func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte(`{"cluster":{"a":{"b.c":{"d":"deep"},"b":{"c":3},"n":12345678901234567890,"l":["<x>"]},"t":true}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COOPR_CONFIG", file)
	for path, want := range map[string]string{"a.b.c.d": "deep", "a.b.c": `{"d":"deep"}`, "a.n": "12345678901234567890", "a.l": `["<x>"]`,
		"t": "true", "none": "?", "a.b.x": "?"} {
		var out bytes.Buffer
		if code := Main([]string{"config", path, "?"}, &out, io.Discard); code != exitOK || strings.TrimSpace(out.String()) != want {
			t.Errorf("%s: %d %s", path, code, out.String())
		}
	}
	if code := Main([]string{"config", "none"}, io.Discard, io.Discard); code != exitFailed {
		t.Error(code)
	}
}
