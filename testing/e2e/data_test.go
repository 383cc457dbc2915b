package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/testing/original"
)

// newOriginal returns a mesh of one agent, and the folder of the original's definitions.
func newOriginal(t *testing.T) (*mesh, string) {
	t.Helper()
	dir := original.Dir(t)
	m := newMesh(t, "a")
	m.agents[0].start()
	m.ready()
	return m, dir
}

// tenant makes a tenant that has the original's types of plugins.
func (m *mesh) tenant(name, dir string) {
	m.t.Helper()
	m.must("tenant", "put", name)
	for _, types := range []string{"mock-plugin-types", "provisioner-plugins"} {
		m.must("--tenant", name, "import", filepath.Join(dir, types))
	}
}

// leftOut returns the lines of a command that name what is left out.
func (s said) leftOut() []string {
	var out []string
	for line := range strings.Lines(s.err) {
		if rest, ok := strings.CutPrefix(line, "left out: "); ok {
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

// says checks the number of lines, and that each line has the words expected of it.
func says(t *testing.T, what string, lines []string, want ...string) {
	t.Helper()
	if len(lines) != len(want) {
		t.Errorf("%s: %d lines, not %d:\n%s", what, len(lines), len(want), strings.Join(lines, "\n"))
		return
	}
	for _, w := range want {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, w) }) {
			t.Errorf("%s: nothing says %q:\n%s", what, w, strings.Join(lines, "\n"))
		}
	}
}

// TestOriginal imports the original's sets of definitions. Everything except the faulty definitions
// is imported, and each faulty one is refused with its reason.
func TestOriginal(t *testing.T) {
	t.Parallel()
	m, dir := newOriginal(t)
	for _, set := range []struct {
		folder string
		bad    []string
	}{
		{folder: "templates-0.9.9"},
		{folder: "templates-branch-mongodb-replicaset"},
		{"templates-develop", []string{
			`(clustertemplates/coopr-standalone-docker): defaults.services[0]: there is no service "coopr-standalone"`,
			`(clustertemplates/docker-base): defaults.imagetype: centos6 is not in compatibility.imagetypes`,
		}},
	} {
		tenant := strings.ReplaceAll(set.folder, ".", "-")
		m.tenant(tenant, dir)
		folder := filepath.Join(dir, set.folder)
		if len(set.bad) > 0 {
			if s := m.coopr("--tenant", tenant, "import", folder); s.code != 1 {
				t.Errorf("%s: faults, but the exit code is %d\n%s%s", set.folder, s.code, s.out, s.err)
			}
			if out := m.must("--tenant", tenant, "service", "list", "-o", "json"); strings.TrimSpace(out) != "[]" {
				t.Errorf("%s: something of a refused import was written: %.200s", set.folder, out)
			}
		}
		s := m.coopr("--tenant", tenant, "import", "--skip-faulty", folder)
		if want := min(1, len(set.bad)); s.code != want {
			t.Errorf("%s: exit code %d\n%s%s", set.folder, s.code, s.out, s.err)
		}
		says(t, set.folder, s.leftOut(), set.bad...)
		have := m.export(tenant)
		for _, kind := range []model.Kind{model.KindProvider, model.KindHardwareType, model.KindImageType, model.KindService,
			model.KindClusterTemplate} {
			files, err := filepath.Glob(filepath.Join(folder, string(kind), "*.json"))
			if err != nil {
				t.Fatal(err)
			}
			want := len(files)
			if kind == model.KindClusterTemplate {
				want -= len(set.bad)
			}
			if n := len(have[string(kind)]); n != want || n == 0 {
				t.Errorf("%s: there are %d %s, not %d", set.folder, n, kind, want)
			}
		}
	}
	t.Run("DryRun", func(t *testing.T) { dryRuns(t, m) })
	m.stop()
}

// export returns all definitions of a tenant, by kind.
func (m *mesh) export(tenant string) map[string][]json.RawMessage {
	m.t.Helper()
	var out map[string][]json.RawMessage
	if err := json.Unmarshal([]byte(m.must("--tenant", tenant, "export", "-o", "json")), &out); err != nil {
		m.t.Fatal(err)
	}
	return out
}

// dryRuns shows layouts and plans of the original's template hadoop-distributed.
func dryRuns(t *testing.T, m *mesh) {
	for _, n := range []int{3, 5, 50, 1000} {
		args := []string{"--tenant", "templates-develop", "cluster", "create", "big", "--template", "hadoop-distributed", "--nodes",
			fmt.Sprint(n), "--dry-run"}
		s := m.coopr(append(args, "-o", "json")...)
		var st api.StartedBody
		if s.code != 0 || json.Unmarshal([]byte(s.out), &st) != nil {
			t.Errorf("%d nodes: exit code %d\n%.2000s%s", n, s.code, s.out, s.err)
			continue
		}
		if st.Preview.Layout.Nodes() != n || len(st.Preview.Stages) < 5 || st.Preview.Tasks < 10*n {
			t.Errorf("%d nodes: a layout of %d, %d stages, %d tasks", n, st.Preview.Layout.Nodes(), len(st.Preview.Stages), st.Preview.Tasks)
		}
		masters := 0
		for _, g := range st.Preview.Layout {
			if slices.Contains(g.Services, "hadoop-hdfs-namenode") {
				masters += g.Count
			}
		}
		if masters != 1 {
			t.Errorf("%d nodes: %d name nodes", n, masters)
		}
		text := m.must(args...)
		for _, words := range []string{"hadoop-hdfs-namenode", "CREATE", "START", "dry run"} {
			if !strings.Contains(text, words) {
				t.Errorf("%d nodes: nothing says %q:\n%s", n, words, text)
			}
		}
	}
	if out := m.must("--tenant", "templates-develop", "cluster", "list", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("a dry run made something: %s", out)
	}
}

// TestOriginalPartials imports the original's tests of partial templates file by file, together
// with the definitions that they need.
func TestOriginalPartials(t *testing.T) {
	t.Parallel()
	m, dir := newOriginal(t)
	m.tenant("p", dir)
	m.coopr("--tenant", "p", "import", "--skip-faulty", filepath.Join(dir, "templates-develop")) // TestOriginal looks at it
	more := filepath.Join(m.dir, "more.yaml")
	if err := os.WriteFile(more, []byte("services: [{name: bob}, {name: sensu-monitoring}, {name: ldap-internal}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.must("--tenant", "p", "import", more)
	immutable := "defaults.config.sensu_wrapper: "
	files, err := filepath.Glob(filepath.Join(dir, "partials-test", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	order := []string{
		"sensu-partial", "ldap-partial", "partial-immutable-overrides", "cdap-distributed-insecure", "cdap-distributed",
		"cdap-distributed-secure-hadoop", "cdap-not-persisted",
	}
	bad := map[string]string{
		"cdap-bad-json-format":                       "line 16: not valid JSON",
		"cdap-distributed-resolved":                  immutable + "template cdap-distributed may not set this",
		"cdap-not-persisted-overrides-parent":        immutable + "template cdap-not-persisted may not set this",
		"cdap-not-persisted-overrides-partial":       immutable + "template cdap-not-persisted-overrides-partial may not set this",
		"template-with-overrides-in-body":            immutable + "template template-with-overrides-in-body may not set this",
		"template-with-overrides-in-partial":         immutable + "partial template overrides-partial may not set this",
		"cdap-distributed-without-defaults-services": "the template names no default services",
		"cdap-distributed-without-defaults-provider": "the template names no default provider",
	}
	if len(files) != len(order)+len(bad) {
		t.Errorf("%d files, %d expectations", len(files), len(order)+len(bad))
	}
	for _, name := range order {
		m.must("--tenant", "p", "import", filepath.Join(dir, "partials-test", name+".json"))
	}
	for name, why := range bad {
		s := m.coopr("--tenant", "p", "import", filepath.Join(dir, "partials-test", name+".json"))
		if s.code != 1 || !strings.Contains(s.err, why) {
			t.Errorf("%s: exit code %d, and nothing says %q:\n%s%s", name, s.code, why, s.out, s.err)
		}
	}
	s := m.coopr("--tenant", "p", "import", filepath.Join(dir, "provisioner-spec"))
	if s.code != 1 || !strings.Contains(s.err, "a recorded task, not a definition") {
		t.Errorf("the recorded task: exit code %d\n%s", s.code, s.err)
	}
	m.stop()
}
