package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

func TestDefinitionsStory(t *testing.T) {
	s := newSession(t)
	s.files()
	s.run(0, "template", "list")
	s.run(0, "import", "defs", "--check")
	s.run(0, "import", "defs")
	s.run(0, "template", "list")
	s.run(0, "service", "list", "-o", "wide")
	s.run(0, "provider", "get", "cloud")
	s.run(0, "template", "get", "shop", "-o", "json")
	s.file("new.yaml", "name: php\ndescription: Another language\n")
	s.run(0, "service", "put", "new.yaml")
	s.stdin = `{"name":"php","label":"PHP"}`
	s.run(0, "service", "put", "-")
	s.run(0, "service", "versions", "php")
	s.run(0, "service", "get", "php", "--version", "1")
	s.run(3, "service", "get", "phq")
	s.run(2, "service", "delete", "php")
	s.run(0, "service", "delete", "php", "--version", "1", "--yes")
	s.run(0, "service", "delete", "php", "-y")
	s.run(3, "service", "delete", "php", "-y")
	s.run(0, "export", "--dir", "out")
	s.run(0, "export")
	s.golden("definitions")

	if got, err := os.ReadFile("out/providers/cloud.yaml"); err != nil || !strings.Contains(string(got), `pin: "1234"`) {
		t.Errorf("%s %v", got, err)
	}
	if info, err := os.Stat("out/providers/cloud.yaml"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	// What was exported is imported as it is.
	if code, _, errs := s.exec("import", "out"); code != 0 {
		t.Errorf("%s", errs)
	}
}

func TestFaultsStory(t *testing.T) {
	s := newSession(t)
	s.file("bad/services/one.json", "{\"name\": \"a b\",\n \"descripton\": \"x\"}")
	s.file("bad/services/two.yaml", "name: two\nprovisioner: [")
	s.file("bad/clustertemplates/shop.yaml", "name: shop\ndefaults:\n  services: nginx\n")
	s.run(1, "import", "bad")
	s.run(1, "import", "nowhere")
	s.file("empty/x.txt", "")
	s.run(1, "import", "empty")
	s.run(2, "import")
	s.run(1, "service", "put", "bad/services/one.json")
	s.run(1, "cluster", "create", "a b", "--template", "shop", "--nodes", "10001")
	s.run(3, "cluster", "create", "x", "--template", "shop", "--nodes", "1")
	s.run(2, "cluster", "create", "x", "--nodes", "1")
	s.run(2, "cluster", "create", "--template", "shop")
	s.run(2, "cluster", "create", "x", "-t", "shop", "-n", "many")
	s.run(2, "cluster", "create", "x", "-t", "shop", "-n", "1", "--set", "novalue")
	s.run(2, "cluster", "lst")
	s.run(2, "clutser")
	s.run(2, "cluster", "list", "-o", "xml")
	s.run(2, "cluster", "get", "a", "b")
	s.run(3, "operation", "watch", "nothing")
	s.as("guess")
	s.run(1, "cluster", "list")
	s.as(apitest.Guest)
	s.run(1, "service", "delete", "x", "--yes")
	s.env["COOPR_TENANT"] = "main"
	s.run(1, "cluster", "list")
	delete(s.env, "COOPR_TENANT")
	s.run(5, "--addr", "127.0.0.1:1", "cluster", "list")
	s.run(1, "--addr", "no address", "cluster", "list")
	s.golden("faults")
}

func TestClusterStory(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.run(0, "cluster", "list")
	s.run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--dry-run", "--set", "nginx.workers=8", "--set", "a.b=[x, y]")
	s.run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach", "--description", "The shop")
	s.run(0, "cluster", "list")
	s.run(4, "cluster", "restart", "web")
	s.run(0, "operation", "pause", "00000001-001", "--reason", "lunch")
	s.run(0, "operation", "get", "00000001-001")
	s.run(0, "operation", "resume", "00000001-001")
	s.work(nil)
	s.run(0, "operation", "watch", "00000001-001")
	s.run(0, "cluster", "get", "web")
	s.run(0, "cluster", "list", "-o", "wide")
	s.run(0, "cluster", "restart", "web", "nginx")
	s.run(0, "cluster", "configure", "web", "--set", "nginx.workers=9")
	s.run(0, "cluster", "watch", "web")
	s.run(3, "cluster", "stop", "web", "nginks")
	s.run(0, "node", "list", "--cluster", "web", "-o", "wide")
	s.run(0, "node", "get", "00000001-1000")
	s.run(0, "task", "list", "00000001-001", "--limit", "3")
	s.mesh.Log("00000001-001/0", "made a machine\n")
	s.run(0, "task", "get", "00000001-001/0")
	s.run(0, "task", "log", "00000001-001/0")
	s.run(0, "operation", "list")
	s.run(0, "events", "--index", "14", "--limit", "3")
	s.run(2, "cluster", "delete", "web")
	s.run(0, "cluster", "delete", "web", "--yes")
	s.run(0, "cluster", "list", "--status", "active")
	s.run(1, "cluster", "list", "--status", "actve")
	s.golden("cluster")
}

func TestFailureStory(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.work(map[string]string{"INSTALL php": "exit status 1: no such package"})
	s.run(1, "cluster", "create", "web", "-t", "shop", "-n", "1", "--yes")
	s.mesh.Log("00000001-001/2", "E: no such package\n")
	s.run(0, "operation", "log", "00000001-001", "--status", "failed")
	s.run(0, "task", "list", "00000001-001", "--status", "failed", "-o", "wide")
	s.run(1, "cluster", "watch", "web")
	s.golden("failure")
}

func TestStructuredOutputIsAlone(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.work(nil)
	code, out, errs := s.exec("cluster", "create", "web", "-t", "shop", "-n", "1", "-o", "json")
	var got struct {
		Operation api.OperationDetails
		Cluster   api.ClusterDetails
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Cluster.Status != model.ClusterActive || got.Operation.Status != model.OpSucceeded {
		t.Errorf("%d %v\n%s\n%s", code, err, out, errs)
	}
	if !strings.Contains(errs, "CREATE") {
		t.Errorf("no progress: %s", errs)
	}
}

func TestMeshStory(t *testing.T) {
	s := newSession(t)
	s.as(apitest.Super)
	s.run(0, "members", "-o", "wide")
	s.run(0, "status")
	s.run(0, "plugin", "list")
	s.run(0, "join", "10.0.0.1", "10.0.0.2:55056")
	s.run(2, "leave")
	s.run(0, "leave", "b", "--yes")
	s.run(0, "operator", "raft", "peers")
	s.run(4, "operator", "raft", "transfer")
	s.run(0, "operator", "raft", "remove", "id-x", "--yes")
	s.run(0, "operator", "snapshot", "save", "state.snap")
	s.run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.run(0, "tenant", "list")
	s.run(0, "operator", "snapshot", "restore", "state.snap", "--yes")
	s.run(3, "tenant", "get", "new")
	s.run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.run(0, "tenant", "put", "new", "--max-clusters", "3")
	s.run(0, "tenant", "get", "new")
	s.run(0, "--tenant", "new", "token", "create", "zoe", "--role", "admin")
	s.run(0, "--tenant", "new", "token", "list")
	s.run(0, "--tenant", "new", "token", "revoke", "t6", "--yes")
	s.run(0, "tenant", "delete", "new", "--yes")
	s.run(1, "operator", "snapshot", "restore", "nothing.snap", "--yes")
	s.golden("mesh")
}

func TestTheDevAgentsFileIsFound(t *testing.T) {
	s := newSession(t)
	delete(s.env, "COOPR_ADDR")
	delete(s.env, "COOPR_TOKEN")
	s.file(".config/coopr/dev.json", fmt.Sprintf(`{"addr":%q,"token":%q}`, s.url, apitest.Guest))
	if code, out, errs := s.exec("status"); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	// Its token goes to nobody else.
	other := newSession(t)
	s.env["COOPR_ADDR"] = other.url
	if code, _, _ := s.exec("status"); code == 0 {
		t.Error("the dev token was sent elsewhere")
	}
	delete(s.env, "COOPR_ADDR")
	s.env["XDG_CONFIG_HOME"] = s.dir + "/xdg"
	s.file("xdg/coopr/dev.json", "{")
	if code, _, errs := s.exec("status"); code != 1 || !strings.Contains(errs, "dev.json") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestCtrlCLeavesTheOperation(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.ctx = ctx
	code, out, errs := s.execSeen(func(all string) {
		if strings.Contains(all, "running") {
			cancel(errInterrupted)
		}
	}, "cluster", "create", "web", "-t", "shop", "-n", "1", "--yes")
	if code != exitInterrupted || !strings.Contains(errs, "coopr operation watch 00000001-001") {
		t.Errorf("%d\n%s\n%s", code, out, errs)
	}
	s.ctx = context.Background()
	v, _ := s.mesh.View(s.ctx, api.Default, 0)
	if op, ok := v.Operation("acme", "00000001-001"); !ok || op.Status != model.OpRunning {
		t.Error("the operation does not go on")
	}
}

func TestOnATerminal(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	s.as(apitest.User)
	s.terminal = true
	s.stdin = "n\n"
	code, out, _ := s.exec("cluster", "create", "web", "-t", "shop", "-n", "1")
	if code != 1 || !strings.Contains(out, "Create cluster web? [y/N]") || len(s.mesh.Tasks("00000001-001")) != 0 {
		t.Errorf("%d %s", code, out)
	}
	s.stdin = "y\n"
	begin := sync.OnceFunc(func() { s.work(nil) })
	code, out, errs := s.execSeen(func(all string) {
		if strings.Contains(all, "░") {
			begin() // once the bars are drawn for the first time
		}
	}, "cluster", "create", "web", "-t", "shop", "-n", "1")
	if code != 0 || !strings.Contains(out, "█") || !strings.Contains(out, "\x1b[") || !strings.Contains(out, "A\x1b[J") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	s.env["NO_COLOR"] = "1"
	if _, out, _ := s.exec("cluster", "list"); strings.Contains(out, "\x1b[") {
		t.Errorf("colour against NO_COLOR: %q", out)
	}
	delete(s.env, "NO_COLOR")
	if _, out, _ := s.exec("cluster", "list"); !strings.Contains(out, "\x1b[32mactive") {
		t.Errorf("no colour: %q", out)
	}
	s.terminal = false
	if _, out, _ := s.exec("cluster", "list"); strings.Contains(out, "\x1b[") {
		t.Errorf("colour without a terminal: %q", out)
	}
}

func TestWatchingAList(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.ctx = ctx
	once := sync.OnceFunc(func() {
		go func() {
			_, err := s.mesh.PutTenant(context.Background(), model.Caller{Tenant: "acme"}, model.Tenant{Name: "acme", Description: "changed"}, false)
			if err != nil {
				cancel(err)
			}
		}()
	})
	code, out, errs := s.execSeen(func(all string) {
		once()
		if strings.Contains(all, "changed") {
			cancel(errInterrupted)
		}
	}, "tenant", "list", "--watch")
	if code != 0 || strings.Count(out, "NAME") != 2 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

func TestCompletionHasLiveNames(t *testing.T) {
	s := newSession(t)
	s.files()
	s.exec("import", "defs")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"__complete", "template", "get", ""}, "shop\tA web shop"},
		{[]string{"__complete", "cluster", "create", "x", "--template", "sh"}, "shop\tA web shop"},
		{[]string{"__complete", "tenant", "get", "ac"}, "acme"},
		{[]string{"__complete", "token", "create", "x", "--role", ""}, "admin"},
		{[]string{"__complete", "cluster", "list", "-o", ""}, "json"},
		{[]string{"completion", "bash"}, "bash completion"},
		{[]string{"completion", "fish"}, "fish completion"},
		{[]string{"completion", "zsh"}, "#compdef coopr"},
	} {
		if code, out, errs := s.exec(tt.args...); code != 0 || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %d\n%s\n%s", tt.args, code, clip(out, 400), errs)
		}
	}
	s.env["COOPR_ADDR"] = "127.0.0.1:1"
	if code, out, _ := s.exec("__complete", "template", "get", ""); code != 0 || strings.Contains(out, "shop") {
		t.Errorf("%d %s", code, out)
	}
}
