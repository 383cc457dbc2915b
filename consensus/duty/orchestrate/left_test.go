package orchestrate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// really returns the real state of the services on all machines: the definition that they were
// built from, their configuration, and whether they run. It leaves out services whose state is
// uncertain, because the last action on them was not seen to succeed, unless they are in known.
// The keys of these are the services in out, "node/service". Its values report whether the
// service has a configuration: a service that was not configured since its INSTALL has none.
func (l *lab) really(cluster string, known map[string]bool) (out string, these map[string]bool) {
	type service struct {
		Version int
		Config  string
		Runs    bool
	}
	all := map[string]service{}
	these = map[string]bool{}
	for _, n := range l.m.View().Nodes("t", cluster) {
		for name, r := range l.machines[n.ID].services {
			key := n.ID + "/" + name
			if known == nil && !strings.HasSuffix(n.States[name], "?") && n.Marks[name].Config != model.HalfConfigured {
				these[key] = n.States[name] != "INSTALL"
			}
			if config, ok := known[key]; ok {
				these[key] = config
			}
			if config, ok := these[key]; ok {
				all[key] = service{Version: r.version, Runs: r.runs}
				if config {
					all[key] = service{r.version, r.config, r.runs}
				}
			}
		}
	}
	return string(js(all)), these
}

// again requests once more the changes that an operation left undone. If that fails and is rolled
// back, the machines are as they were before. If it succeeds, all changes are done, and every
// service that ran before runs.
func (l *lab) again(id string, req operation.Request, before string) {
	ctx := context.Background()
	never := func() bool { return false }
	req.OnFailure = ""
	for tries := rapid.IntRange(0, 2).Draw(l.t, "tries"); ; tries-- {
		was, known := l.really(id, nil)
		essence := l.essence(id)
		p, _, err := l.o.Operate(ctx, who, id, req)
		if err != nil {
			l.t.Fatal(err)
		}
		left := rapid.IntRange(0, p.Graph.Tasks()).Draw(l.t, "fails again after")
		op := l.run(p.Operation.ID, func() bool { left--; return tries > 0 && left == 0 }, func() bool { return l.halfDone })
		if op.Status == model.OpSucceeded {
			break
		}
		if err := l.o.follow(ctx, op.ID); err != nil {
			l.t.Fatal(err)
		}
		cl, _ := l.m.View().Cluster("t", id)
		if back := l.run(cl.Operation, never, never); back.Status != model.OpSucceeded {
			l.t.Fatalf("the rollback of another try is %s: %s", back.Status, back.Message)
		}
		if is, _ := l.really(id, known); is != was {
			l.t.Fatalf("another try of what was left, rolled back:\nbefore %s\nafter  %s", was, is)
		}
		// A service that was only installed may have come further: nothing undoes that.
		further := strings.NewReplacer(`"INSTALL"`, `"STOP"`, `"CONFIGURE?"`, `"STOP"`, `"INITIALIZE?"`, `"STOP"`)
		if is := l.essence(id); !strings.Contains(essence, "?") && further.Replace(is) != further.Replace(essence) {
			l.t.Fatalf("another try of what was left, rolled back:\nbefore %s\nafter  %s", essence, is)
		}
	}
	l.check(id, "asked again to "+string(req.Type))
	cl, _ := l.m.View().Cluster("t", id)
	if cl.Status != model.ClusterActive || len(cl.Earlier) > 0 {
		l.t.Fatalf("asked again to %s: the cluster is %s, and keeps %d earlier targets", req.Type, cl.Status, len(cl.Earlier))
	}
	var ran, runs struct {
		Nodes map[string]struct{ States map[string]string }
	}
	if json.Unmarshal([]byte(before), &ran) != nil || json.Unmarshal([]byte(l.essence(id)), &runs) != nil {
		l.t.Fatal("what is essential is no JSON")
	}
	for node, n := range ran.Nodes {
		for s, state := range n.States {
			if state == "START" && runs.Nodes[node].States[s] != "START" {
				l.t.Fatalf("asked again to %s: %s on %s ran before and is %s now", req.Type, s, node, runs.Nodes[node].States[s])
			}
		}
	}
}

// order sends an order about the plan of an operation.
func (l *lab) order(op, order, phase string) {
	l.must(&pb.Command{Tenant: "t", Actor: "ann",
		Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: op, Order: logformat.PlanOrders.Number(order), Phase: phase}}})
}

// restart restarts a service on a node by a concurrent operation, and returns the versions whose
// scripts stopped and started it.
func (l *lab) restart(cluster, node, service string) (stopped, started int) {
	never := func() bool { return false }
	p, _, err := l.o.StartConcurrent(context.Background(), who, cluster, model.OpRecover,
		[]operation.Unit{{Node: node, Services: []string{service}}})
	if err != nil {
		l.t.Fatal(err)
	}
	r := l.machines[node].services[service]
	r.by = map[string]int{}
	if op := l.run(p.Operation.ID, never, never); op.Status != model.OpSucceeded {
		l.t.Fatalf("the restart is %s: %s", op.Status, op.Message)
	}
	return r.by["stop"], r.by["start"]
}

// told returns the version and the configuration in the input of a task that belongs to no running
// operation, such as the health check of a service on a node.
func (l *lab) told(cluster, node, service string) (version int, greeting string) {
	v := l.m.View()
	cl, _ := v.Cluster("t", cluster)
	n, _ := v.Node("t", node)
	w, err := operation.NewSource(cl, v.Nodes("t", cluster)).Work("check", "check/x", v.Live(cl, n), nil, model.Start, service)
	if err != nil {
		l.t.Fatal(err)
	}
	var in model.TaskInput
	var config struct{ Greeting string }
	if json.Unmarshal(w.Input, &in) != nil || json.Unmarshal(js(in.Config.Cluster), &config) != nil {
		l.t.Fatalf("not an input: %s", w.Input)
	}
	return versionOf(in), config.Greeting
}

// TestFailureDuringDeployment: services fail during a deployment. A service that the deployment
// has not reached is recovered as it was built, before and after others were deployed. A deployed
// service is recovered as it is now. Then the deployment is completed or rolled back
// (docs/spec/plans.md §8, testFailureDuringDeployment).
func TestFailureDuringDeployment(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l := newLab(t)
		l.define(1, "hello")
		ctx := context.Background()
		never := func() bool { return false }
		p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: 6}, false)
		if err != nil {
			t.Fatal(err)
		}
		id := p.Cluster.ID
		l.run(p.Operation.ID, never, never)
		var web []string
		for _, n := range l.m.View().Nodes("t", id) {
			if slices.Contains(n.Services, "web") {
				web = append(web, n.ID)
			}
		}
		is := func(when, node string, version int, greeting string) {
			t.Helper()
			if stopped, started := l.restart(id, node, "web"); stopped != version || started != version {
				t.Fatalf("%s: web on %s is of version %d, and a restart stops version %d and starts version %d", when, node, version, stopped, started)
			}
			if v, g := l.told(id, node, "web"); v != version || g != greeting {
				t.Fatalf("%s: web on %s is of version %d and greets %q, and is watched as version %d with %q", when, node, version, greeting, v, g)
			}
		}

		// Change both the definition and the configuration.
		l.define(2, "bye")
		l.gated = true
		p, _, err = l.o.Operate(ctx, who, id, operation.Request{Type: model.OpSyncTemplate, Rollout: model.Rollout{Strategy: "canary"}})
		if err != nil {
			t.Fatal(err)
		}
		op := p.Operation.ID
		l.run(op, never, never)
		for _, n := range web {
			is("before the first canary", n, 1, "hello")
		}
		l.order(op, "continue", "nodes")
		l.run(op, never, never)
		deployed := 0
		for _, n := range web {
			version, greeting := l.machines[n].services["web"].version, "hello"
			if version == 2 {
				greeting = "bye"
				deployed++
			}
			is("after the first canary", n, version, greeting)
		}
		if deployed != 1 {
			t.Fatalf("%d nodes were deployed, not 1", deployed)
		}

		switch rapid.SampledFrom([]string{"go on", "roll back", "leave"}).Draw(t, "then") {
		case "go on":
			l.order(op, "continue", "nodes")
			if op := l.run(op, never, never); op.Status != model.OpSucceeded {
				t.Fatal(op.Status, op.Message)
			}
			l.check(id, "deployed")
			for _, n := range web {
				is("deployed", n, 2, "bye")
			}
			return
		case "roll back":
			l.must(&pb.Command{Tenant: "t", Actor: "ann",
				Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: op,
					Order: pb.OperationOrder_OPERATION_ORDER_ROLLBACK}}})
			if err := l.o.follow(ctx, op); err != nil {
				t.Fatal(err)
			}
			cl, _ := l.m.View().Cluster("t", id)
			if back := l.run(cl.Operation, never, never); back.Status != model.OpSucceeded {
				t.Fatal(back.Status, back.Message)
			}
			l.check(id, "rolled back")
			for _, n := range web {
				is("rolled back", n, 1, "hello")
			}
			return
		}
		// The leftovers of an aborted operation stay as they are during operations on other
		// things, until the same change is requested again.
		l.must(&pb.Command{Tenant: "t", Actor: "ann",
			Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: op,
				Order: pb.OperationOrder_OPERATION_ORDER_ABORT}}})
		l.gated = false
		for _, req := range []operation.Request{{Type: model.OpRestart},
			{Type: model.OpReplaceNode, Victims: web[3:4], Forced: true, OnFailure: "leave"}} {
			p, _, err = l.o.Operate(ctx, who, id, req)
			if err != nil {
				t.Fatal(err)
			}
			if op := l.run(p.Operation.ID, never, never); op.Status != model.OpSucceeded {
				t.Fatal(req.Type, op.Status, op.Message)
			}
			if cl, _ := l.m.View().Cluster("t", id); cl.Status != model.ClusterInconsistent {
				t.Fatalf("after a %s of what was left half done the cluster is %s", req.Type, cl.Status)
			}
			for i, n := range web {
				version, greeting := l.machines[n].services["web"].version, "hello"
				if version == 2 {
					greeting = "bye"
				}
				if req.Type == model.OpReplaceNode && i == 3 != (version == 2 && i == 3) || i != 3 && (version == 2) != (i == 0) {
					t.Fatalf("%s: web on %s is of version %d", req.Type, n, version)
				}
				is("left", n, version, greeting)
			}
		}
		l.again(id, operation.Request{Type: model.OpSyncTemplate}, l.essence(id))
	})
}
