package shell

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/sdk"
)

// TestResources checks that scripts among the task's resources take precedence, and that archives
// stay in the node's folder when the agent's copies are gone.
func TestResources(t *testing.T) {
	a, task := onNode(t)
	folder, dir := t.TempDir(), t.TempDir()
	a.cfg.Scripts = []string{folder}
	for path, text := range map[string]string{
		filepath.Join(folder, "go.sh"):            "#!/bin/sh\necho 'COOPR_RESULT {\"hostname\":\"old\"}'\n",
		filepath.Join(dir, "scripts/go.sh"):       "#!/bin/sh\necho 'COOPR_RESULT {\"hostname\":\"'$(cat $COOPR_ARCHIVES/site/page)'\"}'\n",
		filepath.Join(dir, "archives/site/page"):  "new",
		filepath.Join(dir, "archives/other/page"): "other",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(resources string, fields map[string]any) (string, error) {
		x := task("t", fields)
		x.Resources = resources
		out, err := a.Run(t.Context(), x)
		if out == nil {
			out = &sdk.Output{}
		}
		return out.Hostname, err
	}
	if got, err := run("", map[string]any{"script": "go.sh"}); got != "old" || err != nil {
		t.Error(got, err)
	}
	if got, err := run(dir, map[string]any{"script": "go.sh", "archives": "site"}); got != "new" || err != nil {
		t.Error(got, err)
	}
	for fields, want := range map[*map[string]any]string{
		{"script": "none.sh"}:                               "was planned, nor in " + folder,
		{"script": "go.sh", "archives": []any{"nothing"}}:   `archive "nothing" is not among`,
		{"script": "go.sh", "archives": "../scripts, a b"}:  "archives:",
		{"script": "go.sh", "archives": map[string]any{}}:   "archives:",
		{"script": "go.sh", "archives": []any{"site", 3.0}}: "archives:",
	} {
		if _, err := run(dir, *fields); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", *fields, err)
		}
	}
	_, node, err := a.Reach.Of(task("t", nil))
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(node.Dir() + "/.coopr/folders/*/*"); err != nil || len(left) != 1 || filepath.Base(left[0]) != "site" {
		t.Errorf("on the node: %v %v", left, err)
	}
}
