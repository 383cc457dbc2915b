package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// importShop imports the example's definitions.
func (m *mesh) importShop() {
	m.t.Helper()
	shop, err := filepath.Abs("../../examples/shop")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, kind := range []string{"providers", "hardwaretypes", "imagetypes", "services", "clustertemplates"} {
		m.must("import", filepath.Join(shop, kind))
	}
}

// importWeb imports the example's web server with one thing of it changed.
func (m *mesh) importWeb(old, changed string) {
	m.t.Helper()
	b, err := os.ReadFile("../../examples/shop/services/shop-web.yaml")
	if err != nil {
		m.t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), old, changed)
	if text == string(b) {
		m.t.Fatalf("shop-web.yaml does not say %q any more", old)
	}
	file := filepath.Join(m.t.TempDir(), "shop-web.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.must("import", file)
}

// numbered returns the numbers of a cluster's nodes.
func (m *mesh) numbered(cluster string) (out []int) {
	m.t.Helper()
	cl, _, err := m.api().Cluster(m.context(), cluster, client.Read{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, n := range cl.Nodes {
		out = append(out, n.Number)
	}
	return out
}

// TestChange grows, shrinks, repairs, upgrades and rolls back a shop of real processes. Failed
// operations are rolled back automatically.
func TestChange(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importShop()
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "4", "--yes")
	answers := func(when string) {
		t.Helper()
		m.await("the shop to answer, "+when, func() error { // its balancer skips for a moment what did not answer it
			page, err := m.page("shop")
			if err == nil && !strings.Contains(page, "Welcome to the shop") {
				err = errors.New(page)
			}
			return err
		})
	}
	nodesAre := func(when string, want ...int) {
		t.Helper()
		if got := m.numbered("shop"); !slices.Equal(got, want) {
			t.Errorf("%s: nodes %v, not %v", when, got, want)
		}
		answers(when)
	}
	if out := m.must("cluster", "grow", "shop", "--nodes", "2", "--dry-run"); !strings.Contains(out, "new") || len(m.numbered("shop")) != 4 {
		t.Errorf("a dry run:\n%s", out)
	}
	m.must("cluster", "grow", "shop", "--nodes", "2")
	nodesAre("grown", 1000, 1001, 1002, 1003, 1004, 1005)
	m.must("cluster", "shrink", "shop", "1004", "--yes")
	nodesAre("shrunk", 1000, 1001, 1002, 1003, 1005)
	before := m.plain("shop-web")
	m.must("cluster", "replace-node", "shop", "1003", "--yes")
	nodesAre("with a node replaced", 1000, 1001, 1002, 1003, 1005)
	gone := 0
	for pid := range before {
		if !m.plain("shop-web")[pid] {
			gone++
		}
	}
	if gone != 1 {
		t.Errorf("replacing one node ended %d web servers", gone)
	}
	m.must("cluster", "configure", "shop", "--set", "shop.greeting=Welcome to the shop, stranger")
	answers("configured")

	// A definition that does not start: the upgrade is rolled back automatically.
	m.importWeb("shop check --wait 20s", "exit 1; shop check --wait 20s")
	if s := m.coopr("cluster", "upgrade", "shop", "--yes"); s.code != 1 || !strings.Contains(s.err, "rolled back") {
		t.Errorf("a broken upgrade: exit code %d\n%s%s", s.code, s.out, s.err)
	}
	answers("after a broken upgrade")
	m.importWeb("mkdir -p etc", "mkdir -p etc/new")
	m.must("cluster", "upgrade", "shop")
	answers("upgraded")
	if out := m.must("cluster", "upgrade", "shop"); !strings.Contains(strings.ToLower(out), "nothing to do") {
		t.Errorf("an upgrade to what there is:\n%s", out)
	}
	m.must("cluster", "rollback", "shop", "--to", "1", "--yes")
	nodesAre("rolled back to the beginning", 1000, 1001, 1002, 1003)
	if out := m.must("cluster", "diff", "shop", "1", "0"); strings.Contains(out, "config") || strings.Contains(out, "services") {
		t.Errorf("the shop is not what it was:\n%s", out)
	}
	m.must("cluster", "delete", "shop", "--yes")
	m.stop()
}

// TestKillWhileRollingBack kills the leader during the rollback of a failed operation. The rollback
// completes, once.
func TestKillWhileRollingBack(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.importShop()
	m.must("cluster", "create", "shop", "--template", "shop", "--nodes", "8", "--yes")
	m.importWeb("shop check --wait 20s", "exit 1; shop check --wait 20s")
	if s := m.coopr("cluster", "upgrade", "shop", "--yes", "--detach"); s.code != 0 {
		t.Fatalf("upgrade: %s%s", s.out, s.err)
	}
	cl, _, err := m.api().Cluster(m.context(), "shop", client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	failed := cl.ID + "-002"
	m.await("the upgrade to be rolled back", func() error {
		op, _, err := m.api().Operation(m.context(), failed, client.Read{})
		if err == nil && op.Status != model.OpRollingBack && !op.Status.Ended() {
			err = errNotYet
		}
		return err
	})
	leader := m.leader()
	leader.kill()
	m.await("the end of the rollback", func() error {
		op, _, err := m.api().Operation(m.context(), failed, client.Read{})
		if err == nil && op.Status != model.OpRolledBack {
			err = fmt.Errorf("%w: the upgrade is %s: %s", errNotYet, op.Status, op.Message)
		}
		return err
	})
	leader.start()
	m.ready()
	ops, _, err := m.api().Operations(m.context(), cl.ID, nil, client.Page{}, client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	rollbacks := 0
	for _, op := range ops {
		if op.Type == model.OpRollback {
			rollbacks++
		}
	}
	if rollbacks != 1 {
		t.Errorf("%d rollbacks of one operation", rollbacks)
	}
	m.await("the shop to answer", func() error { _, err := m.page("shop"); return err })
	m.must("cluster", "delete", "shop", "--yes")
	m.stop()
}

// TestPauseAndRollback stops and rolls back a growth on an operator's order.
func TestPauseAndRollback(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", 6)
	m.succeeds(op.ID)
	started, _, err := m.api().Operate(m.context(), op.Cluster, api.Operate{Type: model.OpGrow, Change: model.ChangeCluster{Nodes: 6}})
	if err != nil {
		t.Fatal(err)
	}
	m.half(started.Operation.ID, .3)
	m.must("operation", "rollback", started.Operation.ID, "--reason", "not tonight", "--yes")
	m.ends(started.Operation.ID, model.OpRolledBack)
	if got := m.numbered(op.Cluster); len(got) != 6 {
		t.Errorf("after the rollback there are nodes %v", got)
	}
	m.await("the cluster to be active", func() error {
		cl, _, err := m.api().Cluster(m.context(), op.Cluster, client.Read{})
		if err == nil && cl.Status != model.ClusterActive {
			err = errors.Join(errNotYet, fmt.Errorf("it is %s", cl.Status))
		}
		return err
	})
	m.remove(op.Cluster)
	m.stop()
}
