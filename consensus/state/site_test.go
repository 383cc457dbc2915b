package state_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// TestSites takes a site through its life: applied, assigned to hosts, a new generation, released,
// snapshot and restore, deleted.
func TestSites(t *testing.T) {
	m := fresh(t)
	index := uint64(0)
	run := func(cmd *pb.Command) state.Answer {
		t.Helper()
		index++
		return do(t, m, entry(index, int64(1000+index), cmd))[0]
	}
	order := func(ch *pb.ChangeSite) state.Answer {
		t.Helper()
		ch.Site = "s"
		return run(&pb.Command{Tenant: "t", Actor: "alice", Change: &pb.Command_ChangeSite{ChangeSite: ch}})
	}
	must := func(a state.Answer) {
		t.Helper()
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	doc := &site.Document{Name: "s", Objects: []site.Object{{Name: "a", Host: "agent:x", Type: "script"},
		{Name: "b", Host: "agent:y", Type: "script"}}}
	apply := func(d *site.Document, number, version uint64, deleting bool) state.Answer {
		t.Helper()
		now, err := compile.Site(doc, compile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		next := now
		plan := compile.NewPlan(nil, now)
		if number > 1 {
			if next, err = compile.Site(d, compile.Options{Last: now}); err != nil {
				t.Fatal(err)
			}
			plan = compile.NewPlan(now, next)
		}
		n := &pb.NextGeneration{Version: version, Deleting: deleting}
		n.Generation, n.Switches = logtest.Site(
			site.Generation{Tenant: "t", Site: "s", Number: number, Document: js(d), IDs: compile.Numbers(d, next)}, compile.Switches(plan, next))
		return order(&pb.ChangeSite{Change: &pb.ChangeSite_Next{Next: n}})
	}
	record := func() *site.Record {
		t.Helper()
		r, ok := m.View().Site("t", "s")
		if !ok {
			t.Fatal("there is no site")
		}
		return r
	}
	assign := func(agent, process string, hosts ...string) state.Answer {
		var list []site.Host
		for _, h := range hosts {
			list = append(list, site.Host{Name: h, Agent: agent, Process: process})
		}
		return order(&pb.ChangeSite{Change: &pb.ChangeSite_Assign{Assign: &pb.AssignHosts{Hosts: logtest.Hosts(list), Epoch: record().Epoch}}})
	}

	must(run(tenant("t", 0, 0)))
	must(run(session("s1", "one")))
	must(run(session("s2", "two")))
	must(apply(doc, 1, 0, false))
	if r := record(); r.Generation != 1 || r.Next != 0 || len(r.Hosts) != 2 {
		t.Fatalf("%+v", r)
	}
	must(assign("one", "p1", "agent:x", "agent:y"))
	if r := record(); r.Lives[0].Inc != 1 || r.Lives[1].Inc != 1 {
		t.Errorf("%+v", r.Lives)
	}
	if a := assign("two", "p1", "agent:y"); !errors.Is(a.Err, problem.Conflict) {
		t.Errorf("a host was given away whose agent is alive: %v", a.Err)
	}
	if a := apply(doc, 2, 1, false); !errors.Is(a.Err, problem.Stale) {
		t.Errorf("a plan of yesterday was taken: %v", a.Err)
	}
	must(run(endSession("s1")))
	must(assign("two", "p2", "agent:y"))
	if r := record(); r.Lives[0].Inc != 1 || r.Lives[1].Inc != 2 || r.Hosts[1].Agent != "two" {
		t.Errorf("%+v", r)
	}
	// The next generation removes object a. The host runtime of a is gone, so that an operator must
	// confirm that a is away.
	less := &site.Document{Name: "s", Objects: doc.Objects[1:]}
	must(apply(less, 2, record().Version, false))
	if r := record(); r.Next != 2 {
		t.Fatalf("%+v", r)
	}
	if a := apply(less, 3, record().Version, false); !errors.Is(a.Err, problem.Conflict) {
		t.Errorf("two generations were on their way: %v", a.Err)
	}
	must(order(&pb.ChangeSite{Change: &pb.ChangeSite_Release{Release: &pb.ReleaseObject{Id: 0, Name: "a", Reason: "scrapped"}}}))
	r := record()
	groups := r.Ready(func(id object.ID) bool { return id == 0 && len(r.Released) == 1 })
	if len(groups) != 1 {
		t.Fatalf("%v of %+v", groups, r)
	}
	must(order(&pb.ChangeSite{Change: &pb.ChangeSite_Switch{Switch: &pb.SwitchGroups{Groups: []uint32{uint32(groups[0])}, Generation: 2}}}))
	if r := record(); r.Generation != 2 || r.Next != 0 || len(r.Hosts) != 1 || r.Lives[0].Host >= 0 || len(r.Released) != 0 {
		t.Errorf("%+v", r)
	}
	if gs := m.View().Generations("t", "s"); len(gs) != 2 || gs[0].Number != 2 || gs[0].Actor != "alice" {
		t.Errorf("%+v", gs)
	}

	snap := dump(t, m)
	again := fresh(t)
	if err := again.Restore(io.NopCloser(bytes.NewReader(snap))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(dump(t, again), snap) {
		t.Error("a snapshot does not restore what it was made of")
	}
	doc = less
	must(apply(&site.Document{Name: "s"}, 3, record().Version, true))
	must(order(&pb.ChangeSite{Change: &pb.ChangeSite_Switch{Switch: &pb.SwitchGroups{Groups: []uint32{0}, Generation: 3}}}))
	if _, ok := m.View().Site("t", "s"); ok || len(m.View().Generations("t", "s")) != 0 {
		t.Error("a deleted site is still there")
	}
}
