package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// importWatched imports the example with shorter intervals for health checks and recovery.
func (m *mesh) importWatched() {
	m.t.Helper()
	m.importShop()
	more := map[string]string{
		"services":         "\nhealth-check: {interval: 500, timeout: 5s, max-consecutive-failures: 2, grace-period: 1s}\n",
		"clustertemplates": "\nrecovery: {backoff: 2s, max-backoff: 5s, max-at-once: \"50%\"}\n",
	}
	for kind, text := range more {
		files, err := filepath.Glob("../../examples/shop/" + kind + "/*.yaml")
		if err != nil || len(files) == 0 {
			m.t.Fatalf("%s: %v", kind, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				m.t.Fatal(err)
			}
			out := filepath.Join(m.t.TempDir(), filepath.Base(f))
			if err := os.WriteFile(out, append(b, text...), 0o600); err != nil {
				m.t.Fatal(err)
			}
			m.must("import", out)
		}
	}
}

// nodeIs waits until a node's health is as wanted.
func (m *mesh) nodeIs(id, want string) *model.Node {
	m.t.Helper()
	var n model.Node
	m.await("node "+id+" to be "+want, func() (err error) {
		if n, _, err = m.api().Node(m.context(), id, client.Read{}); err == nil && n.Health.Status() != want {
			err = fmt.Errorf("%w: it is %q: %+v", errNotYet, n.Health.Status(), n.Health)
		}
		return err
	})
	return &n
}

// succeeded counts the operations of a type that succeeded.
func (m *mesh) succeeded(cluster string, typ model.OperationType) int {
	m.t.Helper()
	ops, _, err := m.api().Operations(m.context(), cluster, nil, client.Page{}, client.Read{})
	if err != nil {
		m.t.Fatal(err)
	}
	n := 0
	for _, op := range ops {
		if op.Type == typ && op.Status == model.OpSucceeded {
			n++
		}
	}
	return n
}

// killNode kills everything that runs in a node's folder, its supervisor too.
func (m *mesh) killNode(n *model.Node) {
	m.t.Helper()
	list, err := processes(m.nodes())
	if err != nil {
		m.t.Fatal(err)
	}
	dir, killed := filepath.Join(m.nodes(), n.Cluster, strconv.Itoa(n.Number)), 0
	for _, p := range list {
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.pid)); err == nil && strings.HasPrefix(at+"/", dir+"/") {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
			killed++
		}
	}
	if killed == 0 {
		m.t.Fatalf("nothing runs in %s", dir)
	}
}

// TestReadiness: a started service is STARTED until its check succeeds. Dependent services wait,
// also across a change of leader.
func TestReadiness(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importShop()
	b, err := os.ReadFile("../../examples/shop/services/shop-web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const check = "          coopr-node status shop-web\n          shop check"
	text := strings.Replace(string(b), check, "          test -e etc/ready\n"+check, 1)
	if text == string(b) {
		t.Fatal("shop-web.yaml has another check")
	}
	file := filepath.Join(t.TempDir(), "shop-web.yaml")
	if err := os.WriteFile(file, []byte(text+"\nreadiness-check: {interval: 300}\nhealth-check: {off: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.must("import", file)
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "4", "--yes", "--detach")
	shown := func(want string) {
		t.Helper()
		m.await("the plan to show "+want, func() error {
			if out := m.must("plan", "show", "shop", "deploy"); !strings.Contains(out, want) {
				return fmt.Errorf("%w:\n%s", errNotYet, out)
			}
			return nil
		})
	}
	shown("start, check] (STARTED)")
	leader := m.leader()
	leader.kill()
	shown("start, check] (STARTED)")
	cl, _, err := m.api().Cluster(m.context(), "shop", client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range cl.Nodes {
		n := &cl.Nodes[i]
		if slices.Contains(n.Services, "shop-balancer") && n.States["shop-balancer"] == "START" {
			t.Error("the balancer was started before the web servers were ready")
		}
		if slices.Contains(n.Services, "shop-web") {
			if err := os.WriteFile(filepath.Join(m.nodes(), cl.ID, strconv.Itoa(n.Number), "etc", "ready"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	shown("deploy (dependency strategy) (COMPLETE)")
	leader.start()
	m.ready()
	m.await("the shop to answer", func() error { _, err := m.page("shop"); return err })
	m.must("cluster", "delete", "shop", "--yes")
	m.stop()
}

// TestRecovery kills a web server, removes a machine, and pauses a node. The shop recovers
// automatically or follows the orders, and the audit log has the records.
func TestRecovery(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importWatched()
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "5", "--yes")
	cl, _, err := m.api().Cluster(m.context(), "shop", client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	var webs []*model.Node
	for i := range cl.Nodes {
		m.nodeIs(cl.Nodes[i].ID, "healthy")
		if slices.Contains(cl.Nodes[i].Services, "shop-web") {
			webs = append(webs, &cl.Nodes[i])
		}
	}

	m.killNode(webs[0])
	m.await("its web server to be started again", func() error {
		if m.succeeded(cl.ID, model.OpRecover) == 0 {
			return errNotYet
		}
		return nil
	})
	m.nodeIs(webs[0].ID, "healthy")

	// A machine that is taken away while nobody leads.
	leader := m.leader()
	leader.kill()
	m.killNode(webs[1])
	if err := os.RemoveAll(filepath.Join(m.nodes(), cl.ID, strconv.Itoa(webs[1].Number))); err != nil {
		t.Fatal(err)
	}
	m.await("the machine to be made anew", func() error {
		if m.succeeded(cl.ID, model.OpReplaceNode) == 0 {
			return errNotYet
		}
		return nil
	})
	if now := m.nodeIs(webs[1].ID, "healthy"); now.States["shop-web"] != "START" {
		t.Errorf("%v", now.States)
	}
	leader.start()
	m.ready()
	m.await("the shop to answer", func() error { _, err := m.page("shop"); return err })

	m.must("node", "pause", "shop", webs[2].ShortName())
	m.nodeIs(webs[2].ID, "paused")
	if out := m.must("cluster", "get", "shop"); !strings.Contains(out, "1 paused") {
		t.Errorf("cluster get says nothing of the pause:\n%s", out)
	}
	m.must("node", "resume", "shop", webs[2].ShortName())
	m.nodeIs(webs[2].ID, "healthy")
	m.must("node", "restart", "shop", webs[2].ShortName(), "shop-web")
	m.nodeIs(webs[2].ID, "healthy")
	if out := m.must("plan", "show", "shop", "recovery"); !strings.Contains(out, "recovery (parallel strategy) (COMPLETE)") ||
		!strings.Contains(out, webs[2].ShortName()) {
		t.Errorf("the plan recovery:\n%s", out)
	}

	// Paused, recovery leaves things as they are; then it does not.
	m.must("cluster", "pause-recovery", "shop", "--reason", "a test")
	m.killNode(webs[0])
	n := m.nodeIs(webs[0].ID, "unhealthy")
	if !strings.Contains(n.Health.Waits, "paused") {
		t.Errorf("%+v", n.Health)
	}
	m.must("cluster", "resume-recovery", "shop")
	m.nodeIs(webs[0].ID, "healthy")

	audit := m.must("audit", "list", "--cluster", "shop", "-o", "json")
	for _, want := range []string{`"health.changed"`, webs[1].ID, `"recover"`, `"replace-node"`} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit log does not tell of %s", want)
		}
	}
	m.must("cluster", "delete", "shop", "--yes")
	m.stop()
}
