package state_test

import (
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestStoppedAfterAdoptedStart has a plan of the template start a paused service, and stop it at once: the entry with the success of the one
// task leases the next. A resume that counts the start as its own ends later, and does not undo the stop.
func TestStoppedAfterAdoptedStart(t *testing.T) {
	c, both := newClinic(t), map[string]string{app: "app", db: "db"}
	must := func(cmd *pb.Command) {
		t.Helper()
		if a := c.do(cmd); a.Err != nil || len(a.Refused) > 0 {
			t.Fatal(a.Err, a.Refused)
		}
	}
	fence := func(op string, task uint32) uint64 {
		s, _ := c.m.View().Plan(op)
		return s.Fence(task)
	}
	must(c.concurrent(second, model.OpPauseNode, "ann", both))
	c.run(second, nil)
	must(c.concurrent(third, model.OpResumeNode, "ann", both))

	b := plan.NewBuilder([]string{app}, []string{"app"})
	b.Edge(b.Task(model.Start, 0, 0), b.Task(model.Stop, 0, 0))
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.concurrent(fourth, model.OpPlan, "ann", map[string]string{app: "app"})
	cmd.GetStartOperation().Graph, cmd.GetStartOperation().Tree = g.Encode(), nil
	must(cmd)
	must(order(fourth, "resume"))
	must(lease(fourth, "s", 0))
	for i, a := range c.entry(report(fourth, 0, fence(fourth, 0), pb.Outcome_OUTCOME_SUCCEEDED, ""), lease(fourth, "s", 1)) {
		if a.Err != nil || len(a.Refused) > 0 {
			t.Fatal(i, a.Err, a.Refused)
		}
	}
	must(report(fourth, 1, fence(fourth, 1), pb.Outcome_OUTCOME_SUCCEEDED, ""))
	c.is("after the plan", "STOP", model.Resuming)
	c.run(third, nil)
	if op := c.operation(third); op.Status != model.OpSucceeded {
		t.Fatal(op.Status, op.Message)
	}
	c.is("after the resume", "STOP", "")
}
