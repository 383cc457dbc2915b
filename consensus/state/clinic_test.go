package state_test

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// clinic is a running cluster with two nodes: n1000 with db, n1001 with app.
type clinic struct {
	t     *testing.T
	m     *state.Machine
	index uint64
	now   int64
	base  []byte   // the snapshot from which the machine was restored, if it was
	log   [][]byte // the entries since then, in order
}

func newClinic(t *testing.T) *clinic {
	c := &clinic{t: t, m: fresh(t), now: 1000}
	t.Cleanup(c.replay)
	c.do(tenant("t", 0, 0))
	c.do(session("s", "a"))
	if a := c.do(start("t", "00000001", "c", 2, "delete", "")); a.Err != nil {
		t.Fatal(a.Err)
	}
	c.run("00000001-001", nil)
	if op := c.operation("00000001-001"); op.Status != model.OpSucceeded {
		t.Fatal(op.Status, op.Message)
	}
	return c
}

func (c *clinic) do(cmd *pb.Command) state.Answer {
	c.t.Helper()
	c.now++
	return c.entry(cmd)[0]
}

// entry applies commands as one entry.
func (c *clinic) entry(cs ...*pb.Command) []state.Answer {
	c.t.Helper()
	c.index++
	l := entry(c.index, c.now, cs...)
	c.log = append(c.log, l.Data)
	return do(c.t, c.m, l)
}

// replay checks that the entries lead to the same state if they are applied in one batch, as after a restart.
func (c *clinic) replay() {
	c.t.Helper()
	m := fresh(c.t)
	if c.base != nil {
		if err := m.Restore(io.NopCloser(bytes.NewReader(c.base))); err != nil {
			c.t.Fatal(err)
		}
	}
	m.ApplyBatch(logtest.Logs(c.index-uint64(len(c.log))+1, c.log))
	if want, got := dump(c.t, c.m), dump(c.t, m); !bytes.Equal(want, got) {
		c.t.Errorf("one batch leads to another state than single entries\n%s", firstDifference(want, got))
	}
}

// run completes the tasks of an operation one by one. A task for which fails returns true fails for
// good.
func (c *clinic) run(op string, fails func(g *plan.Graph, v uint32) bool) {
	c.t.Helper()
	for {
		s, _ := c.m.View().Plan(op)
		ready := s.Leasable()
		if len(ready) == 0 || c.operation(op).Status.Ended() {
			return
		}
		if a := c.do(lease(op, "s", ready[0])); len(a.Refused) > 0 {
			c.t.Fatalf("no lease of %s", s.Graph.Name(int(ready[0])))
		}
		s, _ = c.m.View().Plan(op)
		o := pb.Outcome_OUTCOME_SUCCEEDED
		if fails != nil && fails(s.Graph, ready[0]) {
			o = pb.Outcome_OUTCOME_FATAL
		}
		c.do(report(op, ready[0], s.Fence(ready[0]), o, ""))
	}
}

func (c *clinic) operation(id string) *model.Operation {
	c.t.Helper()
	op, ok := c.m.View().Operation("t", id)
	if !ok {
		c.t.Fatalf("no operation %s", id)
	}
	return op
}

func (c *clinic) health(node string) *model.NodeHealth {
	h := c.m.View().Health("t", node)
	if h == nil {
		h = &model.NodeHealth{}
	}
	return h
}

func (c *clinic) verdict(node, service string, healthy bool, machine pb.Machine) state.Answer {
	n, _ := c.m.View().Node("t", node)
	return c.do(&pb.Command{Actor: model.Self, Change: &pb.Command_ReportHealth{ReportHealth: &pb.ReportHealth{Changes: []*pb.HealthChange{
		{Tenant: "t", Node: node, Version: n.Version, Service: service, Healthy: healthy, Message: "m", Machine: machine},
	}}}})
}

// concurrent returns the command that starts a concurrent operation, which restarts one service on each
// node with STOP and START, pauses it with STOP, or resumes it with START.
func (c *clinic) concurrent(id string, typ model.OperationType, actor string, on map[string]string) *pb.Command {
	var nodes, services []string
	for n := range on {
		nodes = append(nodes, n)
	}
	slices.Sort(nodes)
	b := plan.NewBuilder(nodes, []string{"app", "db"})
	for i, n := range nodes {
		svc, _ := slices.BinarySearch([]string{"app", "db"}, on[n])
		switch typ {
		case model.OpPauseNode:
			b.Task(model.Stop, i, svc)
		case model.OpResumeNode:
			b.Task(model.Start, i, svc)
		default:
			b.Edge(b.Task(model.Stop, i, svc), b.Task(model.Start, i, svc))
		}
		services = append(services, on[n])
	}
	g, err := b.Build()
	if err != nil {
		c.t.Fatal(err)
	}
	d := tree.PerNode(g, "recovery", func(n string) string { return n })
	if g, err = d.Compile(g); err != nil {
		c.t.Fatal(err)
	}
	op := model.Operation{ID: id, Tenant: "t", Cluster: "00000001", Type: typ, OnFailure: "leave", Services: services}
	return &pb.Command{Tenant: "t", Actor: actor, Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{
		Operation: logtest.Operation(op), Cluster: logtest.Cluster(model.Cluster{ID: "00000001", Tenant: "t"}), Graph: g.Encode(),
		Tree: logtest.Tree(&d.Tree),
	}}}
}

const db, app = "00000001-1000", "00000001-1001"
