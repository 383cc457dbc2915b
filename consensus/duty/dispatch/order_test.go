package dispatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// After an order has taken a task from a worker, neither this task nor another one on its node
// begins before the worker has ended the task or is gone. The same is true of a task on no node, and no other task waits for that.
func TestTakenBackEndsFirst(t *testing.T) {
	endsFirst(t, "00000001-1000/INSTALL/s", func(l *log) { l.begin(1) })
	endsFirst(t, "agent/PROBE/s", (*log).beginOnAgent)
}

func endsFirst(t *testing.T, name string, begin func(*log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		begin(l)
		d, end := l.dispatcher()
		defer end()
		a, b := &conn{}, &conn{}
		open := func(session, agent string, c *conn) {
			t.Helper()
			if err := d.Open(t.Context(), session, &pb.Hello{Agent: agent, Slots: 1}, c); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		restart := func() {
			l.must(&pb.Command{Tenant: "one", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: "00000001-001",
				Order: pb.PlanOrder_PLAN_ORDER_RESTART}}})
			synctest.Wait()
		}
		open("s", "a", a)
		open("r", "b", b)
		restart()
		if a.got() != 1 || b.got() != 0 {
			t.Fatalf("%d and %d tasks were sent while the first is being ended", a.got(), b.got())
		}
		why, err := d.Why(t.Context(), "00000001-001", []uint32{0})
		if err != nil || why[0].Text != "agent a is still ending "+name+", which an order took back" {
			t.Errorf("it waits for %+v, %v", why, err)
		}
		cancelled := func(c *conn) *pb.Result {
			last := c.tasks[len(c.tasks)-1]
			return &pb.Result{Task: last.Id, Fence: last.Fence, Outcome: pb.Outcome_OUTCOME_CANCELLED}
		}
		d.ReportSoon("s", []*pb.Result{cancelled(a)})
		synctest.Wait()
		if a.got()+b.got() != 2 {
			t.Fatalf("%d and %d tasks were sent after its end", a.got(), b.got())
		}
		at := a
		if b.got() > 0 {
			at = b
		}
		// An agent that is gone has nothing to end.
		restart()
		if a.got()+b.got() != 2 {
			t.Fatal("it was sent once more before its end")
		}
		at.Close()
		other := &conn{}
		if at == a {
			open("s2", "a", other)
		} else {
			open("r2", "b", other)
		}
		if a.got()+b.got()+other.got() != 3 {
			t.Fatalf("%d, %d and %d tasks were sent after its agent came back", a.got(), b.got(), other.got())
		}
	})
}

// A task that an order took from a worker first ends there, even if the worker's connection
// broke, under the same leader or another.
func TestTakenBackOverSessions(t *testing.T) {
	for name, elected := range map[string]bool{"the same leader": false, "another leader": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { takenBack(t, elected, func(l *log) { l.begin(1) }) })
		})
		t.Run(name+", on no node", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { takenBack(t, elected, (*log).beginOnAgent) })
		})
	}
}

func takenBack(t *testing.T, elected bool, begin func(*log)) {
	l := newLog(t)
	begin(l)
	d, end := l.dispatcher()
	defer func() { end() }()
	open := func(session string, hello *pb.Hello) *conn {
		t.Helper()
		c := &conn{}
		hello.Slots = 1
		if err := d.Open(t.Context(), session, hello, c); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		return c
	}
	a := open("s", &pb.Hello{Agent: "a"})
	if a.got() != 1 {
		t.Fatal("not leased")
	}
	old := a.tasks[0]
	l.must(&pb.Command{Tenant: "one", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: "00000001-001",
		Order: pb.PlanOrder_PLAN_ORDER_RESTART}}})
	synctest.Wait()
	if a.got() != 1 {
		t.Fatal("sent again at once")
	}
	if elected {
		end()
		d, end = l.dispatcher()
	}
	// a still works on the task and reports it.
	again := open("s2", &pb.Hello{Agent: "a", Held: []*pb.Held{{Task: old.Id, Fence: old.Fence}}})
	b := open("r", &pb.Hello{Agent: "b"})
	if again.got()+b.got() > 0 {
		t.Fatalf("the task was sent to a (%d) or b (%d) although a has not ended the attempt that the order took back", again.got(), b.got())
	}
	d.ReportSoon("s2", []*pb.Result{{Task: old.Id, Fence: old.Fence, Outcome: pb.Outcome_OUTCOME_CANCELLED}})
	synctest.Wait()
	if again.got()+b.got() != 1 {
		t.Fatalf("%d and %d tasks were sent after the end of what was taken back", again.got(), b.got())
	}
}

// Another operation does not get the node either, even if the operation of the attempt has ended.
func TestTakenBackOutlivesItsOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.begin(1)
		d, end := l.dispatcher()
		defer end()
		a := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 2}, a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		old := a.tasks[0]
		l.must(&pb.Command{Tenant: "one", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: "00000001-001",
			Order: pb.PlanOrder_PLAN_ORDER_FORCE_COMPLETE}}})
		synctest.Wait()
		if op, _ := l.machine.View().Operation("", "00000001-001"); op.Status != model.OpSucceeded {
			t.Fatalf("the operation is %s", op.Status)
		}
		l.next()
		synctest.Wait()
		if a.got() != 1 {
			t.Fatalf("%d tasks were sent while the first is being ended", a.got()-1)
		}
		d.ReportSoon("s", []*pb.Result{{Task: old.Id, Fence: old.Fence, Outcome: pb.Outcome_OUTCOME_CANCELLED}})
		synctest.Wait()
		if a.got() != 2 {
			t.Fatalf("%d tasks were sent after its end", a.got()-1)
		}
	})
}

// Tasks on no node wait for earlier attempts of themselves only, and not for each other.
func TestTakenBackOnNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		b := plan.NewBuilder([]string{"00000001-1000"}, []string{model.OwnAction("s", "probe")})
		b.Edge(b.Task(model.Run, plan.None, 0), b.Task(model.Run, plan.None, 0))
		l.start(b)
		d, end := l.dispatcher()
		defer end()
		a := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 2}, a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.must(&pb.Command{Tenant: "one", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: "00000001-001",
			Order: pb.PlanOrder_PLAN_ORDER_RESTART}}})
		synctest.Wait()
		if a.got() != 1 {
			t.Fatalf("%d tasks were sent", a.got())
		}
		next := plan.NewBuilder([]string{"00000001-1000"}, []string{model.OwnAction("s", "probe")})
		next.Task(model.Run, plan.None, 0)
		l.follow(next, model.OpPlan)
		l.must(&pb.Command{Tenant: "one", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: "00000001-002",
			Order: pb.PlanOrder_PLAN_ORDER_START}}})
		synctest.Wait()
		if a.got() != 2 {
			t.Errorf("%d tasks were sent, while another one on no node is being ended", a.got())
		}
	})
}

// TestNoNodeKeepsNothing checks that what a task on no node returns or saves is dropped: it would belong to no tenant's node.
func TestNoNodeKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		l.beginOnAgent()
		sealed := false
		d, end := l.dispatcherOf(dispatch.Config{Propose: l.propose, Tasks: works{},
			Seal: func(_ context.Context, _, _ string, values map[string]any) (map[string]any, error) {
				sealed = true
				return values, nil
			}})
		defer end()
		a := &conn{}
		if err := d.Open(t.Context(), "s", &pb.Hello{Agent: "a", Slots: 1}, a); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		task := a.all()[0]
		save := &pb.SaveState{Task: task.Id, Fence: task.Fence, Key: "password", Value: []byte(`"canary"`)}
		if err := d.Save(t.Context(), "s", []*pb.SaveState{save}, 7); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if a.stored() != 7 {
			t.Error("the worker waits for a value that is not kept")
		}
		answers, err := l.propose(t.Context(), &pb.Command{Change: &pb.Command_SaveValue{SaveValue: &pb.SaveValue{Operation: "00000001-001",
			Fence: task.Fence, Key: "k", Value: []byte(`"v"`)}}})
		if err != nil || !errors.Is(answers[0].Err, problem.Invalid) {
			t.Errorf("%v, %v", answers, err)
		}
		d.ReportSoon("s", []*pb.Result{{Task: task.Id, Fence: task.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED,
			Output: []byte(`{"result":{"password":"canary"}}`)}})
		synctest.Wait()
		v := l.machine.View()
		if op, _ := v.Operation("one", "00000001-001"); op.Status != model.OpSucceeded || sealed || l.clear || len(v.Values("")) > 0 {
			t.Errorf("the operation is %s; encrypted: %t, in the log: %t, kept: %v", op.Status, sealed, l.clear, v.Values(""))
		}
	})
}
