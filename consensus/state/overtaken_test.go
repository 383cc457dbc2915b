package state_test

import (
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// main starts an operation that is not concurrent, with the plan of a concurrent operation of type like on one service.
func (c *clinic) main(id string, typ, like model.OperationType, node, service string) {
	c.t.Helper()
	cl, _ := c.m.View().Cluster("t", "00000001")
	next := *cl
	next.Operations++
	cmd := c.concurrent(id, like, "ann", map[string]string{node: service})
	op := model.Operation{ID: id, Tenant: "t", Cluster: "00000001", Type: typ, OnFailure: "leave", Services: []string{service}}
	s := cmd.GetStartOperation()
	s.Operation, s.Cluster, s.ClusterVersion = logtest.Operation(op), logtest.Cluster(next), cl.Version
	if a := c.do(cmd); a.Err != nil {
		c.t.Fatal(a.Err)
	}
}

// An operation on a node that is done with one service, and at work on another node, ends after an operation that worked on the service
// later. The service stays as the later one left it.
func TestOvertaken(t *testing.T) {
	const first, second = "00000001-002", "00000001-003"
	for _, tt := range []struct {
		first, second, like model.OperationType
		state, earlier      string // of app, also below logformat.OrdersLevel
		paused              string
	}{
		{model.OpRecover, model.OpStop, model.OpPauseNode, "STOP", "START", ""},
		{model.OpPauseNode, model.OpRestart, model.OpRecover, "START", "STOP", ""},
		{model.OpPauseNode, model.OpStop, model.OpPauseNode, "STOP", "STOP", model.Paused},
	} {
		for _, level := range []uint32{logformat.OrdersLevel - 1, logformat.OrdersLevel} {
			c := newClinic(t)
			c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}})
			c.begun(first, tt.first)
			c.main(second, tt.second, tt.like, app, "app")
			c.run(second, nil)
			before, _ := c.m.View().Node("t", app)
			if c.operation(second).Status != model.OpSucceeded || before.States["app"] != tt.state {
				t.Fatal(c.operation(second).Status, before.States)
			}
			c.run(first, nil)
			if op := c.operation(first); op.Status != model.OpSucceeded {
				t.Fatal(op.Status, op.Message)
			}
			want, paused := tt.state, tt.paused
			if level < logformat.OrdersLevel {
				if want = tt.earlier; tt.first == model.OpPauseNode {
					paused = model.Paused
				}
			}
			n, _ := c.m.View().Node("t", app)
			if got := c.health(app).Paused["app"]; n.States["app"] != want || got != paused {
				t.Errorf("%s overtaken by %s at level %d: it is %s, and %q", tt.first, tt.second, level, n.States["app"], got)
			}
			if level >= logformat.OrdersLevel && n.Marks["app"].Started < before.Marks["app"].Started {
				t.Errorf("%s overtaken by %s: its latest start was %d, and is %d", tt.first, tt.second, before.Marks["app"].Started,
					n.Marks["app"].Started)
			}
			last := map[model.OperationType]string{model.OpRecover: "START", model.OpPauseNode: "STOP"}[tt.first]
			if n, _ = c.m.View().Node("t", db); n.States["db"] != last {
				t.Errorf("%s overtaken by %s at level %d: the other node is %v", tt.first, tt.second, level, n.States)
			}
		}
	}
}
