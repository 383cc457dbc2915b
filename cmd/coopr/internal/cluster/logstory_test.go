package cluster_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

// logged returns a session with a cluster whose tasks have ended, and have logs: a line of each task, whose times are in another order than
// the tasks.
func logged(t *testing.T) *clitest.Session {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Exec("cluster", "create", "web", "-t", "shop", "-n", "2", "--detach")
	s.Mesh.Finish("00000001-001")
	tasks := s.Mesh.Tasks("00000001-001")
	for i, task := range tasks {
		begun := time.UnixMilli(task.Attempts[0].Leased).UTC()
		stamp := begun.Add(time.Duration(len(tasks)-i) * time.Second).Format("15:04:05.000")
		s.Mesh.Log(task.ID, stamp+"   "+task.Action.String()+" says hello\n"+stamp+" ! and more\n")
	}
	return s
}

var stamp = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z`)

// shown returns the lines of a command without their times, which must be in order.
func shown(t *testing.T, s *clitest.Session, args ...string) string {
	t.Helper()
	code, out, errs := s.Exec(args...)
	if code != 0 || errs != "" {
		t.Fatalf("%v: %d %s", args, code, errs)
	}
	times := stamp.FindAllString(out, -1)
	for i := range times {
		if i > 0 && times[i] < times[i-1] {
			t.Errorf("%v: %s comes after %s", args, times[i], times[i-1])
		}
	}
	if len(times) != strings.Count(out, "\n") {
		t.Errorf("%v: lines without a time:\n%s", args, out)
	}
	return stamp.ReplaceAllString(out, "")
}

func TestLogs(t *testing.T) {
	s := logged(t)
	all := shown(t, s, "cluster", "logs", "web")
	tasks := s.Mesh.Tasks("00000001-001")
	if strings.Count(all, "\n") != 2*len(tasks) || !strings.Contains(all, " web1-1000 - CREATE | CREATE says hello\n") ||
		!strings.Contains(all, " web1-1001 nginx START ! and more\n") {
		t.Errorf("%d tasks, and:\n%s", len(tasks), all)
	}
	lines := strings.SplitAfter(all, "\n")
	if last := shown(t, s, "cluster", "logs", "web", "--tail", "3"); last != strings.Join(lines[len(lines)-4:], "") {
		t.Errorf("the last three are %q", last)
	}
	if none := shown(t, s, "cluster", "logs", "web", "--tail", "0"); none != "" {
		t.Errorf("--tail 0 shows %q", none)
	}
	nginx := shown(t, s, "cluster", "logs", "web", "nginx")
	if strings.Count(nginx, " nginx ") != strings.Count(nginx, "\n") || strings.Count(nginx, "\n") != strings.Count(all, " nginx ") {
		t.Errorf("with a service:\n%s", nginx)
	}
	_, out, _ := s.Exec("cluster", "logs", "web", "php", "--tail", "1", "-o", "json")
	var line struct {
		Time                        time.Time
		Node, Service, Action, Text string
		Stderr                      bool
	}
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.Service != "php" || line.Text != "and more" || !line.Stderr ||
		line.Time.IsZero() || line.Node == "" || line.Action == "" {
		t.Errorf("%v: %s", err, out)
	}
	for args, want := range map[string]string{"web nginks": "error: cluster web has no service \"nginks\"\nThere are: nginx, php\n",
		"wep": "There is: web\n"} {
		code, _, errs := s.Exec(append([]string{"cluster", "logs"}, strings.Fields(args)...)...)
		if code != root.ExitNotFound || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", args, code, errs)
		}
	}
	if _, out, _ := s.Exec("__complete", "cluster", "logs", "web", "n"); !strings.HasPrefix(out, "nginx\n") {
		t.Errorf("a service completes to %s", out)
	}
}

// TestLogsSince shows only young lines. The present time of the session is an hour after the mesh began.
func TestLogsSince(t *testing.T) {
	s := logged(t)
	all := strings.SplitAfter(shown(t, s, "cluster", "logs", "web"), "\n")
	_, out, _ := s.Exec("cluster", "logs", "web", "-o", "json")
	now := time.UnixMilli(apitest.Epoch).Add(time.Hour)
	for _, first := range []int{0, 4, 10} {
		var line struct{ Time time.Time }
		if err := json.Unmarshal([]byte(strings.Split(out, "\n")[first]), &line); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, s, "cluster", "logs", "web", "--since", now.Sub(line.Time).String()); got != strings.Join(all[first:], "") {
			t.Errorf("since %v:\n%s\nof\n%s", line.Time, got, out)
		}
	}
	if got := shown(t, s, "cluster", "logs", "web", "--since", "1ns"); got != "" {
		t.Errorf("since now: %s", got)
	}
}

// TestLogsFollowed follows a cluster from before its first task until Ctrl-C, and another one until it is deleted.
func TestLogsFollowed(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Exec("cluster", "create", "web", "-t", "shop", "-n", "1", "--detach")
	tasks := s.Mesh.Tasks("00000001-001")
	s.Mesh.Log("00000001-001/0", "it begins\n")
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	more := sync.OnceFunc(func() { s.Mesh.Log("00000001-001/0", "it goes on\nand") })
	work := sync.OnceFunc(func() {
		s.Mesh.Work("00000001-001", func(task model.Task) string {
			s.Mesh.Log(task.ID, " on\nof "+task.ID+" the end\n")
			return ""
		})
	})
	last := "of " + tasks[len(tasks)-1].ID + " the end\n"
	var running sync.WaitGroup
	defer running.Wait()
	seen := func(all string) {
		switch {
		case strings.Contains(all, last) && strings.Contains(all, "| and on\n"): // the logs of tasks come in no order
			stop(cli.ErrInterrupted)
		case strings.Contains(all, "it goes on"):
			running.Go(work)
		case strings.Contains(all, "it begins"):
			running.Go(more)
		}
	}
	s.Ctx = ctx
	code, out, errs := s.ExecSeen(seen, "cluster", "logs", "web", "-f")
	s.Ctx = context.Background()
	if code != root.ExitInterrupted || errs != "" {
		t.Errorf("after Ctrl-C: %d %s", code, errs)
	}
	for _, text := range []string{"| it begins\n", "| it goes on\n", "| and on\n", last} {
		if strings.Count(out, text) != 1 {
			t.Errorf("not once: %q in\n%s", text, out)
		}
	}
	s.Work(nil)
	remove := sync.OnceFunc(func() { s.Exec("cluster", "delete", "web", "--yes", "--detach") })
	code, out, errs = s.ExecSeen(func(string) { running.Go(remove) }, "cluster", "logs", "web", "--follow", "--tail", "1")
	if code != 0 || strings.Count(out, "\n") != 1 || errs != "" {
		t.Errorf("of a deleted cluster: %d %s%s", code, out, errs)
	}
	if code, again, errs := s.Exec("cluster", "logs", "00000001", "--follow", "--tail", "1"); code != 0 || !strings.HasSuffix(again, last) {
		t.Errorf("after that: %d %s%s", code, again, errs)
	}
}

// TestLogsMissing looks at logs whose agent cannot be reached, or breaks off each of them. The output that is missing is named.
func TestLogsMissing(t *testing.T) {
	s := logged(t)
	all := shown(t, s, "cluster", "logs", "web")
	tasks := s.Mesh.Tasks("00000001-001")
	s.Mesh.Break(0)
	const why = "is missing, except for its last lines if they follow: "
	none := shown(t, s, "cluster", "logs", "web")
	if strings.Count(none, "\n") != len(tasks) ||
		strings.Count(none, " ? the output "+why+"agent a, which has it, cannot be reached\n") != len(tasks) {
		t.Errorf("without the agent of %d tasks:\n%s", len(tasks), none)
	}
	_, out, _ := s.Exec("cluster", "logs", "web", "--tail", "1", "-o", "json")
	var line struct {
		Missing    bool
		Node, Text string
	}
	if err := json.Unmarshal([]byte(out), &line); err != nil || !line.Missing || line.Node == "" || !strings.Contains(line.Text, "agent a") {
		t.Errorf("%v: %s", err, out)
	}
	if code, out, errs := s.Exec("task", "log", "00000001-001/0"); code != 0 || out != "" || !strings.Contains(errs, "agent a, which has it") {
		t.Errorf("log of a task: %d %q %q", code, out, errs)
	}
	s.Mesh.Break(len("15:04:05.000   CREATE says hello\n") + 3)
	part := shown(t, s, "cluster", "logs", "web")
	if strings.Count(part, " ? the ") != len(tasks) || strings.Count(part, " CREATE | CREATE says hello\n") != 2 ||
		strings.Count(part, " CREATE ? the rest of the output "+why) != 2 || strings.Contains(part, " CREATE !") {
		t.Errorf("broken off:\n%s", part)
	}
	s.Mesh.Reconnect()
	if again := shown(t, s, "cluster", "logs", "web"); again != all {
		t.Errorf("with the agent:\n%s\nnot\n%s", again, all)
	}
}

// TestLogsOfLostAgent follows a task whose agent is lost. The task fails later, and the state keeps the end of its log: lines of that are
// not counted as those of the agent.
func TestLogsOfLostAgent(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Exec("cluster", "create", "web", "-t", "shop", "-n", "1", "--detach")
	s.Mesh.Log("00000001-001/0", "00:00:00.000   one\n00:00:00.000   two\n00:00:00.000   three\n")
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	lose := sync.OnceFunc(func() {
		s.Mesh.Log("00000001-001/0", "00:00:00.000   four\n00:00:00.000   five\n")
		s.Mesh.Break(0)
		s.Mesh.Report("00000001-001/0", model.TaskFailed, "oh no")
	})
	var running sync.WaitGroup
	s.Ctx = ctx
	_, out, errs := s.ExecSeen(func(all string) {
		switch {
		case strings.Contains(all, "| five\n"):
			stop(cli.ErrInterrupted)
		case strings.Contains(all, "| three\n"):
			running.Go(lose)
		}
	}, "cluster", "logs", "web", "-f")
	running.Wait()
	s.Ctx = context.Background()
	at := strings.Index(out, " ? the rest of the output is missing")
	if errs != "" || at < 0 || !strings.Contains(out[at:], "| four\n") || !strings.Contains(out[at:], "| five\n") ||
		strings.Count(out, "? ") != 1 {
		t.Errorf("%s%s", out, errs)
	}
}
