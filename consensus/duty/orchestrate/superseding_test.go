package orchestrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// bye is a request for another target that supersedes what is under way.
func bye(onFailure string) operation.Request {
	return operation.Request{Type: model.OpConfigure, Restart: true, Config: map[string]any{"greeting": "bye"}, OnFailure: onFailure,
		Rollout: model.Rollout{Supersede: true}}
}

// works begins an upgrade and has a task of it run. It returns the upgrade and the task.
func (l *lab) works(id string) (open string, held []uint32) {
	l.t.Helper()
	l.define(2, "hello")
	open = l.do(id, operation.Request{Type: model.OpUpgrade, OnFailure: "leave"})
	l.some(open, rapid.IntRange(0, 4).Draw(l.t, "done"))
	if held = l.takes(open); len(held) == 0 {
		l.t.Skip("all is done")
	}
	return open, held
}

// turn gives the next operation its turn, as the duty does, and returns the operation with this id.
func (l *lab) turn(cluster, id string) *model.Operation {
	l.t.Helper()
	if _, err := l.o.reconcile(context.Background(), cluster); err != nil {
		l.t.Fatal(err)
	}
	op, _ := l.m.View().Operation("t", id)
	return op
}

// TestSupersedeNothing checks that a request which may supersede others, and finds none under way, is like any other: it takes over no task
// of the operation that ended last. Voters below SupersedeLevel would not know of such tasks.
func TestSupersedeNothing(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		if rapid.Bool().Draw(t, "an upgrade before") {
			l.define(2, "hello")
			fails := rapid.SampledFrom([]func() bool{never, func() bool { return rapid.IntRange(0, 5).Draw(t, "fails") == 0 }}).Draw(t, "how")
			l.run(l.do(id, operation.Request{Type: model.OpUpgrade, OnFailure: "leave"}), fails, never)
		}
		req := bye("leave")
		if rapid.Bool().Draw(t, "upgrade") {
			l.define(3, "hello")
			req = operation.Request{Type: model.OpUpgrade, Rollout: req.Rollout}
		}
		p, _, err := l.o.Operate(context.Background(), who, id, req)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := l.m.View().Plan(p.Operation.ID)
		for v := range s.Graph.Len() {
			if s.Inherited(uint32(v)) {
				t.Fatalf("%s is taken over from an operation that had ended", s.Graph.Name(v))
			}
		}
		if len(p.Done) > 0 {
			t.Fatalf("tasks %d are proposed as done", p.Done)
		}
		if op := l.run(p.Operation.ID, never, never); op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
		l.check(id, "after all")
	})
}

// TestSupersededOutOfTurn checks that a rollback of an operation which superseded another one does not undo what came between: nodes that
// were added after the end of the first one stay.
func TestSupersededOutOfTurn(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		open, held := l.works(id)
		next := l.do(id, bye("rollback"))
		l.reports(open, held)
		grow := l.do(id, operation.Request{Type: model.OpGrow, Nodes: 1}) // before the duty looks at the cluster
		if op := l.run(grow, never, never); op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
		nodes, before := len(l.machines), l.essence(id)
		if op := l.turn(id, next); op.Status != model.OpRunning {
			t.Fatalf("%s is %s: %s", next, op.Status, op.Message)
		}
		left := rapid.IntRange(1, 4).Draw(t, "fails after")
		if op := l.run(next, func() bool { left--; return left == 0 }, never); op.Status != model.OpRollingBack {
			t.Fatalf("%s is %s: %s", next, op.Status, op.Message)
		}
		l.turn(id, next)
		_, back := l.last(id)
		if op := l.run(back.ID, never, never); op.Type != model.OpRollback || op.Status != model.OpSucceeded {
			t.Fatalf("%s is %s: %s", op.Type, op.Status, op.Message)
		}
		if len(l.machines) != nodes || l.essence(id) != before {
			t.Fatalf("%d machines of %d are left\nbefore %s\nafter  %s", len(l.machines), nodes, before, l.essence(id))
		}
		l.check(id, "rolled back")
	})
}

// TestSupersededTaskEndsBadly checks that an operation which waits for the running task of the one that it supersedes begins however that
// task ends: it fails, its agent is gone, or a person aborts the operation because it hangs.
func TestSupersededTaskEndsBadly(t *testing.T) {
	fewer(t)
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		open, held := l.works(id)
		next := l.do(id, bye("leave"))
		s, _ := l.m.View().Plan(open)
		ends := func(o pb.Outcome) {
			l.must(&pb.Command{Change: &pb.Command_Report{Report: &pb.Report{Operation: open, Tasks: held, Fences: []uint64{s.Fence(held[0])},
				Outputs: []*pb.Outputs{{Outcome: o, Message: "broken"}}}}})
		}
		how := rapid.SampledFrom([]string{"fatal", "retryable", "lost", "returned", "aborted", "rolled back"}).Draw(t, "how")
		seen[how] = true
		want := model.OpSuperseded
		order := func(o pb.OperationOrder) {
			l.must(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
				Operation: open, Order: o}}})
			ends(pb.Outcome_OUTCOME_CANCELLED)
		}
		switch how {
		case "fatal":
			ends(pb.Outcome_OUTCOME_FATAL)
		case "retryable":
			ends(pb.Outcome_OUTCOME_RETRYABLE)
		case "lost":
			l.must(&pb.Command{Change: &pb.Command_EndSession{EndSession: &pb.EndSession{Session: "s"}}})
			l.must(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s", Agent: "a",
				Record: logtest.Agent(model.Agent{ID: "a", Name: "a"})}}})
		case "returned":
			l.must(&pb.Command{Change: &pb.Command_Report{Report: &pb.Report{Operation: open, Tasks: held, Fences: []uint64{s.Fence(held[0])},
				Returned: true}}})
		case "aborted":
			order(pb.OperationOrder_OPERATION_ORDER_ABORT)
			want = model.OpAborted
		default:
			order(pb.OperationOrder_OPERATION_ORDER_ROLLBACK)
			l.turn(id, next)
			_, back := l.last(id)
			if op := l.run(back.ID, never, never); op.Type != model.OpRollback || op.Status != model.OpSucceeded {
				t.Fatalf("%s is %s: %s", op.Type, op.Status, op.Message)
			}
			want = model.OpRolledBack
		}
		if was, _ := l.m.View().Operation("t", open); was.Status != want {
			t.Fatalf("the first operation is %s (%s), not %s", was.Status, was.Message, want)
		}
		if op := l.turn(id, next); op.Status != model.OpRunning {
			t.Fatalf("the next one is %s: %s", op.Status, op.Message)
		}
		if op := l.run(next, never, never); op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
		l.check(id, how)
		if cl, _ := l.last(id); cl.Status != model.ClusterActive || len(cl.Earlier) > 0 {
			t.Fatalf("the cluster is %s, with %d earlier targets", cl.Status, len(cl.Earlier))
		}
	})
	if len(seen) < 6 && !testing.Short() {
		t.Errorf("seen were only %v", seen)
	}
}

// TestRecoveryWhileSuperseding restarts a service while the operation on its cluster gives way to another one: that both go on, and all
// is at the last target in the end.
func TestRecoveryWhileSuperseding(t *testing.T) {
	fewer(t)
	recovered := 0
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		open, held := l.works(id)
		n := rapid.SampledFrom(l.m.View().Nodes("t", id)).Draw(t, "node")
		concurrent := ""
		recovers := func() {
			if concurrent != "" {
				return
			}
			p, _, err := l.o.StartConcurrent(context.Background(), who, id, model.OpRecover, []operation.Unit{{Node: n.ID, Services: n.Services}})
			switch {
			case err == nil:
				concurrent = p.Operation.ID
				recovered++
			case !errors.Is(err, problem.Conflict): // the operation is at work there
				t.Fatal(err)
			}
		}
		moment := rapid.IntRange(0, 3).Draw(t, "moment")
		for i, step := range []func(){
			func() {},
			func() { l.do(id, bye("leave")) },
			func() { l.reports(open, held) },
			func() { l.turn(id, open) },
		} {
			if step(); i == moment {
				recovers()
			}
		}
		if was, _ := l.m.View().Operation("t", open); was.Status != model.OpSuperseded {
			t.Fatalf("the first operation is %s: %s", was.Status, was.Message)
		}
		if concurrent != "" {
			if op := l.run(concurrent, never, never); !op.Status.Ended() {
				t.Fatal(op.Status, op.Message)
			}
		}
		_, next := l.last(id)
		if op := l.run(next.ID, never, never); op.ID == open || op.Status != model.OpSucceeded {
			t.Fatal(op.Status, op.Message)
		}
		l.check(id, "after all")
	})
	if recovered == 0 {
		t.Error("nothing was recovered")
	}
}

// TestSupersedingIsOnRecord checks that the audit log and the events name whoever had an operation give way, with its request.
func TestSupersedingIsOnRecord(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		open, held := l.works(id)
		l.token("bob")
		bob := model.Caller{Tenant: "t", Actor: "bob", Role: model.RoleAdmin, Request: "r7"}
		seq := l.m.View().Audit().Stats().Head.Seq
		p, _, err := l.o.Operate(context.Background(), bob, id, bye("leave"))
		if err != nil {
			t.Fatal(err)
		}
		l.reports(open, held)
		l.turn(id, open)
		var got []string
		err = l.m.View().Audit().Each(&audit.Filter{}, false, audit.Cursor{Seq: seq, Item: 1 << 30}, func(r audit.Record) bool {
			if strings.HasPrefix(r.Type, "operation.") {
				got = append(got, fmt.Sprintf("%s %s by %s request=%s: %s", r.Operation, r.Type, r.Actor, r.Request, r.After))
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			p.Operation.ID + ` operation.created by bob request=r7: `,
			open + ` operation.changed by bob request=r7: {"message":"superseded by operation ` + p.Operation.ID + `","status":"aborting",` +
				`"supersededBy":"` + p.Operation.ID + `"}`,
			open + ` operation.changed by coopr request=: {`,
			p.Operation.ID + ` operation.changed by bob request=turn of ` + p.Operation.ID + `: {`,
		} {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("no record\n  %s\nin\n  %s", want, strings.Join(got, "\n  "))
			}
		}
		// The same request is answered in the same way, and does nothing more.
		index := l.index
		again, ans, err := l.o.Operate(context.Background(), bob, id, bye("leave"))
		if err != nil || !ans.Repeated || again.Operation.ID != p.Operation.ID || l.index != index {
			t.Fatalf("the repeated request is answered %+v, %v, with %d entries", again, err, l.index-index)
		}
	})
}

// token lets an actor of the tenant have operations begin in its name.
func (l *lab) token(actor string) {
	l.t.Helper()
	l.must(&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Id: "of " + actor, Hash: []byte(actor), Actor: actor, Tenant: "t", Role: string(model.RoleAdmin)}}})
}

// TestMayNotSupersede checks that a caller who may upgrade a cluster, and may not operate it, ends no operation of others on it.
func TestMayNotSupersede(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		policies := &model.Policies{Base: model.Base{Name: "kept"}, Text: `@message("ask ann") forbid (principal, action == Action::"operate", ` +
			`resource is Cluster) when { principal.name == "bob" };`}
		l.must(&pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
			Definitions: []*pb.Definition{{Kind: string(model.KindPolicies), Name: "kept", Body: js(policies)}}}}})
		l.token("bob")
		l.define(2, "hello")
		open := l.do(id, operation.Request{Type: model.OpUpgrade, OnFailure: "leave"})
		req := operation.Request{Type: model.OpUpgrade, Rollout: model.Rollout{Supersede: true}}
		bob := model.Caller{Tenant: "t", Actor: "bob", Role: model.RoleAdmin}
		index := l.index
		_, previewed := l.o.Preview(context.Background(), bob, id, req)
		_, _, err := l.o.Operate(context.Background(), bob, id, req)
		for _, err := range []error{previewed, err} {
			if !errors.Is(err, problem.Forbidden) || !strings.Contains(err.Error(), "ask ann") || !strings.Contains(err.Error(), open) {
				t.Errorf("it is answered %v", err)
			}
		}
		if l.index != index {
			t.Errorf("it left %d entries", l.index-index)
		}
		if _, _, err := l.o.Operate(context.Background(), who, id, req); err != nil {
			t.Errorf("of somebody else: %v", err)
		}
	})
}

// TestQueueBehindSuperseding checks that operations that wait keep their order behind one that supersedes the open one.
func TestQueueBehindSuperseding(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		open, held := l.works(id)
		queue := model.Rollout{Queue: true}
		want := []string{"", l.do(id, operation.Request{Type: model.OpRestart, Rollout: queue}),
			l.do(id, operation.Request{Type: model.OpGrow, Nodes: 1, Rollout: queue})}
		want[0] = l.do(id, bye("leave"))
		l.reports(open, held)
		for _, id2 := range want {
			if op := l.turn(id, id2); op.Status != model.OpRunning {
				t.Fatalf("%s is %s: %s", op.ID, op.Status, op.Message)
			}
			l.run(id2, never, never)
		}
		l.check(id, "after all")
	})
}

// TestSupersedeRestored checks that an operation which supersedes one of a restored mesh observes what is on its nodes, too: the one
// before it may have done more than is on record.
func TestSupersedeRestored(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 4)
		_, held := l.works(id)
		if op, _ := l.m.View().Operation("t", id+"-002"); op == nil || op.Status != model.OpRunning || len(held) == 0 {
			t.Fatalf("it is %+v", op)
		}
		v, err := state.Restored(bytes.NewReader(snapshot(t, l.m)), func(agent string) bool { return agent == "a" }, time.UnixMilli(int64(l.index)),
			nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := v.Write(&b); err != nil {
			t.Fatal(err)
		}
		m := machineOf(t)
		if err := m.Restore(io.NopCloser(&b)); err != nil {
			t.Fatal(err)
		}
		r := &lab{t: t, m: m, index: l.index}
		r.o = New(Config{Machine: m, Propose: r.propose, Logger: slog.New(slog.DiscardHandler)})
		next := r.do(id, bye("leave"))
		if op := r.turn(id, next); op.Status != model.OpRunning || !op.Restored {
			t.Fatalf("it is %s (%s), restored: %v", op.Status, op.Message, op.Restored)
		}
	})
}

// sameMarks checks that tasks that a plan took over leave no mark of their own, neither now nor later.
func (l *lab) sameMarks(cluster string) {
	l.t.Helper()
	v := l.m.View()
	cl, _ := v.Cluster("t", cluster)
	nodes := v.Nodes("t", cluster)
	for i, n := range v.PresentNodes(cl) {
		if !reflect.DeepEqual(n.Marks, nodes[i].Marks) {
			l.t.Fatalf("node %s has the marks %+v, and %+v on record, although no task has begun", n.ID, n.Marks, nodes[i].Marks)
		}
	}
}
