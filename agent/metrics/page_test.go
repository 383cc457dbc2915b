package metrics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/metrics"
	"github.com/coopr/coopr/rpc/server/rest"
)

var update = flag.Bool("update", false, "write the table in docs/metrics.md again")

const page = "../../docs/metrics.md"

// described is the text of a prometheus.Desc, which shows its parts in no other way.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}\}$`)

// named is the shape of a name: coopr, an area, and what is measured.
var named = regexp.MustCompile(`^coopr(_[a-z]+){2,}$`)

// TestPageHasAllFamilies registers the metrics of an agent and of its API, and compares them with the table of the page.
func TestPageHasAllFamilies(t *testing.T) {
	r := prometheus.NewRegistry()
	settings := func() *config.Config { return &config.Config{} }
	if err := metrics.Register(r, metrics.Sources{Supervisor: member.New(member.Config{}), Settings: settings}); err != nil {
		t.Fatal(err)
	}
	if _, err := rest.New(rest.Config{Registry: r}); err != nil {
		t.Fatal(err)
	}
	all := make(chan *prometheus.Desc)
	go func() {
		r.Describe(all)
		close(all)
	}()
	var rows []string
	for d := range all {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("not understood: %s", d)
			continue
		}
		name, help, labels := m[1], m[2], m[3]
		if !strings.HasPrefix(name, "coopr_") {
			continue
		}
		if !named.MatchString(name) {
			t.Errorf("%s is not named coopr_<area>_<what>_<unit>", name)
		}
		if !strings.HasSuffix(help, ".") || len(help) < 10 {
			t.Errorf("the help text of %s is not a sentence: %q", name, help)
		}
		if labels != "" {
			labels = "`" + strings.ReplaceAll(labels, ",", "`, `") + "`"
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", name, labels, help))
	}
	if len(rows) < 30 {
		t.Fatalf("only %d families were found", len(rows))
	}
	slices.Sort(rows)
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const head = "|---|---|---|\n"
	before, _, ok := strings.Cut(string(have), head)
	if !ok {
		t.Fatal("the page has no table")
	}
	want := before + head + strings.Join(rows, "")
	if want == string(have) {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, row := range rows {
		if !strings.Contains(string(have), row) {
			t.Errorf("docs/metrics.md lacks the row %s", row)
		}
	}
	t.Error("docs/metrics.md differs from the code: run go test ./agent/metrics -update")
}
