package docker

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/automator/automatortest"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/programs"
)

// TestContainer runs a service as a container of a real engine: it is created once, replaced when
// its definition changes, stopped, checked and removed.
func TestContainer(t *testing.T) {
	programs.Installed(t, "docker")
	l := lab.New(t)
	engine := l.Engine(t)
	if err := l.Import(t.Context(), engine, "base:1"); err != nil {
		t.Fatal(err)
	}
	// The node is a folder of this machine, which has the engine.
	n := &automatortest.Node{T: t, Results: map[string]any{"transport": "local", "providerid": t.TempDir()},
		Config: map[string]any{"web": map[string]any{"greeting": "it's"}}}
	a := New(nil)
	t.Cleanup(a.Close)
	docker := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("docker", args...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+engine.Host)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("docker %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	fields := map[string]any{
		"image_name": "base:1", "engine": engine.Host, "command": `echo "$GREETING $A"; exec sleep 1000`,
		"environment_variables": map[string]any{"A": "b c"}, "config": map[string]any{"GREETING": "web.greeting"},
	}
	n.Do(a, "BOOTSTRAP", nil)
	n.Do(a, "INSTALL", fields)
	first := n.Do(a, "START", fields).Result["container-s"]
	if again := n.Do(a, "START", fields).Result["container-s"]; again != first || first == "" {
		t.Errorf("started twice it is %v, then %v", first, again)
	}
	for range 1000 {
		if docker("logs", "coopr-n-s") != "" {
			break
		}
	}
	if got := docker("logs", "coopr-n-s"); got != "it's b c" {
		t.Errorf("it says %q", got)
	}
	if done, _, err := a.Check(t.Context(), n.Task("CHECK", fields)); err != nil || !done {
		t.Errorf("it runs, and its check says %v %v", done, err)
	}
	n.Do(a, "STOP", fields)
	if done, _, _ := a.Check(t.Context(), n.Task("CHECK", fields)); done {
		t.Error("it is stopped, and its check says that it runs")
	}
	if again := n.Do(a, "START", fields).Result["container-s"]; again != first {
		t.Error("a stopped container was not started again but made anew")
	}
	n.Config = map[string]any{"web": map[string]any{"greeting": "new"}}
	n.Do(a, "CONFIGURE", fields)
	if again := n.Do(a, "START", fields).Result["container-s"]; again == first {
		t.Error("with other values it is the same container")
	}
	n.Do(a, "REMOVE", fields)
	n.Do(a, "REMOVE", fields)
	if got := docker("ps", "--all", "--quiet"); got != "" {
		t.Errorf("left: %s", got)
	}
	fields["image_name"] = "127.0.0.1:1/none:1"
	if _, err := a.Run(t.Context(), n.Task("INSTALL", fields)); err == nil {
		t.Error("an image that cannot be pulled was installed")
	}
}
