package mesh_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestGoneWithoutRecovery removes a machine, and restarts the cluster before anybody can know. The
// restart and its rollback fail there. Recovery is off, so that nobody would ask the provider
// otherwise; the mesh asks it because of the failure, repeats the rollback without the node, and
// names the order that makes the machine again.
func TestGoneWithoutRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 11, Verbose: testing.Verbose()})
		mesh.DefineUnrecovered(m)
		cluster, op := m.Create("one", 5, "")
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		var dead model.Node
		for _, n := range m.Nodes(cluster) {
			if n.Services[0] == "app" {
				dead = n
			}
		}
		m.World.Raze(dead.ID)
		op = mesh.Operate(m, cluster, model.OpConfigure, map[string]any{"config": map[string]any{
			"db": "%ip.access_v4.service.db%", "apps": "%ip.access_v4.service.app%", "more": "x",
		}})
		m.Until("the rollback without the machine", func() bool { return m.Operation(op).Status == model.OpRolledBack })
		cl := mesh.Cluster(m, cluster)
		if cl.Status != model.ClusterInconsistent || !strings.Contains(cl.Message, "coopr node replace one ") {
			t.Fatalf("the cluster is %s: %s", cl.Status, cl.Message)
		}
		op = mesh.Operate(m, cluster, model.OpReplaceNode, map[string]any{"nodeNames": []string{dead.ID}, "forced": true})
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the replacement ended %s", st)
		}
		if cl := mesh.Cluster(m, cluster); cl.Status != model.ClusterActive {
			t.Fatalf("with a new machine the cluster is %s: %s", cl.Status, cl.Message)
		}
		m.Until("all to be healthy", func() bool { return m.Well(cluster) == "" })
		m.CheckAll()
	})
}
