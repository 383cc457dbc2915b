package state_test

import (
	"errors"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// A command with a known request id returns the earlier answer and changes nothing.
func TestRequestsAreDoneOnce(t *testing.T) {
	m := fresh(t)
	do(t, m, entry(1, 1, tenant("one", 0, 0), tenant("two", 0, 0)))
	first := do(t, m, entry(2, 2, start("one", "00000001", "a", 1, "", "r")))[0]
	if first.Err != nil || first.Repeated {
		t.Fatal(first)
	}
	again := do(t, m, entry(3, 3, start("one", "00000002", "b", 1, "", "r")))[0]
	if !again.Repeated || again.Subject != first.Subject || again.Index != first.Index {
		t.Errorf("the repeat gave %+v, the first %+v", again, first)
	}
	if other := do(t, m, entry(4, 4, start("two", "00000003", "a", 1, "", "r")))[0]; other.Repeated || other.Err != nil {
		t.Errorf("another tenant's request of the same id: %+v", other)
	}
	if n := len(m.View().Clusters("")); n != 2 {
		t.Errorf("%d clusters", n)
	}
	// A refused request may be sent again with the same id.
	if a := do(t, m, entry(5, 5, start("one", "00000004", "a", 1, "", "q")))[0]; !errors.Is(a.Err, problem.Conflict) {
		t.Fatal(a)
	}
	if a := do(t, m, entry(6, 6, start("one", "00000004", "d", 1, "", "q")))[0]; a.Err != nil || a.Repeated {
		t.Fatal(a)
	}
}

// A refusal that is remembered holds for every copy that comes later, also from a snapshot, and not for what was carried out before it.
func TestCopiesOfRefusedRequests(t *testing.T) {
	m := fresh(t)
	refuse := func(request string) *pb.Command {
		return &pb.Command{Tenant: "one", Actor: "ann", RequestId: request, Change: &pb.Command_RefuseCopies{
			RefuseCopies: &pb.RefuseCopies{Code: string(problem.NotFound)},
		}}
	}
	do(t, m, entry(1, 1, tenant("one", 0, 0)))
	if a := do(t, m, entry(2, 2, refuse("late")))[0]; a.Err != nil || a.Repeated {
		t.Fatalf("%+v", a)
	}
	records := m.View().Audit().Stats().Head.Seq
	m = restored(t, m)
	if a := do(t, m, entry(3, 3, start("one", "00000001", "a", 1, "", "late")))[0]; !errors.Is(a.Err, problem.NotFound) || a.Repeated {
		t.Errorf("the late copy: %+v", a)
	}
	who := model.Caller{Tenant: "one", Actor: "ann", Request: "late"}
	if _, ok := m.View().Answered(who); ok || len(m.View().Clusters("")) > 0 {
		t.Error("a request that was refused counts as carried out")
	}
	if a := do(t, m, entry(4, 4, refuse("late")))[0]; a.Err != nil || a.Repeated {
		t.Errorf("refused again: %+v", a)
	}
	if n := m.View().Audit().Stats().Head.Seq; n != records {
		t.Errorf("%d records of what changed nothing", n-records)
	}
	done := do(t, m, entry(5, 5, start("one", "00000001", "a", 1, "", "done")))[0]
	if a := do(t, m, entry(6, 6, refuse("done")))[0]; a.Err != nil || !a.Repeated || a.Subject != done.Subject {
		t.Errorf("the refusal of what was carried out: %+v", a)
	}
	if a := do(t, m, entry(7, 7, start("one", "00000002", "a", 1, "", "done")))[0]; !a.Repeated || a.Err != nil {
		t.Errorf("the repetition of what was carried out: %+v", a)
	}
}
