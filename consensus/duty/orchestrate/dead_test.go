package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/duty/recovery"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	decide "github.com/coopr/coopr/engine/recovery"
	"github.com/coopr/coopr/engine/solver"
	pb "github.com/coopr/coopr/rpc/proto"
)

// raze removes the machine of a node without notice.
func (l *lab) raze(id string) {
	delete(l.machines, id)
	l.razed[id] = true
}

// notice reports a machine that died as gone, if an agent would ask its provider about it.
func (l *lab) notice(id string) {
	n, ok := l.m.View().Node("t", id)
	if !ok || !n.Created || !n.Confirmed || n.Broken || !l.razed[id] {
		return
	}
	l.must(&pb.Command{Actor: model.Self, Change: &pb.Command_ReportHealth{ReportHealth: &pb.ReportHealth{Changes: []*pb.HealthChange{
		{Tenant: "t", Node: id, Version: n.Version, Machine: pb.Machine_MACHINE_GONE},
	}}}})
}

// noticeAll notices all machines that died.
func (l *lab) noticeAll() {
	for _, id := range slices.Sorted(maps.Keys(l.razed)) {
		l.notice(id)
	}
}

// gone returns the nodes of a cluster that are known to have no machine.
func (l *lab) gone(cluster string) []*model.Node {
	v := l.m.View()
	var out []*model.Node
	for _, n := range v.Nodes("t", cluster) {
		if h := v.Health("t", n.ID); h != nil && h.Machine == model.MachineGone {
			out = append(out, n)
		}
	}
	return out
}

// follows carries out everything that follows by itself: operations under way, rollbacks and other
// operations that follow, and recovery.
func (l *lab) follows(cluster string, fails func() bool) {
	ctx := context.Background()
	for range 100 {
		_, was := l.last(cluster)
		if !was.Status.Ended() && was.Status != model.OpRollingBack {
			l.run(was.ID, fails, func() bool { return l.halfDone })
		}
		if _, err := l.o.reconcile(ctx, cluster); err != nil {
			l.t.Fatal(err)
		}
		cl, is := l.last(cluster)
		if is.ID != was.ID || !is.Status.Ended() {
			continue
		}
		if !l.recovers(cl, fails) {
			return
		}
	}
	cl, op := l.last(cluster)
	in, _ := recovery.Snapshot(l.m.View(), cl, int64(l.index)+1<<40)
	l.t.Fatalf("the cluster never comes to rest: it is %s: %s; %s is %s: %s; recovery: %+v", cl.Status, cl.Message, op.Type, op.Status, op.Message,
		decide.Decide(in))
}

// recovers does what the recovery of a cluster would do now. It reports false if that is nothing.
func (l *lab) recovers(cl *model.Cluster, fails func() bool) bool {
	in, ok := recovery.Snapshot(l.m.View(), cl, int64(l.index)+1<<40)
	if !ok {
		return false
	}
	d := decide.Decide(in)
	ctx, who := context.Background(), model.Caller{Tenant: "t", Actor: model.Self, Role: model.RoleAdmin}
	if len(d.Restart) > 0 {
		var units []operation.Unit
		for _, u := range d.Restart {
			units = append(units, operation.Unit(u))
		}
		p, _, err := l.o.StartConcurrent(ctx, who, cl.ID, model.OpRecover, units)
		if err != nil {
			l.t.Fatal(err)
		}
		l.run(p.Operation.ID, fails, never)
	}
	if len(d.Replace) > 0 {
		_, _, err := l.o.Operate(ctx, who, cl.ID, operation.Request{Type: model.OpReplaceNode, Victims: d.Replace, OnFailure: "leave", Forced: true})
		if err != nil {
			l.t.Fatalf("recovery of a cluster that is %s: %v", cl.Status, err)
		}
	}
	return len(d.Restart)+len(d.Replace) > 0
}

var orders = regexp.MustCompile("`coopr (cluster rollback|node replace|cluster shrink) [a-z]+ (?:--to )?([0-9]+)`")

// person does what the cluster's status and message ask for, until the cluster is as it was asked
// for. Without shrinks, each machine that is gone is replaced.
func (l *lab) person(cluster string, last operation.Request, shrinks bool) {
	ctx := context.Background()
	for try := range 12 {
		l.noticeAll()
		l.follows(cluster, never)
		cl, op := l.last(cluster)
		gone := l.gone(cluster)
		var req operation.Request
		order := orders.FindStringSubmatch(cl.Message)
		switch {
		case cl.Status == model.ClusterTerminated:
			return
		case len(gone) > 0:
			if cl.Status == model.ClusterActive && len(op.Skipped) > 0 {
				l.t.Fatalf("the cluster is active, and %s left out %v: %s", op.Type, op.Skipped, cl.Message)
			}
			req = operation.Request{Type: model.OpReplaceNode, Victims: []string{gone[0].ID},
				Forced: rapid.Bool().Draw(l.t, "forced")}
			if n := rapid.IntRange(0, 5).Draw(l.t, "shrink"); n == 0 && shrinks {
				req.Type = model.OpShrink
			}
		case cl.Status == model.ClusterActive:
			l.check(cluster, "in the end")
			return
		case cl.Status == model.ClusterIncomplete:
			req = operation.Request{Type: model.OpDelete}
		case cl.Status == model.ClusterFailed && len(order) > 0 && order[1] == "cluster rollback":
			to, _ := strconv.Atoi(order[2])
			req = operation.Request{Type: model.OpRollback, To: to}
		case cl.Status == model.ClusterInconsistent && try%2 == 0 && last.Type != "":
			req = last
			req.OnFailure = ""
		case cl.Status == model.ClusterInconsistent:
			req = operation.Request{Type: model.OpConfigure, Config: cl.Config, Restart: true}
		default:
			_, _, err := l.o.Operate(ctx, who, cluster, operation.Request{Type: model.OpRollback, To: op.Before, Follows: op.ID})
			l.t.Fatalf("the cluster is %s, and nothing says what to do: %s; %s is %s; %v", cl.Status, cl.Message, op.Type, op.Status, err)
		}
		p, _, err := l.o.Operate(ctx, who, cluster, req)
		var faults model.Faults
		var none *solver.Unsolvable
		switch {
		case (errors.As(err, &faults) || errors.As(err, &none)) && (req.Type == last.Type || req.Type == model.OpShrink):
			continue // it does not fit the cluster any more
		case err != nil:
			l.t.Fatalf("the cluster is %s (%s), and an order to %s is refused: %v", cl.Status, cl.Message, req.Type, err)
		}
		l.run(p.Operation.ID, never, never)
	}
	cl, op := l.last(cluster)
	l.t.Fatalf("after all orders the cluster is %s: %s; %s is %s: %s", cl.Status, cl.Message, op.Type, op.Status, op.Message)
}

// TestMachinesDie lets machines die at any moment of any operation, several at once, in rollbacks
// and recoveries too, with and without recovery. In the end each cluster is as it was asked for, or
// its status and message name what a person has to do, and that works.
func TestMachinesDie(t *testing.T) {
	seeded(t, "25")
	rapid.Check(t, func(t *rapid.T) { machinesDie(t) })
}

func machinesDie(t *rapid.T) {
	l := newLab(t)
	if rapid.Bool().Draw(t, "off") {
		l.policy = &model.RecoveryPolicy{Off: true}
	}
	l.define(1, "hello")
	ctx := context.Background()
	p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: "shop", ClusterTemplate: "shop", OnFailure: "leave",
		NumMachines: model.Int(rapid.IntRange(3, 6).Draw(t, "size"))}, false)
	if err != nil {
		t.Fatal(err)
	}
	id := p.Cluster.ID
	l.halfDone = rapid.Bool().Draw(t, "half")
	deaths := 0
	often := rapid.IntRange(8, 60).Draw(t, "rarely")
	l.meantime = func() {
		switch k := rapid.IntRange(0, often).Draw(t, "event"); {
		case k == 1 && deaths > 0 && len(l.machines) > 0:
			deaths--
			ids := slices.Sorted(maps.Keys(l.machines))
			l.raze(ids[rapid.IntRange(0, len(ids)-1).Draw(t, "dies")])
		case k == 2:
			l.noticeAll()
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "early") == 0 {
		deaths = 1
	}
	var last operation.Request
	l.run(p.Operation.ID, never, never)
	l.follows(id, never)
	for range rapid.IntRange(1, 4).Draw(t, "operations") {
		deaths = rapid.IntRange(0, 3).Draw(t, "deaths")
		req := l.request(id)
		if req.Type == model.OpStop || req.Type == model.OpStart {
			req = operation.Request{Type: model.OpRestart}
		}
		if req.Type != model.OpRollback && rapid.IntRange(0, 3).Draw(t, "tolerant") == 0 {
			req.MaxFailures = 1
		}
		p, _, err := l.o.Operate(ctx, who, id, req)
		var faults model.Faults
		var none *solver.Unsolvable
		if errors.As(err, &faults) || errors.As(err, &none) || errors.Is(err, operation.ErrState) {
			continue // it does not fit this cluster
		}
		if err != nil {
			t.Fatal(req.Type, err)
		}
		last = req
		left := rapid.IntRange(-20, p.Graph.Tasks()).Draw(t, "fails after")
		fails := func() bool { left--; return left == 0 }
		l.run(p.Operation.ID, fails, func() bool { return l.halfDone })
		l.follows(id, fails)
		if cl, op := l.last(id); cl.Status == model.ClusterActive && len(op.Skipped) > 0 && len(l.gone(id)) > 0 {
			t.Fatalf("%s left out %v, whose machines are gone, and the cluster is active: %s", op.Type, op.Skipped, cl.Message)
		}
	}
	deaths = 0
	l.person(id, last, true)
	if len(l.razed) > 0 {
		t.Fatal("without a machine: ", fmt.Sprint(l.razed))
	}
}
