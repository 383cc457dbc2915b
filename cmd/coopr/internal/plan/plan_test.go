package plan_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// hello returns the plan of docs/spec/plans.md §3, STR-14: two phases with canaries.
func hello() *tree.View {
	v := &tree.View{Tree: &tree.Tree{Name: "deploy", Phases: []tree.Phase{
		{Name: "hello-deploy", Strategy: tree.Strategy{Kind: tree.Parallel, Canary: 2}, End: 4},
		{Name: "world-deploy", Strategy: tree.Strategy{Canary: 2}, First: 4, End: 6},
	}}, Held: make([]bool, 2), Steps: make([]tree.Child, 6)}
	for _, i := range []int{0, 1, 4, 5} {
		v.Steps[i] = tree.Child{Status: tree.Waiting, Interrupted: true}
	}
	v.Steps[2].Behind, v.Steps[3].Behind = true, true
	names := []string{"hello-0:[server]", "hello-1:[server]", "hello-2:[server]", "hello-3:[server]", "world-0:[server]", "world-1:[server]"}
	v.StepName = func(step uint32) string { return names[step] }
	return v
}

func planSession(t *testing.T) (s *clitest.Session, cluster string) {
	t.Helper()
	s = clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	if code, _, errs := s.Exec("cluster", "create", "shop", "-t", "shop", "-n", "2", "--detach"); code != 0 {
		t.Fatal(errs)
	}
	v, err := s.Mesh.View(context.Background(), api.Default, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s, v.Clusters("acme")[0].ID
}

func TestPlans(t *testing.T) {
	s, id := planSession(t)
	s.Run(0, "plan", "list", "shop")
	s.Run(0, "plan", "show", "shop", "deploy")
	s.Mesh.PutPlan(id, hello())
	backup := &tree.View{Tree: &tree.Tree{Name: "backup", Phases: []tree.Phase{{Name: "backup", End: 1}}}, Interrupted: true,
		Held: make([]bool, 1), Steps: make([]tree.Child, 1),
		StepName: func(uint32) string { return "hello-0:[backup]" }}
	s.Mesh.PutPlan(id, backup)
	s.Run(0, "plans", "list", "shop")
	s.Run(0, "plan", "status", "shop", "deploy")
	s.Run(0, "operation", "explain", id+"-001")
	s.Run(3, "operation", "explain", "no")
	s.Run(0, "plan", "resume", "shop", "deploy", "hello-deploy")
	s.Run(0, "plan", "continue", "shop", "deploy", "hello-deploy")
	s.Run(0, "plan", "show", "shop", "deploy")
	s.Run(0, "plan", "pause", "shop", "deploy")
	s.Run(4, "plan", "interrupt", "shop", "deploy")
	s.Run(0, "plan", "resume", "shop", "deploy")
	s.Run(0, "plan", "force-complete", "shop", "deploy", "hello-deploy", "hello-0:[server]")
	s.Run(4, "plan", "force", "shop", "deploy", "hello-deploy", "hello-0:[server]")
	s.Run(2, "plan", "force", "shop", "deploy", "hello-deploy")
	s.Run(0, "plan", "force", "shop", "deploy", "hello-deploy", "--yes")
	s.Run(0, "plan", "show", "shop", "deploy")
	s.Run(0, "plan", "restart", "shop", "deploy", "hello-deploy", "hello-2:[server]")
	s.Run(0, "plan", "force-restart", "shop", "deploy")
	s.Run(0, "plan", "start", "shop", "backup", "-p", "BUCKET=nightly", "-p", "var4=value=more")
	s.Run(0, "plan", "stop", "shop", "backup")
	s.Run(0, "plan", "start", "shop", "backup")
	s.Run(2, "plan", "start", "shop", "backup", "-p", "var value")
	s.Run(1, "plan", "start", "shop", "backup", "-p", "a-b=c")
	s.Run(0, "plan", "show", "shop", "backup", "-o", "yaml")
	s.Run(0, "plan", "show", "shop", "backup", "--json")
	s.Run(3, "plan", "show", "shop", "no")
	s.Run(3, "plan", "show", "no", "deploy")
	s.Run(3, "plan", "pause", "shop", "deploy", "no")
	s.Run(3, "plan", "restart", "shop", "deploy", "hello-deploy", "no")
	s.Run(2, "plan", "show", "shop")
	failed := hello()
	failed.Errors = []string{"foo", "bar"}
	s.Mesh.PutPlan(id, failed)
	s.Run(0, "plan", "show", "shop", "deploy")
	s.Golden("plan")
}

// TestWatchingAPlan checks that a plan is shown again at each change until it is complete.
func TestWatchingAPlan(t *testing.T) {
	s, _ := planSession(t)
	begin := sync.OnceFunc(func() { s.Work(nil) })
	code, out, errs := s.ExecSeen(func(string) { begin() }, "plan", "show", "shop", "deploy", "--watch")
	if code != 0 || !strings.HasPrefix(out, "deploy (serial strategy) (PENDING)\n") || !strings.Contains(out,
		"\n\ndeploy (serial strategy) (COMPLETE)\n") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	s, _ = planSession(t)
	begin = sync.OnceFunc(func() { s.Work(map[string]string{"START nginx": "no port"}) })
	s.Terminal = true
	code, out, errs = s.ExecSeen(func(string) { begin() }, "plan", "show", "shop", "deploy", "--watch")
	if code != 0 || !strings.Contains(out, "\x1b[2Jdeploy (serial strategy) (\x1b[31mERROR\x1b[0m)\n") || !strings.Contains(out, "no port") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	for _, c := range []struct {
		args []string
		want string
	}{{[]string{"__complete", "plan", "show", ""}, "shop\t"}, {[]string{"__complete", "plan", "show", "shop", ""}, "deploy\n"}} {
		if _, out, _ := s.Exec(c.args...); !strings.HasPrefix(out, c.want) {
			t.Errorf("%v: %s", c.args, out)
		}
	}
}
