package chef

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/plugins/automator/automatortest"
	"github.com/coopr/coopr/testing/lab"
)

// standIn replaces chef-solo, of which Debian has no package. It takes the arguments and reads the
// settings of the real one, prints them, and runs shell scripts as recipes.
const standIn = `#!/bin/sh
set -eu
while [ $# -gt 0 ]; do
  case $1 in
  --no-color) shift ;;
  -c) config=$2; shift 2 ;;
  -j) json=$2; shift 2 ;;
  -o) list=$2; shift 2 ;;
  *) echo "unknown argument $1" >&2; exit 1 ;;
  esac
done
cookbooks=$(sed -n 's/^cookbook_path "\(.*\)"$/\1/p' "$config")
cat "$json" >/srv/attributes.json
name=${list#recipe[}; name=${name%]}
book=${name%%::*}; recipe=${name#*::}; [ "$recipe" != "$name" ] || recipe=default
sh -eu "$cookbooks/$book/recipes/$recipe.sh"
`

// TestRunList checks that cookbooks are sent to the node and that recipes run there with the
// attributes that the original Coopr passes.
func TestRunList(t *testing.T) {
	n := automatortest.New(t, lab.New(t), "chef")
	n.Config = map[string]any{"hadoop": map[string]any{"heap": "1g", "dirs": "/data"}}
	books := t.TempDir()
	for name, text := range map[string]string{"base/recipes/default.sh": "echo base on $(hostname) >/srv/base\n",
		"base/recipes/fails.sh": "exit 3\n"} {
		file := filepath.Join(books, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := New(Config{Cookbooks: []string{books}})
	t.Cleanup(a.Close)
	if _, err := a.Bootstrap(t.Context(), n.Task("BOOTSTRAP", nil)); err == nil || !strings.Contains(err.Error(), "chef-solo") {
		t.Errorf("a node without chef-solo: %v", err)
	}
	if err := os.WriteFile(filepath.Join(books, "chef-solo"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	n.Must("sh", "-c", "cat >/usr/local/bin/chef-solo <<'END'\n"+standIn+"END\nchmod 755 /usr/local/bin/chef-solo")
	n.Do(a, "BOOTSTRAP", nil)
	for range 2 { // unpacked once
		n.Do(a, "INSTALL", map[string]any{"run_list": "recipe[base]", "json_attributes": `{"hadoop": {"heap": "2g"}}`})
	}
	if got := n.Must("cat", "/srv/base"); got != "base on chef" {
		t.Errorf("the recipe wrote %q", got)
	}
	var attributes struct {
		Hadoop map[string]string
		Coopr  struct {
			ClusterID string   `json:"clusterId"`
			Services  []string `json:"services"`
			Cluster   map[string]any
		}
	}
	if err := json.Unmarshal([]byte(n.Must("cat", "/srv/attributes.json")), &attributes); err != nil {
		t.Fatal(err)
	}
	if attributes.Hadoop["heap"] != "2g" || attributes.Hadoop["dirs"] != "/data" || attributes.Coopr.ClusterID != "c" ||
		attributes.Coopr.Cluster["hadoop"] == nil {
		t.Errorf("%+v", attributes)
	}
	if got := n.Must("sh", "-c", "ls /var/lib/coopr/.coopr/folders | wc -l"); got != "1" {
		t.Errorf("%s contents are unpacked", got)
	}
	if _, err := a.Run(t.Context(), n.Task("START", map[string]any{"run_list": "recipe[base::fails]"})); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("a recipe that fails: %v", err)
	}
	// An uploaded cookbook replaces the whole cookbook of that name.
	n.Upload("cookbooks/base/recipes/default.sh", "echo uploaded >/srv/base\n")
	n.Do(a, "INSTALL", map[string]any{"run_list": "recipe[base]"})
	if got := n.Must("cat", "/srv/base"); got != "uploaded" {
		t.Errorf("the recipe wrote %q", got)
	}
	if got := n.Must("sh", "-c", "ls /var/lib/coopr/.coopr/folders/*/cookbooks/base/recipes/fails.sh | wc -l"); got != "1" {
		t.Errorf("%s folders have the recipe that was not uploaded", got)
	}
}
