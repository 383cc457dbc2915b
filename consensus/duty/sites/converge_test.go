package sites

import (
	"errors"
	"testing"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Reports of different moments do not prove that a site has converged. It has converged only if the
// objects of every host runtime were at rest between two calls.
func TestConverged(t *testing.T) {
	r := &site.Record{Version: 7, Generation: 2, Hosts: []site.Host{{Name: "agent:a", Agent: "A"}, {Name: "agent:b", Agent: "B"}},
		Lives: []site.Life{{Host: 0, Inc: 1}, {Host: -1, Inc: 3}, {Host: 1, Inc: 2}}}
	s := &known{reports: map[object.ID]*pb.ObjectReport{}}
	calls := uint64(100)
	converge := func() bool { return s.converge(r, func() uint64 { calls++; return calls }) }
	report := func(id, inc uint32, generation uint64, calm bool) {
		o := &pb.ObjectReport{Id: id, Inc: inc, Generation: generation, AtRest: calm}
		s.recount(r, s.reports[object.ID(id)], o)
		s.reports[object.ID(id)] = o
	}
	answer := func(agent string, call uint64, calm bool, stirs uint64) bool {
		return s.answer(agent, &pb.Calm{Call: call, AtRest: calm, Stirs: stirs})
	}
	quiet := func(why string) {
		t.Helper()
		if converge() || s.call != 0 || s.converged != 0 {
			t.Fatalf("%s: call %d, converged %d", why, s.call, s.converged)
		}
	}
	calling := func(why string, number uint64) {
		t.Helper()
		if converge() || s.call != number || s.converged != 0 {
			t.Fatalf("%s: call %d, not %d; converged %d", why, s.call, number, s.converged)
		}
	}
	quiet("nothing is known")
	report(0, 1, 2, true)
	quiet("one has said nothing")
	report(2, 1, 2, true)
	quiet("one speaks of another life")
	report(2, 2, 1, true)
	quiet("one speaks of another generation")
	report(2, 2, 2, true)
	calling("all are at rest", 101)
	calling("nobody has answered", 101)
	answer("A", 101, true, 4)
	answer("B", 100, true, 9) // of a call before
	calling("one has not answered", 101)
	answer("B", 101, true, 9)
	calling("all have answered once", 102)
	answer("A", 102, true, 5)
	answer("B", 102, true, 9)
	calling("one was at work in between", 103)
	answer("A", 103, true, 5)
	report(2, 2, 2, false)
	quiet("one is at work")
	report(2, 2, 2, true)
	calling("all are at rest again", 104)
	answer("A", 104, false, 6)
	answer("B", 104, true, 10)
	calling("an answer is ahead of the reports", 105)
	for call := uint64(105); call < 107; call++ {
		answer("A", call, true, 6)
		if !answer("B", call, true, 10) {
			t.Error("an answer is nothing to do")
		}
		if done := converge(); done != (call == 106) {
			t.Fatalf("call %d: converged %t", call, done)
		}
	}
	if s.converged != 7 || converge() || s.answer("A", nil) {
		t.Errorf("converged at %d", s.converged)
	}
	report(0, 1, 2, false)
	quiet("it was, and is not any more")
	report(0, 1, 2, true)
	if !s.answer("A", nil) {
		t.Error("there is something to do")
	}
	calling("it may be again", 107)
	r.Version, r.Next = 8, 3
	quiet("another generation is on its way")
}

// The end of a term ends the calls that wait for news of it.
func TestOver(t *testing.T) {
	c := New(Config{})
	c.revision = 5
	ended := make(chan error)
	go func() {
		_, err := c.Status(t.Context(), "t", "s", 5)
		ended <- err
	}()
	c.end()
	if err := <-ended; !errors.Is(err, ErrOver) {
		t.Error(err)
	}
}
