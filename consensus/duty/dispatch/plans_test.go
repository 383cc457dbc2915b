package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// TestRandomPlans lets random plans run with random results, orders, changes of
// leader, deaths of agents and faults of the log (docs/spec/plans.md).
func TestRandomPlans(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 15
	}
	orders := 0
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlay(t, uint64(seed))
				p.leader()
				leave := p.enter(2+p.r.IntN(2), 20)
				p.mu.Lock()
				p.faults = rand.New(rand.NewPCG(uint64(seed), 5))
				p.mu.Unlock()
				r := rand.New(rand.NewPCG(uint64(seed), 3))
				for range r.IntN(30) {
					time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
					switch r.IntN(8) {
					case 0:
						p.leader()
					case 1:
						p.hands[r.IntN(len(p.hands))].die()
					case 2, 3, 4:
						p.order()
					}
				}
				p.mu.Lock()
				p.faults = nil
				p.mu.Unlock()
				for _, h := range p.hands {
					h.mu.Lock()
					h.fail = 0
					h.mu.Unlock()
				}
				p.finish()
				leave()
				orders += p.ordered
			})
		})
	}
	if orders < 2*seeds {
		t.Errorf("only %d orders were carried out", orders)
	}
}

// TestCrashAtEveryEntry takes the log of an operation with canaries, a pause and a restart in its course,
// cuts it after each entry, and lets other state machines continue from there: from the entries, or
// from a snapshot of them.
func TestCrashAtEveryEntry(t *testing.T) {
	for seed := range 3 {
		var entries [][]byte
		var whole *play
		synctest.Test(t, func(t *testing.T) {
			p := newPlay(t, uint64(100+seed))
			p.leader()
			leave := p.enter(2, 10)
			for _, o := range []pb.PlanOrder{pb.PlanOrder_PLAN_ORDER_INTERRUPT, pb.PlanOrder_PLAN_ORDER_CONTINUE,
				pb.PlanOrder_PLAN_ORDER_RESTART} {
				time.Sleep(4 * time.Second)
				p.give(&pb.Command{Tenant: "one", Actor: "alice",
					Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: p.op, Order: o}}})
			}
			p.finish()
			leave()
			entries, whole = p.entries, p
		})
		for k := 2; k < len(entries); k++ { // the first one makes the tenant
			synctest.Test(t, func(t *testing.T) {
				m, err := state.New(state.Config{})
				if err != nil {
					t.Fatal(err)
				}
				p := &play{t: t, r: rand.New(rand.NewPCG(uint64(k), 4)), op: whole.op, base: whole.base, tree: whole.tree, machine: m,
					work: works{}, entries: slices.Clone(entries[:k])}
				for i, e := range p.entries {
					p.apply(i+1, e)
				}
				if k%2 == 0 {
					p.reload()
				}
				p.leader()
				leave := p.enter(2, 0)
				p.finish()
				leave()
				if t.Failed() {
					t.Fatalf("seed %d, cut behind entry %d of %d", seed, k, len(entries))
				}
			})
		}
	}
}

// TestPlansShareNodes runs custom plans concurrently with an operation and with each other, on
// the same nodes in opposite orders, with steps on no node between: a node has one task of all of
// them at a time, and all of them end.
func TestPlansShareNodes(t *testing.T) {
	succeeded, onAgents, seeds := 0, 0, 40
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			p := newPlay(t, uint64(1000+seed))
			nodes := slices.Clone(p.base.Nodes)
			var ops []string
			for i := range 3 {
				id := string(model.NewClusterID(1).Operation(2 + i))
				if slices.Reverse(nodes); i == 2 {
					p.r.Shuffle(len(nodes), func(a, b int) { nodes[a], nodes[b] = nodes[b], nodes[a] })
				}
				o, err := tree.Outlines(model.Plan{Name: id, Phases: []model.PlanPhase{
					{Name: "a", Service: "s0", Steps: []model.PlanSteps{{Node: "default", Tasks: [][]string{{"stop", "start"}, {"check"}}}}},
					{Name: "b", Service: "s0", Strategy: "parallel", Steps: []model.PlanSteps{
						{Node: "default", Tasks: [][]string{{"configure"}}}, {Node: "agent", Tasks: [][]string{{"start", "check"}, {"stop"}}}}},
				}}, map[string]tree.Instances{"s0": {Nodes: slices.Clone(nodes), Tasks: []string{"stop", "start", "configure", "check"},
					NotOnAgent: func(string) string { return "" }}})
				if err != nil {
					t.Fatal(err)
				}
				base, d, err := o.Graph()
				if err != nil {
					t.Fatal(err)
				}
				g, err := d.Compile(base)
				if err != nil {
					t.Fatal(err)
				}
				p.must(&pb.Command{Tenant: "one", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
					Operation: logtest.Operation(model.Operation{ID: id, Tenant: "one", Cluster: "00000001", Type: model.OpPlan, Plan: id}),
					Cluster:   logtest.Cluster(model.Cluster{}), Graph: g.Encode(), Tree: logtest.Tree(&d.Tree),
				}}})
				if op, _ := p.machine.View().Operation("one", id); op.Status != model.OpPaused {
					t.Errorf("a plan that nobody has started is %s", op.Status)
				}
				ops = append(ops, id)
			}
			p.faults = rand.New(rand.NewPCG(uint64(seed), 5))
			p.leader()
			leave := p.enter(3, 5)
			r := rand.New(rand.NewPCG(uint64(seed), 6))
			for _, id := range ops {
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				for range 5 { // the log may refuse
					p.give(&pb.Command{Tenant: "one", Actor: "alice",
						Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: id, Order: pb.PlanOrder_PLAN_ORDER_START}}})
				}
				if r.IntN(2) == 0 {
					p.leader()
				}
			}
			time.Sleep(10 * time.Second)
			p.mu.Lock()
			p.faults = nil
			p.mu.Unlock()
			p.finishOperation() // a plan that fails just after it leaves the cluster inconsistent
			time.Sleep(10 * time.Minute)
			for _, id := range ops {
				op, _ := p.machine.View().Operation("one", id)
				if op.Status == model.OpSucceeded {
					succeeded++
					s, _ := p.machine.View().Plan(id)
					for u := range s.Graph.AgentTasks() {
						onAgents++
						if s.Status(uint32(u)) != model.TaskSucceeded {
							t.Errorf("seed %d: %s of plan %s is %s", seed, s.Graph.Name(u), id, s.Status(uint32(u)))
						}
					}
				} else if op.Status != model.OpFailed {
					v, _ := p.machine.View().PlanTree("one", id, time.Now().UnixMilli())
					t.Errorf("seed %d: plan %s is %s:\n%s", seed, id, op.Status, v.Info().Text(id))
				}
			}
			leave()
		})
	}
	if succeeded*6 < seeds*3*5 {
		t.Errorf("only %d of %d plans succeeded", succeeded, seeds*3)
	}
	if onAgents != 3*succeeded {
		t.Errorf("%d tasks on no node were done in %d plans", onAgents, succeeded)
	}
}
