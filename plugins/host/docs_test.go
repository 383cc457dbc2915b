package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// TestDocumentation checks that the examples of docs/plugins.md build, run and do what the page
// says.
func TestDocumentation(t *testing.T) {
	if err := exec.Command("python3", "-c", "").Run(); err != nil {
		t.Skip("no python3: install it to run this test")
	}
	folder := t.TempDir()
	h := newHost(t, func(c *Config) {
		c.Plugins = []Binary{{Path: filepath.Join(c.Dirs[0], "coopr-provider-files"), Writes: []string{folder}}}
		c.Env = append(c.Env, "PATH="+os.Getenv("PATH"))
		names := documented(t, "plugins.md", filepath.Join(c.Dirs[0], "coopr-provider-files"), func(string, string) string { return c.Dirs[0] })
		if len(names) != 3 {
			t.Fatalf("the examples are %q", names)
		}
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Faults(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(h.cfg.Dirs[0], "coopr-provider-files"), "describe").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"name": "files"`) {
		t.Errorf("describe: %v\n%s", err, out)
	}

	run := func(action string, observe bool) *proto.Result {
		x := &proto.Task{Id: "x", Fence: 1, Cluster: "c", Node: "n", Action: action, Plugin: "files", Observe: observe, TimeoutMs: 60_000,
			Input: []byte(`{"config":{"provider":{"provisioner":{"folder":"` + folder + `"}}}}`)}
		return h.Execute(t.Context(), x, nil)
	}
	for _, step := range []struct {
		action           string
		observe, adopted bool
	}{{"CREATE", true, false}, {"CREATE", true, true}, {"CONFIRM", false, false}, {"DELETE", false, false}, {"DELETE", false, false}} {
		if r := run(step.action, step.observe); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || r.Adopted != step.adopted {
			t.Errorf("%s: %v", step.action, r)
		}
	}
	if r := run("CONFIRM", false); r.Outcome != proto.Outcome_OUTCOME_RETRYABLE {
		t.Errorf("confirm after delete: %v", r)
	}

	var rec recorder
	x := task("x", map[string]any{"package": "nginx"})
	x.Plugin = "packages"
	if r := h.Execute(t.Context(), x, &rec); string(r.Output) != `{"result":{"installed":"nginx"}}` ||
		!strings.HasPrefix(strings.Join(rec.lines, "\n"), "installing nginx") {
		t.Errorf("%v %v", r, rec.lines)
	}
	x = task("y", map[string]any{"package": "no-such-package"})
	x.Plugin = "packages"
	if r := h.Execute(t.Context(), x, nil); r.Outcome != proto.Outcome_OUTCOME_FATAL {
		t.Errorf("got %v", r)
	}
	if faults, err := h.Validate(t.Context(), model.KindAutomatorType, "packages", "admin", map[string]any{"package": "a b"}); err != nil ||
		len(faults) != 1 {
		t.Errorf("%v %v", faults, err)
	}
}
