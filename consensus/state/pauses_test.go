package state_test

import (
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestPauseOutlivesTheCreation pauses a service of a node that a creation has finished with, while the creation is at work on the other
// node. The end of the creation does not end the pause.
func TestPauseOutlivesTheCreation(t *testing.T) {
	c := &clinic{t: t, m: fresh(t), now: 1000}
	c.do(tenant("t", 0, 0))
	c.do(session("s", "a"))
	b := plan.NewBuilder([]string{db, app}, []string{"db", "app"})
	for n := range 2 {
		last := b.Task(model.Create, n, plan.None)
		for i, a := range []model.Action{model.Confirm, model.Install, model.Start} {
			service := plan.None
			if i > 0 {
				service = n
			}
			v := b.Task(a, n, service)
			b.Edge(last, v)
			last = v
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	cmd := start("t", "00000001", "c", 2, "leave", "")
	cmd.GetStartOperation().Graph = g.Encode()
	if a := c.do(cmd); a.Err != nil {
		t.Fatal(a.Err)
	}
	const main, pause = "00000001-001", "00000001-002"
	for v := range uint32(g.Len()) {
		if g.NodeID(int(v)) == app {
			c.do(lease(main, "s", v))
			s, _ := c.m.View().Plan(main)
			c.do(report(main, v, s.Fence(v), pb.Outcome_OUTCOME_SUCCEEDED, ""))
		}
	}
	c.do(order(main, "pause"))
	if a := c.do(c.concurrent(pause, model.OpPauseNode, "ann", map[string]string{app: "app"})); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run(pause, nil)
	c.do(order(main, "resume"))
	c.run(main, nil)
	n, _ := c.m.View().Node("t", app)
	if op := c.operation(main); op.Status != model.OpSucceeded || n.States["app"] != model.Stop.String() ||
		c.health(app).Paused["app"] != model.Paused {
		t.Errorf("the creation is %s, the service is %s, and paused are %v", op.Status, n.States["app"], c.health(app).Paused)
	}
}

// TestRestartEndsAPause checks that a paused service that a concurrent operation has started is not paused any more, so that it is checked
// and recovered again.
func TestRestartEndsAPause(t *testing.T) {
	c := newClinic(t)
	for i, typ := range []model.OperationType{model.OpPauseNode, model.OpRecover} {
		id := string(model.ClusterID("00000001").Operation(i + 2))
		if a := c.do(c.concurrent(id, typ, "ann", map[string]string{app: "app"})); a.Err != nil {
			t.Fatal(a.Err)
		}
		c.run(id, nil)
	}
	if n, _ := c.m.View().Node("t", app); n.States["app"] != model.Start.String() || len(c.health(app).Paused) > 0 {
		t.Errorf("the service is %s, and paused are %v", n.States["app"], c.health(app).Paused)
	}
}
