package plan_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/model"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// hello has the plan of docs/spec/plans.md §3, STR-14: two phases with canaries.
const hello = `services:
  - {name: hello, provisioner: {actions: {configure: {type: shell}, start: {type: shell}, stop: {type: shell}}}}
  - {name: world, provisioner: {actions: {start: {type: shell}, stop: {type: shell}}}}
clustertemplates:
  - name: hello
    defaults: {services: [hello, world], provider: cloud}
    constraints:
      layout: {cantcoexist: [[hello, world]]}
      services: {hello: {quantities: {min: 4, max: 4}}, world: {quantities: {min: 2, max: 2}}}
    plans:
      deploy:
        phases:
          hello-deploy: {service: hello, strategy: parallel-canary}
          world-deploy: {service: world, strategy: serial-canary}
      backup:
        phases:
          backup: {service: hello, steps: [default: [[configure]]]}
`

func planSession(t *testing.T) *clitest.Session {
	t.Helper()
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	if code, _, errs := s.Exec("cluster", "create", "shop", "-t", "shop", "-n", "2", "--on-failure", "leave", "--detach"); code != 0 {
		t.Fatal(errs)
	}
	return s
}

func TestPlans(t *testing.T) {
	s := planSession(t)
	s.Run(0, "plan", "list", "shop")
	s.Run(0, "plan", "show", "shop", "deploy")
	s.File("hello/all.yaml", hello)
	s.Run(0, "import", "hello")
	s.Run(0, "cluster", "create", "hello", "-t", "hello", "-n", "6", "--detach")
	const op, first = "00000002-001", "hello2-1000:[configure, start]"
	s.Mesh.Finish(op) // the machines; the canaries are held
	s.Run(0, "plans", "list", "hello")
	s.Run(0, "plan", "status", "hello", "deploy")
	s.Run(0, "operation", "explain", op)
	s.Run(3, "operation", "explain", "no")
	s.Run(0, "plan", "resume", "hello", "deploy", "hello-deploy")
	s.Run(0, "plan", "continue", "hello", "deploy", "hello-deploy")
	s.Run(0, "plan", "show", "hello", "deploy")
	s.Run(0, "plan", "pause", "hello", "deploy")
	s.Run(4, "plan", "interrupt", "hello", "deploy")
	s.Run(0, "plan", "resume", "hello", "deploy")
	s.Run(0, "plan", "force-complete", "hello", "deploy", "hello-deploy", first)
	s.Run(4, "plan", "force", "hello", "deploy", "hello-deploy", first)
	s.Run(2, "plan", "force", "hello", "deploy", "hello-deploy")
	s.Run(0, "plan", "force", "hello", "deploy", "hello-deploy", "--yes")
	s.Run(0, "plan", "show", "hello", "deploy")
	s.Run(0, "plan", "restart", "hello", "deploy", "hello-deploy", first)
	s.Mesh.Finish(op)
	s.Run(0, "plan", "force", "hello", "deploy", "world-deploy", "--yes")
	s.Run(0, "plan", "list", "hello")
	s.Run(0, "plan", "start", "hello", "backup", "-p", "BUCKET=nightly", "-p", "var4=value=more")
	s.Run(0, "plan", "stop", "hello", "backup")
	s.Run(0, "plan", "start", "hello", "backup")
	s.Run(2, "plan", "start", "hello", "backup", "-p", "var value")
	s.Run(1, "plan", "start", "hello", "backup", "-p", "a-b=c")
	s.Run(0, "plan", "show", "hello", "backup", "-o", "yaml")
	s.Run(0, "plan", "show", "hello", "backup", "--json")
	s.Run(3, "plan", "show", "hello", "no")
	s.Run(3, "plan", "show", "no", "deploy")
	s.Run(3, "plan", "pause", "hello", "deploy", "no")
	s.Run(3, "plan", "restart", "hello", "deploy", "hello-deploy", "no")
	s.Run(2, "plan", "show", "hello")
	s.Run(0, "plan", "force-restart", "hello", "deploy")
	s.Mesh.Work(op, func(t model.Task) string {
		if t.Action == model.Confirm {
			return "no answer"
		}
		return ""
	})
	s.Run(0, "plan", "show", "hello", "deploy")
	s.Golden("plan")
}

// TestWatchingAPlan checks that a plan is shown again at each change until it is complete.
func TestWatchingAPlan(t *testing.T) {
	s := planSession(t)
	begin := sync.OnceFunc(func() { s.Work(nil) })
	code, out, errs := s.ExecSeen(func(string) { begin() }, "plan", "show", "shop", "deploy", "--watch")
	if code != 0 || !strings.HasPrefix(out, "deploy (dependency strategy) (PENDING)\n") || !strings.Contains(out,
		"\n\ndeploy (dependency strategy) (COMPLETE)\n") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	s = planSession(t)
	begin = sync.OnceFunc(func() { s.Work(map[string]string{"START nginx": "no port"}) })
	s.Terminal = true
	code, out, errs = s.ExecSeen(func(string) { begin() }, "plan", "show", "shop", "deploy", "--watch")
	if code != 0 || !strings.Contains(out, "\x1b[2Jdeploy (dependency strategy) (\x1b[31mERROR\x1b[0m)\n") || !strings.Contains(out, "no port") {
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
