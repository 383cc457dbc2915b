package state_test

import (
	"errors"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestOrdersByFeatureLevel checks that a pause is one between steps, and that an operation that failed takes orders, only where all voters
// apply these entries alike.
func TestOrdersByFeatureLevel(t *testing.T) {
	const op = "00000001-002"
	for _, level := range []uint32{0, logformat.OrdersLevel - 1, logformat.OrdersLevel} {
		now := level == 0 || level >= logformat.OrdersLevel
		c := newClinic(t)
		c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
		order := func(o pb.PlanOrder) error {
			return c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: op, Order: o}}}).Err
		}
		if a := c.do(intolerant(c.concurrent(op, model.OpPlan, "ann", map[string]string{app: "app", db: "db"}))); a.Err != nil {
			t.Fatal(a.Err)
		}
		if err := order(pb.PlanOrder_PLAN_ORDER_START); err != nil {
			t.Fatal(err)
		}
		s, _ := c.m.View().Plan(op)
		stop := s.Leasable()[0]
		c.do(lease(op, "s", stop))
		if err := order(pb.PlanOrder_PLAN_ORDER_INTERRUPT); err != nil {
			t.Fatal(err)
		}
		s, _ = c.m.View().Plan(op)
		c.do(report(op, stop, s.Fence(stop), pb.Outcome_OUTCOME_SUCCEEDED, ""))
		s, _ = c.m.View().Plan(op)
		next := s.Leasable()
		if len(next) != 1 || s.Graph.StepOf(next[0]) != s.Graph.StepOf(stop) {
			t.Fatalf("level %d: %v can be leased", level, next)
		}
		if a := c.do(lease(op, "s", next[0])); (len(a.Refused) == 0) != now {
			t.Errorf("level %d: a lease in the step that has begun: refused %v", level, a.Refused)
		}
		if err := order(pb.PlanOrder_PLAN_ORDER_CONTINUE); err != nil {
			t.Fatal(err)
		}
		if !now {
			c.do(lease(op, "s", next[0]))
		}
		s, _ = c.m.View().Plan(op)
		c.do(report(op, next[0], s.Fence(next[0]), pb.Outcome_OUTCOME_FATAL, ""))
		if is := c.operation(op); is.Status != model.OpFailed {
			t.Fatalf("level %d: %s", level, is.Status)
		}
		err := order(pb.PlanOrder_PLAN_ORDER_CONTINUE)
		if is := c.operation(op); (is.Status == model.OpRunning) != now || now == errors.Is(err, problem.Conflict) {
			t.Errorf("level %d: the failed operation is %s: %v", level, is.Status, err)
		}
		if now {
			c.run(op, nil)
			if is := c.operation(op); is.Status != model.OpSucceeded {
				t.Errorf("level %d: %s: %s", level, is.Status, is.Message)
			}
		}
	}
}

// intolerant returns the command that starts an operation, with a plan that tolerates no failures.
func intolerant(c *pb.Command) *pb.Command {
	for _, p := range c.GetStartOperation().Tree.Phases {
		p.Strategy.MaxFailures = 0
	}
	return c
}

// TestFailureWhilePaused checks that a failure in a plan or a phase that is held back has no consequences until an operator decides, and
// that the node of the step that has failed takes orders.
func TestFailureWhilePaused(t *testing.T) {
	for _, phase := range []string{"", app} {
		c := newClinic(t)
		const op = "00000001-002"
		order := func(o pb.PlanOrder) {
			t.Helper()
			if err := c.do(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: op,
				Order: o, Phase: phase}}}).Err; err != nil {
				t.Fatal(err)
			}
		}
		if a := c.do(intolerant(c.concurrent(op, model.OpRecover, "ann", map[string]string{app: "app"}))); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.do(lease(op, "s", 0))
		order(pb.PlanOrder_PLAN_ORDER_INTERRUPT)
		s, _ := c.m.View().Plan(op)
		c.do(report(op, 0, s.Fence(0), pb.Outcome_OUTCOME_FATAL, ""))
		want := model.OpPaused
		if phase != "" {
			want = model.OpRunning
		}
		if is := c.operation(op); is.Status != want || is.Message == "" {
			t.Errorf("phase %q: %s: %s", phase, is.Status, is.Message)
		}
		order(pb.PlanOrder_PLAN_ORDER_CONTINUE)
		c.run(op, func(*plan.Graph, uint32) bool { return false })
		if is := c.operation(op); is.Status != model.OpSucceeded {
			t.Errorf("phase %q: %s: %s", phase, is.Status, is.Message)
		}
	}
}
