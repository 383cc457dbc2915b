package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/proto"
)

// TestWritingPlugins: the two plugins of docs/writing-plugins.md build, and do what the
// page says.
func TestWritingPlugins(t *testing.T) {
	for _, tool := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s: install it to run this test", tool)
		}
	}
	page, err := os.ReadFile("../../docs/writing-plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	// The provider needs this module: it is built inside of it, where patterns such
	// as ./... do not look.
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	src, err := os.MkdirTemp("testdata", "rooms")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove("testdata")
	defer os.RemoveAll(src)
	h := newHost(t, func(c *Config) {
		c.Env = append(c.Env, "PATH="+os.Getenv("PATH"))
		for _, b := range regexp.MustCompile("(?ms)^```[a-z]+ file=(\\S+)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
			dir := t.TempDir() // definitions
			switch {
			case b[1] == "main.go":
				dir = src
			case strings.HasPrefix(b[1], "notes."):
				dir = c.Dirs[0]
			default:
				if _, err := model.Classify(b[1], []byte(b[2])); err != nil {
					t.Errorf("%s: %v", b[1], err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, b[1]), []byte(b[2]), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("go", "build", "-o", filepath.Join(c.Dirs[0], "coopr-provider-rooms"), "./"+src).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Faults(); err != nil {
		t.Fatal(err)
	}

	house := t.TempDir()
	for _, step := range []struct {
		action           string
		observe, adopted bool
	}{{"CREATE", true, false}, {"CREATE", true, true}, {"CONFIRM", false, false}, {"DELETE", false, false}, {"DELETE", false, false}} {
		r := h.Execute(t.Context(), &proto.Task{Id: "x", Fence: 1, Cluster: "c", Node: "n", Action: step.action, Plugin: "rooms", Observe: step.observe, TimeoutMs: 60_000,
			Input: []byte(`{"config":{"provider":{"provisioner":{"house":"` + house + `"}}}}`)}, nil)
		if r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || r.Adopted != step.adopted {
			t.Errorf("%s: %v", step.action, r)
		}
	}

	node := t.TempDir()
	note := func(action, transport string) *proto.Result {
		return h.Execute(t.Context(), &proto.Task{Id: "y", Fence: 1, Cluster: "c", Node: "n", Action: action, Service: "board", Plugin: "notes", Automator: true, TimeoutMs: 60_000,
			Input: []byte(`{"taskName":"` + action + `","config":{"results":{"transport":"` + transport + `","providerid":"` + node + `"},"service":{"name":"board","action":{"type":"notes","fields":{"note":"Milk"}}}}}`)}, nil)
	}
	if r := note("CONFIGURE", "ssh"); r.Outcome != proto.Outcome_OUTCOME_FATAL {
		t.Errorf("another kind of node: %v", r)
	}
	for _, action := range []string{"CONFIGURE", "CONFIGURE"} {
		if r := note(action, "local"); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("%s: %v", action, r)
		}
	}
	if b, err := os.ReadFile(filepath.Join(node, "note.txt")); err != nil || string(b) != "Milk\n" {
		t.Errorf("%q %v", b, err)
	}
	if r := note("REMOVE", "local"); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("REMOVE: %v", r)
	}
	if faults, err := h.Validate(t.Context(), model.KindAutomatorType, "notes", "admin", map[string]any{"note": "a\nb"}); err != nil || len(faults) != 1 {
		t.Errorf("%v %v", faults, err)
	}
}
