package mesh_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestRecoveryUnderAnOpenOperation removes two machines while a restart of their cluster is paused. Recovery replaces the one whose
// address is in nobody's configuration, at once. It says why the other one has to wait, and replaces it once the restart has failed there.
func TestRecoveryUnderAnOpenOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 12, Verbose: testing.Verbose()})
		m.DefineWatched()
		var tpl map[string]any
		m.Must("GET", "/v1/clustertemplates/trio", nil, &tpl)
		tpl["defaults"].(map[string]any)["config"] = map[string]any{"db": "%ip.access_v4.service.db%"}
		tpl["recovery"] = map[string]any{"max-at-once": "2", "min-replace-delay": 0}
		m.Must("PUT", "/v1/clustertemplates/trio", tpl, nil)
		cluster, op := m.Create("one", 6, "")
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Fatalf("the create ended %s", st)
		}
		m.Until("all to be healthy", func() bool { return m.Well(cluster) == "" })
		op = mesh.Operate(m, cluster, model.OpRestart, map[string]any{})
		m.Must("POST", "/v1/operations/"+op+"/pause", nil, nil)
		m.Until("the pause", func() bool { return m.Operation(op).Status == model.OpPaused })

		nodes := m.Nodes(cluster)
		app, db := nodes[0], nodes[4]
		if app.Services[0] != "app" || db.Services[0] != "db" {
			t.Fatalf("%v and %v", app.Services, db.Services)
		}
		m.World.Raze(app.ID)
		m.World.Raze(db.ID)
		m.Until("the replacement", func() bool { return m.World.Runs(app.ID, "app") })
		m.Until("the reason to wait", func() bool {
			for _, n := range m.Nodes(cluster) {
				if n.ID == db.ID && n.Health != nil && strings.Contains(n.Health.Waits, "the address of node") {
					return true
				}
			}
			return false
		})
		recreated := 0
		for _, o := range m.Operations(cluster) {
			if o.Type == model.OpRecreateNode {
				recreated++
			}
		}
		if st := m.Operation(op).Status; st != model.OpPaused || recreated != 1 {
			t.Fatalf("the restart is %s, and %d operations have replaced machines", st, recreated)
		}
		m.Must("POST", "/v1/operations/"+op+"/resume", nil, nil)
		m.AwaitEnd(op) // it fails at the missing database
		m.Until("the second replacement", func() bool { return m.World.Runs(db.ID, "db") })
		m.Until("no work", func() bool {
			ops := m.Operations(cluster)
			return !slices.ContainsFunc(ops, func(o model.Operation) bool { return !o.Status.Ended() })
		})
		if st := m.AwaitEnd(mesh.Operate(m, cluster, model.OpRestart, map[string]any{})); st != model.OpSucceeded {
			t.Fatalf("the restart, repeated, ended %s", st)
		}
		m.Until("all to be healthy again", func() bool { return m.Well(cluster) == "" })
		if wrong := m.World.Violations(); len(wrong) > 0 || m.World.Machines() != 6 {
			t.Errorf("%d machines; %v", m.World.Machines(), wrong)
		}
	})
}
