package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/local"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// machines are the folders of nodes that the local provider has, with their records.
func (m *mesh) machines() map[string]local.Record {
	m.t.Helper()
	out := map[string]local.Record{}
	files, err := filepath.Glob(filepath.Join(m.nodes(), "*", "*", "node.json"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		var r local.Record
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			m.t.Fatalf("%s: %v", f, err)
		}
		out[filepath.Dir(f)] = r
	}
	return out
}

// agree waits until the provider's machines match the records, node for node, and the mesh reports
// that.
func (m *mesh) agree() {
	m.t.Helper()
	m.await("providers and records to agree", func() error {
		var r model.OrphanReport
		if err := json.Unmarshal([]byte(m.must("provider", "orphans", "-o", "json")), &r); err != nil {
			return err
		}
		if len(r.Orphans)+len(r.Missing) > 0 {
			return fmt.Errorf("orphans %+v, missing %+v", r.Orphans, r.Missing)
		}
		for _, p := range r.Providers {
			if p.Fault != "" {
				return fmt.Errorf("provider %s: %s", p.Provider, p.Fault)
			}
		}
		return nil
	})
	have := m.machines()
	clusters, _, err := m.api().Clusters(m.context(), client.ClusterFilter{}, client.Read{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, cl := range clusters {
		nodes, _, err := m.api().Nodes(m.context(), cl.ID, client.Page{Limit: 10000}, client.Read{})
		if err != nil {
			m.t.Fatal(err)
		}
		for _, n := range nodes {
			id, _ := n.Results["providerid"].(string)
			if r, ok := have[id]; n.Created && (!ok || r.Node != n.ID) {
				m.t.Errorf("node %s is said to be %s, which is %+v", n.ID, id, r)
			}
			if n.Created {
				delete(have, id)
			}
		}
	}
	if len(have) > 0 {
		m.t.Errorf("the provider has machines that nobody knows: %v", have)
	}
}

// TestOrphans kills agents while machines are made and while they are removed. Afterwards the
// provider's machines match the records. Orphans are found, reported, and removed by policy or by
// hand.
func TestOrphans(t *testing.T) {
	t.Parallel()
	m := startMesh(t, "--orphans-every", "1s", "--orphans-delete", "--orphans-grace", "1s")
	m.must("import", testdata(t, "orphans"))
	op := m.begin(model.CreateCluster{Name: "c", ClusterTemplate: "orphans", NumMachines: 8})
	m.half(op.ID, .15)
	leader := m.leader()
	leader.kill()
	leader.start()
	m.half(op.ID, .3)
	worker := m.follower()
	worker.kill()
	m.succeeds(op.ID)
	worker.start()
	m.ready()
	m.agree()
	if n := len(m.machines()); n != 8 {
		t.Errorf("%d machines were made, not 8", n)
	}

	// Orphans: a machine of a node that the cluster does not have, and one of an unknown cluster,
	// as after a restored snapshot. And a machine that was removed by hand.
	var mesh string
	lost := ""
	for dir, r := range m.machines() {
		mesh, lost = r.Mesh, dir
	}
	if mesh == "" {
		t.Error("machines do not carry the mesh's name")
	}
	stray := m.stray(local.Record{Tenant: "default", Mesh: mesh, Cluster: op.Cluster, Node: op.Cluster + "-stray", Number: 9001, Fence: 3})
	forgotten := m.stray(local.Record{Tenant: "default", Mesh: mesh, Cluster: "99999999", Node: "99999999-n", Number: 1, Fence: 3})
	foreign := m.stray(local.Record{Tenant: "default", Mesh: "others", Cluster: op.Cluster, Node: "x", Number: 9002, Fence: 3})
	if err := os.Rename(lost, lost+".away"); err != nil {
		t.Fatal(err)
	}
	m.await("the policy to remove the stray machine", func() error {
		if _, err := os.Stat(stray); err == nil {
			return errNotYet
		}
		return nil
	})
	m.await("the forgotten and the missing machine to be told of", func() error {
		said := m.must("provider", "orphans")
		for _, want := range []string{forgotten, string(model.OrphanUnknown), lost} {
			if !strings.Contains(said, want) {
				return fmt.Errorf("nothing of %s in:\n%s", want, said)
			}
		}
		if strings.Contains(said, foreign) {
			t.Errorf("another mesh's machine is an orphan of ours:\n%s", said)
		}
		return nil
	})
	if s := m.coopr("provider", "orphans", "--remove", lost, "--yes"); s.code != 3 {
		t.Errorf("a node's machine can be removed as an orphan: exit code %d, %s%s", s.code, s.out, s.err)
	}
	m.must("provider", "orphans", "--remove", forgotten, "--yes")
	for dir, there := range map[string]bool{forgotten: false, foreign: true} {
		if _, err := os.Stat(dir); (err == nil) != there {
			t.Errorf("%s: there is %v, not %v", dir, err == nil, there)
		}
	}
	if log := m.must("audit", "list", "--type", "order.drop_resource", "-o", "json"); !strings.Contains(log, forgotten) ||
		!strings.Contains(log, stray) {
		t.Errorf("the audit log does not tell of the removals:\n%s", log)
	}
	if err := os.Rename(lost+".away", lost); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(foreign); err != nil {
		t.Fatal(err)
	}
	m.agree()

	// The end of the cluster, with a dead leader in the middle of it.
	began, _, err := m.api().Operate(m.context(), op.Cluster, api.Operate{Type: model.OpDelete})
	if err != nil {
		t.Fatal(err)
	}
	m.half(began.Operation.ID, .3)
	leader = m.leader()
	leader.kill()
	m.succeeds(began.Operation.ID)
	leader.start()
	m.ready()
	m.agree()
	if n := len(m.machines()); n != 0 {
		t.Errorf("%d machines are left", n)
	}
	m.stop()
}

// stray makes a machine without the mesh.
func (m *mesh) stray(r local.Record) string {
	m.t.Helper()
	dir := filepath.Join(m.nodes(), r.Cluster, fmt.Sprint(r.Number))
	r.Hostname, r.Address = "stray.local", "127.64.0.250"
	b, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "node.json"), b, 0o644)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return dir
}
