package orchestrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestSupersede checks that a new target takes the place of a rollout that is under way, wherever that is and whatever leader begins the
// new one: what stands at the new target already is not touched, all else moves to it, nothing is initialized twice (lab.work), and a
// failure of the new rollout leads back to the last target that was complete.
func TestSupersede(t *testing.T) {
	fewer(t)
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, rapid.IntRange(3, 5).Draw(t, "nodes"))
		before := l.essence(id)
		l.define(2, "hello")
		open := l.do(id, operation.Request{Type: model.OpUpgrade, OnFailure: rapid.SampledFrom([]string{"leave", "rollback"}).Draw(t, "on failure")})
		for range rapid.IntRange(1, 2).Draw(t, "new targets") {
			l.some(open, rapid.IntRange(0, 8).Draw(t, "done"))
			if op, _ := l.m.View().Operation("t", open); op.Status.Ended() {
				break // there was nothing left to do
			}
			var held []uint32
			if rapid.Bool().Draw(t, "a task runs") {
				held = l.takes(open)
			}
			next := l.supersede(id, open, len(held) > 0)
			seen[fmt.Sprint("waits ", len(held) > 0)] = true
			if len(held) > 0 {
				l.newLeader(rapid.Bool().Draw(t, "another leader"))
				l.reports(open, held)
				if _, err := l.o.reconcile(context.Background(), id); err != nil {
					t.Fatal(err)
				}
			}
			was, _ := l.m.View().Operation("t", open)
			is, _ := l.m.View().Operation("t", next)
			if was.Status != model.OpSuperseded || was.SupersededBy != next || !strings.Contains(was.Message, next) ||
				is.Status != model.OpRunning && is.Status != model.OpSucceeded { // nothing may be left to do
				t.Fatalf("it is %s (%s), and the next one %s (%s)", was.Status, was.Message, is.Status, is.Message)
			}
			if is.Before != was.Before {
				t.Fatalf("a rollback of it leads to snapshot %d, and that of the first one to %d", is.Before, was.Before)
			}
			l.fits(id, next)
			l.sameMarks(id)
			open = next
		}
		fails := never
		if rapid.Bool().Draw(t, "fails") {
			left := rapid.IntRange(1, 6).Draw(t, "fails after")
			fails = func() bool { left--; return left == 0 }
		}
		op := l.run(open, fails, never)
		seen[string(op.Status)] = true
		switch op.Status {
		case model.OpSucceeded:
			l.check(id, "superseded")
			if cl, _ := l.last(id); cl.Status != model.ClusterActive || len(cl.Earlier) > 0 {
				t.Fatalf("the cluster is %s, with %d earlier targets", cl.Status, len(cl.Earlier))
			}
		case model.OpRollingBack:
			if err := l.o.follow(context.Background(), op.ID); err != nil {
				t.Fatal(err)
			}
			_, back := l.last(id)
			if back = l.run(back.ID, never, never); back.Status != model.OpSucceeded {
				t.Fatalf("the rollback is %s: %s", back.Status, back.Message)
			}
			l.check(id, "rolled back")
			if after := l.essence(id); after != before {
				t.Fatalf("before %s\nafter  %s", before, after)
			}
		default:
			t.Fatalf("it is %s: %s", op.Status, op.Message)
		}
	})
	for _, want := range []string{"waits true", "waits false", "succeeded", "rolling-back"} {
		if !seen[want] && !testing.Short() { // which draws five histories
			t.Errorf("never seen: %s", want)
		}
	}
}

// some carries out at most n tasks of an operation.
func (l *lab) some(id string, n int) {
	for range n {
		held := l.takes(id)
		if len(held) == 0 {
			return
		}
		l.reports(id, held)
	}
}

// takes leases a task of an operation if one is ready.
func (l *lab) takes(id string) []uint32 {
	s, _ := l.m.View().Plan(id)
	ready := s.Leasable()
	if op, _ := l.m.View().Operation("t", id); len(ready) == 0 || op.Status != model.OpRunning {
		return nil
	}
	u := ready[rapid.IntRange(0, len(ready)-1).Draw(l.t, "task")]
	l.must(&pb.Command{Change: &pb.Command_Lease{Lease: &pb.Lease{Operation: id, Sessions: []string{"s"}, Tasks: []uint32{u}, SessionOf: []uint32{0}}}})
	return []uint32{u}
}

// reports carries out leased tasks and reports their success.
func (l *lab) reports(id string, held []uint32) {
	for _, u := range held {
		v := l.m.View()
		op, _ := v.Operation("t", id)
		s, _ := v.Plan(id)
		r := &pb.Report{Operation: id, Tasks: []uint32{u}, Fences: []uint64{s.Fence(u)}}
		if out := l.work(v, op, s, u); out != nil {
			r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Output: js(out)}}
		}
		l.must(&pb.Command{Change: &pb.Command_Report{Report: r}})
	}
}

// supersede has a random new target take the place of an open operation, in one entry of the log. It returns the new operation's id.
func (l *lab) supersede(cluster, open string, waits bool) string {
	l.t.Helper()
	req := operation.Request{Type: model.OpConfigure, Restart: true, Config: map[string]any{"greeting": "bye"}}
	switch rapid.SampledFrom([]model.OperationType{model.OpConfigure, model.OpUpgrade, model.OpSyncTemplate}).Draw(l.t, "next") {
	case model.OpUpgrade:
		l.define(rapid.IntRange(1, 3).Draw(l.t, "version"), "hello")
		req = operation.Request{Type: model.OpUpgrade}
	case model.OpSyncTemplate:
		l.define(rapid.IntRange(1, 3).Draw(l.t, "version"), rapid.SampledFrom([]string{"hello", "moin"}).Draw(l.t, "default"))
		req = operation.Request{Type: model.OpSyncTemplate}
	}
	ctx := context.Background()
	replace := operation.Request{Type: model.OpReplaceNode, Victims: []string{l.m.View().Nodes("t", cluster)[0].ID}, Forced: true}
	if _, _, err := l.o.Operate(ctx, who, cluster, replace); !errors.Is(err, operation.ErrState) || !strings.Contains(err.Error(), open) {
		l.t.Fatalf("a replacement that cannot take the place of %s is refused with %v", open, err)
	}
	if _, err := l.o.Preview(ctx, who, cluster, replace); !errors.Is(err, operation.ErrState) || !strings.Contains(err.Error(), open) {
		l.t.Fatalf("the preview of a replacement that cannot take the place of %s is refused with %v", open, err)
	}
	if _, _, err := l.o.Operate(ctx, who, cluster, req); !errors.Is(err, operation.ErrState) || !strings.Contains(err.Error(), "--supersede") ||
		!strings.Contains(err.Error(), open) {
		l.t.Fatalf("without a wish to supersede: %v", err)
	}
	req.Supersede = true
	index := l.index
	if p, err := l.o.Preview(ctx, who, cluster, req); err != nil || p.Graph == nil || l.index != index {
		l.t.Fatalf("the preview: %v, %d entries", err, l.index-index)
	}
	p, _, err := l.o.Operate(ctx, who, cluster, req)
	if err != nil {
		l.t.Fatal(err)
	}
	want := []model.OperationStatus{model.OpRunning, model.OpSucceeded}
	if waits {
		want = []model.OperationStatus{model.OpAccepted}
		if _, _, err := l.o.Operate(ctx, who, cluster, req); !errors.Is(err, problem.Conflict) || !strings.Contains(err.Error(), p.Operation.ID) {
			l.t.Fatalf("another new target before the first has begun: %v", err)
		}
		if l.takes(open) != nil {
			l.t.Fatal("another task of the superseded operation begins")
		}
	}
	if got := p.Operation.Status; !slices.Contains(want, got) {
		l.t.Fatalf("the new operation is %s (%s), not %s", got, p.Operation.Message, want)
	}
	return p.Operation.ID
}

// newLeader begins another leader's term.
func (l *lab) newLeader(yes bool) {
	if !yes {
		return
	}
	l.o = New(l.o.cfg)
	if err := l.o.Restore(context.Background()); err != nil {
		l.t.Fatal(err)
	}
}

// fits compares an operation's plan with the machines: a service has work if and only if it is not as the cluster's target has it.
func (l *lab) fits(cluster, id string) {
	l.t.Helper()
	v := l.m.View()
	cl, _ := v.Cluster("t", cluster)
	nodes := v.Nodes("t", cluster)
	s, _ := v.Plan(id)
	works := map[string]bool{}
	for u := range s.Graph.Len() {
		if s.Graph.Action[u] != model.Barrier && !s.Inherited(uint32(u)) {
			works[s.Graph.NodeID(u)+"/"+s.Graph.ServiceName(u)] = true
		}
	}
	src := operation.NewSource(cl, nodes)
	for _, n := range nodes {
		for name, r := range l.machines[n.ID].services {
			var version int
			fmt.Sscanf(cl.Definitions[name].Provisioner.Actions["install"].Fields["script"].(string), "v%d", &version)
			w, err := src.Work(id, "x", n, nil, model.Configure, name)
			if err != nil {
				l.t.Fatal(err)
			}
			stands := r.version == version && r.config == configOf(l.t, w.Input) && r.runs
			if works[n.ID+"/"+name] == stands {
				l.t.Fatalf("%s on %s is at version %d of %d, configured %v, runs %v, and has work: %v", name, n.ID, r.version, version,
					r.config == configOf(l.t, w.Input), r.runs, works[n.ID+"/"+name])
			}
		}
	}
}

// TestNotSuperseded checks that what is no rollout to a target is not superseded, and that the refusal names it.
func TestNotSuperseded(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		open := l.do(id, rapid.SampledFrom([]operation.Request{
			{Type: model.OpDelete}, {Type: model.OpShrink, Nodes: 1}, {Type: model.OpGrow, Nodes: 1}, {Type: model.OpRestart},
			{Type: model.OpReplaceNode, Victims: []string{"1000"}}, {Type: model.OpAddServices, Services: []string{"cache"}},
		}).Draw(t, "open"))
		index := l.index
		_, _, err := l.o.Operate(context.Background(), who, id, operation.Request{Type: model.OpConfigure, Config: map[string]any{"greeting": "bye"},
			Rollout: model.Rollout{Supersede: true}})
		if !errors.Is(err, problem.Conflict) || !strings.Contains(err.Error(), open) || l.index != index {
			t.Fatalf("it is answered %v, with %d entries of the log", err, l.index-index)
		}
	})
}

// configOf returns the configuration in the input of a task, as the machines of a lab keep it.
func configOf(t *rapid.T, input []byte) string {
	var in model.TaskInput
	if err := json.Unmarshal(input, &in); err != nil {
		t.Fatal(err)
	}
	return string(js(in.Config.Cluster))
}
