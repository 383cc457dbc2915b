package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	build "github.com/coopr/coopr/testing/programs"
	"github.com/coopr/coopr/testing/site"
)

var programs = site.NewPrograms("./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-local", "./plugins/provider/coopr-node",
	"./examples/shop/cmd/shop")

func TestMain(m *testing.M) { programs.Main(m) }

const folder = "../../examples/monitoring/"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Rules and panels use metrics that exist.
func TestMetricsExist(t *testing.T) {
	page := read(t, "../../docs/metrics.md")
	metric := regexp.MustCompile(`coopr(_[a-z]+)+`)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		found := metric.FindAllString(read(t, folder+file), -1)
		if len(found) < 15 {
			t.Errorf("%s uses the metrics %v", file, found)
		}
		for _, name := range found {
			if !strings.Contains(page, "| `"+strings.TrimSuffix(name, "_bucket")+"` |") {
				t.Errorf("%s uses %s, which docs/metrics.md does not have", file, name)
			}
		}
	}
}

// promtool sees each alert fire and clear, and none in a healthy mesh.
func TestAlerts(t *testing.T) {
	promtool := build.Installed(t, "promtool")
	tests := read(t, folder+"alerts.test.yaml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, folder+"alerts.yaml"), -1)
	if len(alerts) < 16 {
		t.Errorf("there are %d alerts", len(alerts))
	}
	for _, a := range alerts {
		if strings.Count(tests, "alertname: "+a[1]+", exp_alerts: []}") != 3 || strings.Count(tests, "alertname: "+a[1]+"\n") != 1 {
			t.Errorf("alerts.test.yaml does not let %s fire and clear, and show that a healthy mesh has none", a[1])
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts.test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v: %s", args, err, out)
		}
	}
}

// dashboard is what a test reads of the dashboard.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

// TestDashboard asks a Prometheus that scrapes an agent, which has made a cluster, each query of the dashboard.
func TestDashboard(t *testing.T) {
	prometheus := build.Installed(t, "prometheus")
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, folder+"dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), site.Patience)
	defer cancel()
	bin, dir := programs.Build(t), t.TempDir()
	start(ctx, t, dir, filepath.Join(bin, "coopr-agent"), "--dev", "--data-dir", filepath.Join(dir, "data"), "--http-addr", "127.0.0.1:0",
		"--peer-addr", "127.0.0.1:0", "--gossip-addr", "127.0.0.1:0")
	var agent struct{ Addr, Token string }
	site.Await(t, "the agent to start", func() error {
		text, err := os.ReadFile(filepath.Join(dir, "data", "dev.json"))
		return errors.Join(err, json.Unmarshal(text, &agent))
	})
	coopr := func(args ...string) error {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "coopr"), args...)
		cmd.Env = []string{"HOME=" + dir, "COOPR_ADDR=" + agent.Addr, "COOPR_TOKEN=" + agent.Token}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("coopr %v: %w: %s", args, err, out)
		}
		return nil
	}
	site.Await(t, "the agent to serve", func() error { return coopr("import", "../../examples/shop") })

	target, err := url.Parse(agent.Addr)
	if err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n- {job_name: coopr, metrics_path: "+
		"/v1/metrics, authorization: {credentials: %s}, static_configs: [{targets: [%q]}]}\n", absolute(t, folder+"alerts.yaml"), agent.Token, target.Host)
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	start(ctx, t, dir, prometheus, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+port)
	site.Await(t, "the first scrape", func() error { return query(ctx, port, "coopr_build_info") })
	if err := coopr("cluster", "create", "my-shop", "--template", "shop", "--nodes", "3"); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries++
			site.Await(t, fmt.Sprintf("data for the panel %q: %s", p.Title, target.Expr), func() error { return query(ctx, port, target.Expr) })
		}
	}
	if queries < 20 {
		t.Errorf("the dashboard has %d queries", queries)
	}
	if err := query(ctx, port, `ALERTS{alertstate="firing", severity="critical"}`); !errors.Is(err, errNoData) {
		t.Errorf("critical alerts fire in a healthy mesh: %v", err)
	}
}

var errNoData = errors.New("no data")

// query asks Prometheus, and returns errNoData if the answer has no value that is a number.
func query(ctx context.Context, at, expr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []struct{ Value []any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	for _, r := range answer.Data.Result {
		if len(r.Value) == 2 && r.Value[1] != "NaN" {
			return nil
		}
	}
	return errNoData
}

// start runs a program until the end of the test.
func start(ctx context.Context, t *testing.T, home string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "XDG_") }), "HOME="+home)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			text := out.Bytes()
			t.Logf("%s: %s", filepath.Base(args[0]), text[max(0, len(text)-4000):])
		}
	})
}

// freePort returns an address with a port that nobody had a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
