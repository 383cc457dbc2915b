package mesh_test

import (
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestSupersede has a new configuration take the place of one that is being rolled out by agents that work: the tasks that run end without
// being cancelled, the first operation is superseded, and the second one brings all nodes to its target, although the leader dies meanwhile.
func TestSupersede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 12, Verbose: testing.Verbose()})
		mesh.DefineUnrecovered(m)
		cluster, op := m.Create("one", 5, "")
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		configure := func(more string, supersede bool) string {
			return mesh.Operate(m, cluster, model.OpConfigure, map[string]any{"supersede": supersede, "config": map[string]any{
				"db": "%ip.access_v4.service.db%", "apps": "%ip.access_v4.service.app%", "more": more,
			}})
		}
		first := configure("x", false)
		next := configure("y", true)
		leader := m.AwaitLeader()
		leader.Crash()
		m.Until("another leader", func() bool { return m.Leader() != nil && m.Leader() != leader })
		leader.Start()
		if st := m.AwaitEnd(next); st != model.OpSucceeded {
			t.Fatalf("the second operation ended %s: %s", st, m.Operation(next).Message)
		}
		if was := m.Operation(first); was.Status != model.OpSuperseded || was.SupersededBy != next {
			t.Fatalf("the first operation is %s by %q: %s", was.Status, was.SupersededBy, was.Message)
		}
		if cl := mesh.Cluster(m, cluster); cl.Status != model.ClusterActive || cl.Config["more"] != "y" {
			t.Fatalf("the cluster is %s with %v", cl.Status, cl.Config)
		}
		m.Until("all to be healthy", func() bool { return m.Well(cluster) == "" })
		m.CheckAll()
	})
}
