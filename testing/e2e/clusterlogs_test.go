package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// output is what a program writes while it runs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// following is a command that runs until it is told to end.
type following struct {
	m         *mesh
	cmd       *exec.Cmd
	out, errs output
}

// follow starts a command that asks these agents, beginning with the first.
func (m *mesh) follow(agents []*agent, args ...string) *following {
	m.t.Helper()
	var addrs []string
	for _, a := range agents {
		addrs = append(addrs, a.addr(httpPort))
	}
	f := &following{m: m, cmd: exec.CommandContext(m.t.Context(), filepath.Join(bin, "coopr"), args...)}
	f.cmd.Dir, f.cmd.Stdout, f.cmd.Stderr = m.dir, &f.out, &f.errs
	f.cmd.Env = append(m.env(), "COOPR_ADDR="+strings.Join(addrs, ","), "COOPR_TOKEN="+m.token)
	if err := f.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = f.cmd.Wait() }) // of a test that has failed
	return f
}

// ends waits for the end of the command, which must have this exit code and no error output.
func (f *following) ends(code int) {
	f.m.t.Helper()
	_ = f.cmd.Wait() // its exit code says it
	if got := f.cmd.ProcessState.ExitCode(); got != code || f.errs.String() != "" {
		f.m.t.Errorf("%v ended with %d, not %d: %s", f.cmd.Args[1:], got, code, f.errs.String())
	}
}

// TestClusterLogs follows the logs of a cluster while it is made, while the agent is killed that leads and that is asked, and until the
// cluster is deleted. Every line comes once.
func TestClusterLogs(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", 6)
	leader := m.leader()
	agents := []*agent{leader}
	for _, a := range m.agents {
		if a != leader {
			agents = append(agents, a)
		}
	}
	all := m.follow(agents, "cluster", "logs", "c", "-f", "-o", "json")
	base := m.follow(agents, "cluster", "logs", "c", "base", "--follow")
	m.await("lines of the first tasks", func() error {
		if !strings.Contains(all.out.String(), "is done on") || !strings.Contains(base.out.String(), "is done on") {
			return errNotYet
		}
		return nil
	})
	m.half(op.ID, .4)
	leader.kill()
	m.succeeds(op.ID, agents[1:]...)
	tasks := m.tasks(op.ID)
	// The work of an attempt on the killed agent is not done again: only its output, which is lost, has the line.
	lost := func(x model.TaskAttempt) bool { return x.Agent == leader.name }
	expected := func(service string) (texts []string) {
		for _, task := range tasks {
			if task.Service != "" && !slices.ContainsFunc(task.Attempts, lost) && (service == "" || task.Service == service) {
				texts = append(texts, task.Service+" "+task.Action.String()+" is done on "+task.Hostname)
			}
		}
		return texts
	}
	for f, service := range map[*following]string{all: "", base: "base"} {
		texts := expected(service)
		if len(texts) == 0 {
			t.Fatal("the killed agent ran all tasks")
		}
		m.await("the lines of all tasks of other agents", func() error {
			for _, text := range texts {
				if !strings.Contains(f.out.String(), text) {
					return errNotYet
				}
			}
			return nil
		})
	}
	if err := base.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	base.ends(130)
	for line := range strings.Lines(base.out.String()) {
		if !strings.Contains(line, " base ") {
			t.Errorf("%q is of another service", line)
		}
	}
	leader.start()
	m.ready()
	m.remove(op.Cluster)
	all.ends(0)
	seen := map[string]int{}
	for line := range strings.Lines(all.out.String()) {
		var l struct {
			Time                              time.Time
			Node, Service, Action, Task, Text string
			Attempt                           int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Task == "" || l.Node == "" || l.Action == "" || l.Attempt == 0 ||
			time.Since(l.Time).Abs() > time.Hour {
			t.Errorf("%v: %q", err, line)
		}
		if l.Service != "" {
			seen[l.Task+" "+l.Text]++
		}
	}
	for line, n := range seen {
		if n > 1 && !retried(tasks, line) {
			t.Errorf("%d times: %q", n, line)
		}
	}
	// All agents are there again, and so are all logs.
	past := m.must("cluster", "logs", op.Cluster)
	for _, text := range expected("") {
		text, _, _ = strings.Cut(text, ".") // nodes of a deleted cluster have no domain
		if !strings.Contains(past, text) {
			t.Errorf("%q is not in\n%s", text, past)
		}
	}
	m.stop()
}

// retried reports whether a line is of a task that had several attempts.
func retried(tasks []model.Task, line string) bool {
	for _, task := range tasks {
		if strings.HasPrefix(line, task.ID+" ") {
			return len(task.Attempts) > 1
		}
	}
	return false
}
