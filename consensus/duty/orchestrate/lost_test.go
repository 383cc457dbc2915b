package orchestrate

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
)

// TestReplacementAgain checks that the tasks of a replacement by a plan of the template have the address of the node that was lost, and
// not that of an earlier attempt to replace it, unless that one or a restart since had the service run there.
func TestReplacementAgain(t *testing.T) {
	fewer(t)
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.plans = []model.Plan{{Name: "own", Recovers: &model.Recovers{Service: "store", When: model.RecoversReplace},
			Phases: []model.PlanPhase{{Name: "all", Service: "store", Steps: []model.PlanSteps{
				{Node: "default", Tasks: [][]string{{"install", "configure"}, {"start"}}}}}}}}
		l.define(1, "hello")
		p, _, err := l.o.Create(context.Background(), who, model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: model.Int(3)}, false)
		if err != nil {
			t.Fatal(err)
		}
		l.run(p.Operation.ID, never, never)
		id := p.Cluster.ID
		node := func() *model.Node {
			nodes := l.m.View().Nodes("t", id)
			return nodes[slices.IndexFunc(nodes, func(n *model.Node) bool { return slices.Contains(n.Services, "store") })]
		}
		runs := func() bool {
			m := l.machines[node().ID]
			return m != nil && m.services["store"] != nil && m.services["store"].runs
		}
		lost := node().IPAddresses["access_v4"]
		for range rapid.IntRange(2, 4).Draw(t, "tries") {
			before := node().IPAddresses["access_v4"]
			how := rapid.SampledFrom([]string{"fails", "fails late", "succeeds", "fails, and is restarted"}).Draw(t, "how")
			fails := never
			switch how {
			case "fails", "fails, and is restarted":
				fails = func() bool { return node().IPAddresses["access_v4"] != before }
			case "fails late":
				fails = func() bool { return node().IPAddresses["access_v4"] != before && runs() }
			}
			op := l.run(l.do(id, operation.Request{Type: model.OpReplaceNode, Victims: []string{node().ID}, OnFailure: "leave", Forced: true}),
				fails, never)
			if got := op.Parameters[operation.OldIP]; got != lost {
				t.Fatalf("the replacement, which %s, has the address %s, and not %s", how, got, lost)
			}
			if (op.Status == model.OpSucceeded) != (how == "succeeds") && how != "fails late" {
				t.Fatalf("%s: %s", how, op.Status)
			}
			if node().IPAddresses["access_v4"] == before {
				t.Fatal("the new machine has the address of the old one")
			}
			if how == "fails, and is restarted" {
				l.machines[node().ID].services["store"] = &running{by: map[string]int{}} // a person has installed it
				l.restart(id, node().ID, "store")
			}
			if runs() {
				lost = node().IPAddresses["access_v4"]
			}
			seen[how] = true
		}
	})
	for _, how := range []string{"fails", "fails late", "succeeds", "fails, and is restarted"} {
		if !seen[how] && !testing.Short() { // which draws five histories
			t.Errorf("never seen: a replacement that %s", how)
		}
	}
}
