package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestRecoveryUnderAnOpenOperation removes two machines while a restart of their cluster is paused. Recovery replaces both meanwhile,
// and all others are configured for the new addresses.
func TestRecoveryUnderAnOpenOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 12, Verbose: testing.Verbose()})
		m.DefineWatched()
		var tpl map[string]any
		m.Must("GET", "/v1/clustertemplates/trio", nil, &tpl)
		tpl["recovery"] = map[string]any{"max-at-once": "3", "min-replace-delay": 0}
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
		m.Until("the replacements", func() bool { return m.World.Runs(app.ID, "app") && m.World.Runs(db.ID, "db") })
		recreated := func() (all, open int) {
			for _, o := range m.Operations(cluster) {
				if o.Type == model.OpRecreateNode {
					all++
					if !o.Status.Ended() {
						open++
					}
				}
			}
			return all, open
		}
		m.Until("the ends of the replacements", func() bool { _, open := recreated(); return open == 0 })
		if all, _ := recreated(); m.Operation(op).Status != model.OpPaused || all != 2 {
			t.Errorf("the restart is %s, and %d operations have replaced machines", m.Operation(op).Status, all)
		}
		m.Must("POST", "/v1/operations/"+op+"/resume", nil, nil)
		if st := m.AwaitEnd(op); st != model.OpSucceeded {
			t.Errorf("the restart ended %s", st)
		}
		m.Until("all to be healthy again", func() bool { return m.Well(cluster) == "" })
		if n := m.World.Machines(); n != 6 {
			t.Errorf("there are %d machines", n)
		}
		m.CheckAll()
	})
}

// TestRecreateAnywhere removes machines at random moments of operations that are paused and resumed, while leaders die. Recovery replaces
// them, before, during or after the operation. In the end each service has the addresses and the configuration that it is to have.
func TestRecreateAnywhere(t *testing.T) {
	from, n := *first, (*seeds+19)/20 // a life takes as long as several of TestSeeds
	if *oneSeed != 0 {
		from, n = *oneSeed, 1
	}
	for seed := from; seed < from+uint64(n); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { recreateAnywhere(t, seed) })
		})
	}
}

func recreateAnywhere(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 21))
	m := mesh.New(t, mesh.Options{Agents: 3, Seed: seed, Verbose: *oneSeed != 0 && testing.Verbose()})
	m.DefineWatched()
	var tpl map[string]any
	m.Must("GET", "/v1/clustertemplates/trio", nil, &tpl)
	tpl["recovery"] = map[string]any{"max-at-once": fmt.Sprint(1 + rng.IntN(3)), "min-replace-delay": 0}
	m.Must("PUT", "/v1/clustertemplates/trio", tpl, nil)
	cluster, op := m.Create("one", 5+rng.IntN(3), "")
	if st := m.AwaitEnd(op); st != model.OpSucceeded {
		t.Fatalf("the create ended %s", st)
	}
	m.Until("all to be healthy", func() bool { return m.Well(cluster) == "" })

	config := map[string]any{"db": "%ip.access_v4.service.db%", "apps": "%ip.access_v4.service.app%", "more": "x"}
	kind, body := model.OpRestart, map[string]any{}
	if rng.IntN(3) > 0 {
		kind, body = model.OpConfigure, map[string]any{"config": config, "strategy": []string{"serial", "parallel"}[rng.IntN(2)]}
	}
	op = mesh.Operate(m, cluster, kind, body)
	order := func(name string) { m.Ask("POST", "/v1/operations/"+op+"/"+name, nil, nil) }
	nap := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
	nodes := m.Nodes(cluster)
	for range 1 + rng.IntN(2) {
		nap(5 * time.Second)
		order([]string{"pause", "pause", "resume"}[rng.IntN(3)])
		nap(3 * time.Second)
		m.World.Raze(nodes[rng.IntN(len(nodes))].ID)
		if rng.IntN(3) == 0 {
			m.Havoc(rng, 1, 5*time.Second)
		}
		nap(20 * time.Second)
	}
	whole := func() bool { // all machines are there, and nothing is at work
		if m.Operation(op).Status == model.OpPaused {
			order("resume") // also after it has failed on a machine that was gone
		}
		return m.World.Machines() == len(nodes) && !slices.ContainsFunc(m.Operations(cluster),
			func(o model.Operation) bool { return !o.Status.Ended() })
	}
	m.Until("all machines", whole)
	for range 2 { // a restart that has failed is repeated, or undone by a roll-back
		cl := mesh.Cluster(m, cluster)
		if st := m.Operation(op).Status; st == model.OpSucceeded && cl.Status == model.ClusterActive {
			break
		}
		t.Logf("after %s the cluster is %s: %s", m.Operation(op).Status, cl.Status, cl.Message)
		if cl.Status == model.ClusterFailed {
			op = mesh.Operate(m, cluster, model.OpRollback, map[string]any{"to": 1})
		} else {
			op = mesh.Operate(m, cluster, kind, body)
		}
		m.Until("the end of the next operation", whole)
	}
	m.Until("all to be healthy again", func() bool { return m.Well(cluster) == "" })
	if cl := mesh.Cluster(m, cluster); cl.Status != model.ClusterActive || m.World.Machines() != len(nodes) {
		t.Errorf("seed %d: the cluster is %s (%s) with %d machines", seed, cl.Status, cl.Message, m.World.Machines())
	}
	m.CheckAll()
}
