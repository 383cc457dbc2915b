package cluster_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

func TestClusterStory(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Run(0, "cluster", "list")
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--dry-run", "--set", "nginx.workers=8", "--set", "a.b=[x, y]")
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach", "--description", "The shop")
	s.Run(0, "cluster", "list")
	s.Run(4, "cluster", "restart", "web")
	s.Run(0, "operation", "pause", "00000001-001", "--reason", "lunch")
	s.Run(0, "operation", "get", "00000001-001")
	s.Run(0, "operation", "resume", "00000001-001")
	s.Work(nil)
	s.Run(0, "operation", "watch", "00000001-001")
	s.Run(0, "cluster", "get", "web")
	s.Run(0, "cluster", "list", "-o", "wide")
	s.Run(0, "cluster", "restart", "web", "nginx")
	s.Run(0, "cluster", "configure", "web", "--set", "nginx.workers=9")
	s.Run(0, "cluster", "watch", "web")
	s.Run(3, "cluster", "stop", "web", "nginks")
	s.Run(0, "node", "list", "--cluster", "web", "-o", "wide")
	s.Run(0, "node", "get", "00000001-1000")
	s.Run(0, "task", "list", "00000001-001", "--limit", "3")
	s.Mesh.Log("00000001-001/0", "made a machine\n")
	s.Run(0, "task", "get", "00000001-001/0")
	s.Run(0, "task", "log", "00000001-001/0")
	s.Run(0, "operation", "list")
	s.Run(0, "events", "--index", "14", "--limit", "3")
	s.Run(2, "cluster", "delete", "web")
	s.Run(0, "cluster", "delete", "web", "--yes")
	s.Run(0, "cluster", "list", "--status", "active")
	s.Run(1, "cluster", "list", "--status", "actve")
	s.Golden("cluster")
}

func TestFailureStory(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Work(map[string]string{"INSTALL php": "exit status 1: no such package"})
	s.Run(1, "cluster", "create", "web", "-t", "shop", "-n", "1", "--on-failure", "leave", "--yes")
	for _, task := range s.Mesh.Tasks("00000001-001") {
		if task.Status == model.TaskFailed {
			s.Mesh.Log(task.ID, "E: no such package\n")
		}
	}
	s.Run(0, "operation", "log", "00000001-001", "--status", "failed")
	s.Run(0, "task", "list", "00000001-001", "--status", "failed", "-o", "wide")
	s.Run(1, "cluster", "watch", "web")
	s.Run(0, "cluster", "list", "--unhealthy")
	if code, out, errs := s.Exec("status"); code != root.ExitUnwell || !strings.Contains(out, "1, 1 ill; see coopr cluster list --unhealthy") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	s.Golden("failure")
}

func TestStructuredOutputIsAlone(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Work(nil)
	code, out, errs := s.Exec("cluster", "create", "web", "-t", "shop", "-n", "1", "-o", "json")
	var got struct {
		Operation api.OperationDetails
		Cluster   api.ClusterDetails
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Cluster.Status != model.ClusterActive ||
		got.Operation.Status != model.OpSucceeded {
		t.Errorf("%d %v\n%s\n%s", code, err, out, errs)
	}
	if !strings.Contains(errs, "CREATE") {
		t.Errorf("no progress: %s", errs)
	}
}

func TestCtrlCLeavesTheOperation(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.Ctx = ctx
	code, out, errs := s.ExecSeen(func(all string) {
		if strings.Contains(all, "running") {
			cancel(cli.ErrInterrupted)
		}
	}, "cluster", "create", "web", "-t", "shop", "-n", "1", "--yes")
	if code != root.ExitInterrupted || !strings.Contains(errs, "coopr operation watch 00000001-001") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	s.Ctx = context.Background()
	v, _ := s.Mesh.View(s.Ctx, api.Stale, 0)
	if op, ok := v.Operation("acme", "00000001-001"); !ok || op.Status != model.OpRunning {
		t.Error("the operation does not continue")
	}
}

func TestOnATerminal(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Terminal = true
	s.Stdin = "n\n"
	code, out, _ := s.Exec("cluster", "create", "web", "-t", "shop", "-n", "1")
	if code != 1 || !strings.Contains(out, "Create cluster web? [y/N]") || len(s.Mesh.Tasks("00000001-001")) != 0 {
		t.Errorf("%d %s", code, out)
	}
	s.Stdin = "y\n"
	begin := sync.OnceFunc(func() { s.Work(nil) })
	code, out, errs := s.ExecSeen(func(all string) {
		if strings.Contains(all, "░") {
			begin() // once the bars are drawn for the first time
		}
	}, "cluster", "create", "web", "-t", "shop", "-n", "1")
	if code != 0 || !strings.Contains(out, "█") || !strings.Contains(out, "\x1b[") || !strings.Contains(out, "A\x1b[J") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	s.Env["NO_COLOR"] = "1"
	if _, out, _ := s.Exec("cluster", "list"); strings.Contains(out, "\x1b[") {
		t.Errorf("colour against NO_COLOR: %q", out)
	}
	delete(s.Env, "NO_COLOR")
	if _, out, _ := s.Exec("cluster", "list"); !strings.Contains(out, "\x1b[32mactive") {
		t.Errorf("no colour: %q", out)
	}
	s.Terminal = false
	if _, out, _ := s.Exec("cluster", "list"); strings.Contains(out, "\x1b[") {
		t.Errorf("colour without a terminal: %q", out)
	}
}
