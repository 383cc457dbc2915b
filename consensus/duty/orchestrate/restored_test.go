package orchestrate

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// After a restore from an archive, a task that was carried out after the archive was written is not repeated
// before its effect has been observed. The archives are of many moments of one history, different ones in each
// run. The machines have the state at the end of the history.
func TestRestoredIntoAWorldThatWentOn(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, log := history(t)
		first := rapid.IntRange(0, 24).Draw(t, "first")
		m := machineOf(t)
		for i, e := range log {
			m.Apply(copied(e))
			if i%25 == first || i == len(log)-1 {
				again(t, snapshot(t, m), e.Index, l.did)
			}
		}
	})
}

// again restores an archive and carries out what is on record there.
func again(t *rapid.T, archive []byte, index uint64, did map[model.TaskID]bool) {
	v, err := state.Restored(bytes.NewReader(archive), func(agent string) bool { return agent == "a" }, time.UnixMilli(int64(index)), nil, nil)
	if err != nil {
		t.Fatalf("the archive of entry %d: %v", index, err)
	}
	var b bytes.Buffer
	if err := v.Write(&b); err != nil {
		t.Fatal(err)
	}
	m := machineOf(t)
	if err := m.Restore(io.NopCloser(&b)); err != nil {
		t.Fatal(err)
	}
	if n := len(m.View().Sessions()); n > 0 || m.View().Index() != index {
		t.Fatalf("the archive of entry %d: %d sessions, index %d", index, n, m.View().Index())
	}
	l := &lab{t: t, m: m, index: index}
	l.o = New(Config{Machine: m, Propose: l.propose, Logger: slog.New(slog.DiscardHandler)})
	l.must(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "other", Agent: "a",
		Record: logtest.Agent(model.Agent{ID: "a", Name: "a"})}}})
	undone := map[model.TaskID]bool{} // its machine was deleted just now
	for rounds := 0; len(m.View().ActiveOperations()) > 0; rounds++ {
		if rounds > 1000 {
			t.Fatalf("the archive of entry %d: %+v does not end", index, m.View().ActiveOperations()[0])
		}
		for _, op := range m.View().ActiveOperations() {
			switch op.Status {
			case model.OpPaused:
				l.must(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{
					Operation: op.ID, Order: logformat.OperationOrders.Number("resume")}}})
			case model.OpRollingBack:
				if err := l.o.follow(context.Background(), op.ID); err != nil {
					t.Fatal(err)
				}
			case model.OpAccepted:
				if _, err := l.o.reconcile(context.Background(), op.Cluster); err != nil {
					t.Fatal(err)
				}
			default:
				if rounds == 0 && op.Status == model.OpRunning {
					t.Fatalf("the archive of entry %d: operation %s goes on by itself", index, op.ID)
				}
				l.goOn(op, index, did, undone)
			}
		}
	}
}

// goOn carries out the tasks of an operation that can be leased.
func (l *lab) goOn(op *model.Operation, index uint64, did, undone map[model.TaskID]bool) {
	s, _ := l.m.View().Plan(op.ID)
	for _, u := range s.Leasable() {
		answer := l.must(&pb.Command{Change: &pb.Command_Lease{Lease: &pb.Lease{Operation: op.ID, Sessions: []string{"other"}, Tasks: []uint32{u},
			SessionOf: []uint32{0}}}})
		if len(answer.Refused) > 0 {
			continue
		}
		s, _ := l.m.View().Plan(op.ID)
		id, n := model.OperationID(op.ID).Task(u), s.Note(u)
		if n == nil {
			n = &plan.Note{}
		}
		if did[id] && !n.Observe && !n.Undo && !undone[id] {
			l.t.Fatalf("the archive of entry %d: task %s (%s) was done, and is done again without an observation", index, id, s.Graph.Name(int(u)))
		}
		undone[id] = n.Undo
		r := &pb.Report{Operation: op.ID, Tasks: []uint32{u}, Fences: []uint64{s.Fence(u)}}
		if s.Graph.Action[u] == model.Confirm {
			r.Outputs = []*pb.Outputs{{Outcome: pb.Outcome_OUTCOME_SUCCEEDED,
				Output: js(model.TaskOutput{IPAddresses: map[string]string{"access_v4": "10.0.0.1"}})}}
		}
		l.must(&pb.Command{Change: &pb.Command_Report{Report: r}})
	}
}
