package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/programs"
)

// TestWritingPlugins checks that the two plugins of docs/writing-plugins.md build, and do what the
// page says.
func TestWritingPlugins(t *testing.T) {
	for _, tool := range []string{"bash", "jq"} {
		programs.Installed(t, tool)
	}
	house, node := t.TempDir(), filepath.Join(t.TempDir(), "node")
	if err := os.Mkdir(node, 0o755); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, func(c *Config) {
		c.Local = []string{filepath.Dir(node)}
		c.Plugins = []Binary{{Path: filepath.Join(c.Dirs[0], "coopr-provider-rooms"), Writes: []string{house}}}
		c.Env = append(c.Env, "PATH="+os.Getenv("PATH"))
		documented(t, "writing-plugins.md", filepath.Join(c.Dirs[0], "coopr-provider-rooms"), func(name, text string) string {
			if strings.HasPrefix(name, "notes.") {
				return c.Dirs[0]
			}
			if _, err := decode.Classify(name, []byte(text)); err != nil { // definitions
				t.Errorf("%s: %v", name, err)
			}
			return t.TempDir()
		})
	})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Faults(); err != nil {
		t.Fatal(err)
	}

	for _, step := range []struct {
		action           string
		observe, adopted bool
	}{{"CREATE", true, false}, {"CREATE", true, true}, {"CONFIRM", false, false}, {"DELETE", false, false}, {"DELETE", false, false}} {
		r := h.Execute(t.Context(), &proto.Task{Id: "x", Fence: 1, Cluster: "c", Node: "n", Action: step.action, Plugin: "rooms",
			Observe: step.observe, TimeoutMs: 60_000,
			Input: []byte(`{"config":{"provider":{"provisioner":{"house":"` + house + `"}}}}`)}, nil)
		if r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || r.Adopted != step.adopted {
			t.Errorf("%s: %v", step.action, r)
		}
	}

	note := func(action, transport string) *proto.Result {
		return h.Execute(t.Context(), &proto.Task{Id: "y", Fence: 1, Cluster: "c", Node: "n", Action: action, Service: "board", Plugin: "notes",
			Automator: true, TimeoutMs: 60_000,
			Input: []byte(`{"taskName":"` + action + `","config":{"results":{"transport":"` + transport + `","providerid":"` + node +
				`"},"service":{"name":"board","action":{"type":"notes","fields":{"note":"Milk"}}}}}`)}, nil)
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
	if faults, err := h.Validate(t.Context(), model.KindAutomatorType, "notes", "admin", map[string]any{"note": "a\nb"}); err != nil ||
		len(faults) != 1 {
		t.Errorf("%v %v", faults, err)
	}
}
