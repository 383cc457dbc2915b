package shop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/local/machine"
)

// site is a shop that is built by its own scripts, run here one after the other in an order that a
// plan could have.
type site struct {
	t        *testing.T
	bin, dir string
	actions  map[string]map[string]model.ServiceAction
	config   map[string]any
	nodes    []macro.Node
}

// newSite creates three empty nodes: a balancer, a web server and a store.
func newSite(t *testing.T) *site {
	s := &site{t: t, bin: t.TempDir(), dir: t.TempDir(), actions: map[string]map[string]model.ServiceAction{}}
	build := exec.Command("go", "build", "-o", s.bin, "./cmd/shop", "../../plugins/provider/coopr-node")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the shop: %v\n%s", err, out)
	}
	s.slow()
	p, err := create(t, 3)
	if err != nil {
		t.Fatal(err)
	}
	s.config = p.Cluster.Config
	for name, d := range p.Cluster.Definitions {
		s.actions[name] = d.Provisioner.Actions
	}
	h := fnv.New32a()
	h.Write([]byte(s.dir)) // addresses that a concurrent test is unlikely to use
	for i, n := range p.Nodes {
		address := fmt.Sprintf("127.%d.%d.%d", 128+h.Sum32()%64, h.Sum32()>>8%256, 1+i)
		s.nodes = append(s.nodes, macro.Node{Number: n.Number, Hostname: n.Hostname, Services: n.Services,
			IPAddresses: map[string]string{"access_v4": address, "bind_v4": address}})
		dir := s.nodeDir(s.nodes[i])
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := machine.Shutdown(context.Background(), dir, 5*time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	return s
}

// slow puts a script in the program's place that starts servers late, as a busy machine does.
func (s *site) slow() {
	s.t.Helper()
	at, script := filepath.Join(s.bin, "shop"), `#!/bin/sh
case $1 in store | web | balancer) sleep .5 ;; esac
exec shop-itself "$@"
`
	if err := errors.Join(os.Rename(at, at+"-itself"), os.WriteFile(at, []byte(script), 0o755)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) nodeDir(n macro.Node) string { return filepath.Join(s.dir, fmt.Sprint(n.Number)) }

func (s *site) node(service string) macro.Node {
	i := slices.IndexFunc(s.nodes, func(n macro.Node) bool { return slices.Contains(n.Services, service) })
	if i < 0 {
		s.t.Fatalf("no node has %s", service)
	}
	return s.nodes[i]
}

// run runs an action's script on the node of the service, as the shell automator does, and returns
// its output.
func (s *site) run(service, action string) (string, error) {
	s.t.Helper()
	n := s.node(service)
	config, err := macro.ExpandConfig(s.config, macro.Context{Cluster: macro.NewCluster("me", s.nodes), Self: n.Number})
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"cluster": config})
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.dir, "config.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
	script, _ := s.actions[service][action].Fields["script"].(string)
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = s.nodeDir(n)
	cmd.Env = []string{"PATH=" + s.bin + ":" + os.Getenv("PATH"), "COOPR_NODE_DIR=" + cmd.Dir, "COOPR_CONFIG=" + file,
		"COOPR_IP=" + n.IPAddresses["access_v4"], "COOPR_HOSTNAME=" + n.Hostname, "COOPR_SERVICE=" + service, "COOPR_ACTION=" + action}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return out.String(), err
}

// must runs actions in order, each twice, because a script may be repeated at any time.
func (s *site) must(service string, actions ...string) {
	s.t.Helper()
	for _, a := range actions {
		for range 2 {
			if out, err := s.run(service, a); err != nil {
				s.t.Fatalf("%s %s: %v\n%s", service, a, err, out)
			}
		}
	}
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

// page fetches the shop's page through the balancer.
func (s *site) page() string {
	s.t.Helper()
	url := "http://" + s.node("shop-balancer").IPAddresses["access_v4"] + ":8080/"
	resp, err := client.Get(url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, b)
}

func (s *site) expect(want ...string) {
	s.t.Helper()
	got := s.page()
	for _, w := range want {
		if !strings.Contains(got, w) {
			s.t.Errorf("no %q in the page: %s", w, got)
		}
	}
}

// TestLife runs every script of the example, from empty nodes to empty nodes, without an agent.
func TestLife(t *testing.T) {
	s := newSite(t)
	tiers := []string{"shop-store", "shop-web", "shop-balancer"}
	for _, tier := range tiers {
		s.must(tier, "install", "configure")
	}
	s.must("shop-store", "initialize", "start")
	s.must("shop-web", "start")
	s.must("shop-balancer", "start", "check")
	s.expect("200 ", "Welcome to the shop", "visitor number <b>1</b>", "coffee",
		s.node("shop-balancer").Hostname+" asked "+s.node("shop-web").Hostname+", which asked "+s.node("shop-store").Hostname)

	// With new settings the web server's greeting changes and no data is lost.
	s.config = maps.Clone(s.config)
	s.config["shop"] = maps.Clone(s.config["shop"].(map[string]any))
	s.config["shop"].(map[string]any)["greeting"] = `"Two for one" & more`
	for _, tier := range tiers {
		s.must(tier, "configure")
	}
	s.must("shop-web", "check")
	s.must("shop-balancer", "check")
	s.expect("200 ", "&#34;Two for one&#34; &amp; more", "visitor number <b>2</b>")

	// The count survives a stop and a start.
	for i := len(tiers); i > 0; i-- {
		s.must(tiers[i-1], "stop")
		if out, err := s.run(tiers[i-1], "check"); err == nil {
			t.Errorf("%s is stopped, and its check says: %s", tiers[i-1], out)
		}
	}
	for _, tier := range tiers {
		s.must(tier, "start")
	}
	s.expect("visitor number <b>3</b>")

	// A web server that cannot start reports why.
	s.must("shop-web", "stop")
	if err := os.WriteFile(filepath.Join(s.nodeDir(s.node("shop-web")), "etc/web.conf"), []byte("store = nowhere\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start := s.actions["shop-web"]["start"].Fields
	start["script"] = strings.Replace(start["script"].(string), "--wait 20s", "--wait 1s", 1)
	if out, err := s.run("shop-web", "start"); err == nil || !strings.Contains(out, `"nowhere": want http://HOST:PORT`) {
		t.Errorf("with bad settings: %v\n%s", err, out)
	}

	for _, tier := range tiers {
		s.must(tier, "remove")
		dir := s.nodeDir(s.node(tier))
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && (strings.HasSuffix(path, ".conf") || strings.HasSuffix(path, ".db")) {
				t.Errorf("%s is left behind", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
