package state_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// heldClinic returns a clinic whose state was restored from its own snapshot. The mesh is held for the reason why.
func heldClinic(t *testing.T, why *roster.Hold) *clinic {
	t.Helper()
	c := newClinic(t)
	c.do(start("t", "00000002", "d", 2, "delete", ""))
	c.do(order("00000002-001", "pause"))
	v, err := state.Restored(bytes.NewReader(dump(t, c.m)), func(string) bool { return true }, time.UnixMilli(c.now), nil, why)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := v.Write(&b); err != nil {
		t.Fatal(err)
	}
	c.m, c.base, c.log = fresh(t), b.Bytes(), nil
	if err := c.m.Restore(io.NopCloser(bytes.NewReader(c.base))); err != nil {
		t.Fatal(err)
	}
	if err := c.do(session("other", "a")).Err; err != nil {
		t.Fatal(err)
	}
	return c
}

// beginning returns commands with which work begins, by name.
func beginning() map[string]*pb.Command {
	return map[string]*pb.Command{
		"a lease":              lease("00000002-001", "other", 0),
		"an operation":         start("t", "00000003", "e", 1, "delete", ""),
		"a queued operation":   {Tenant: "t", Actor: "ann", Change: &pb.Command_QueueOperation{QueueOperation: &pb.QueueOperation{}}},
		"a run":                {Tenant: "t", Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Start{}}}},
		"the end of a machine": {Tenant: "t", Change: &pb.Command_DropResource{DropResource: &pb.DropResource{Id: "i", Cluster: "00000009"}}},
	}
}

// A mesh that was restored begins no work until somebody resumes it, under whatever leader. Everything else goes on.
func TestHold(t *testing.T) {
	c := heldClinic(t, &roster.Hold{File: "a.snap", Since: 1_700_000_000_000, Actor: "ann"})
	if h := c.m.View().Hold(); h == nil || h.File != "a.snap" || h.Since != 1_700_000_000_000 || h.Actor != "ann" {
		t.Fatalf("%+v", h)
	}
	for name, cmd := range beginning() {
		if err := c.do(cmd).Err; !errors.Is(err, problem.Conflict) ||
			err.Error() != "the mesh is held, as it was restored from a.snap at 2023-11-14 22:13:20Z: it begins no work until a person has "+
				"checked what is on record and runs coopr operator resume" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.m.Try(start("t", "00000003", "e", 1, "delete", ""), c.now).Err; err != nil {
		t.Errorf("a preview: %v", err)
	}
	lasting := logformat.Lease("00000001", 0, 1_000_000)
	lasting.Tenant, lasting.Actor = "t", "ann"
	for name, cmd := range map[string]*pb.Command{
		"an order": order("00000002-001", "resume"), "a tenant": tenant("u", 1, 1), "a longer lease": lasting,
		"a higher level": {Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.HoldLevel}}},
	} {
		if err := c.do(cmd).Err; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.m.View().Hold() == nil {
		t.Fatal("the hold has ended by itself")
	}
	found := &pb.NoteOrphans{Found: []*pb.FoundOrphan{{Tenant: "t", ProviderType: "cloud", Id: "i"}}} // somebody searches
	if err := c.do(&pb.Command{Change: &pb.Command_NoteOrphans{NoteOrphans: found}}).Err; err != nil || len(c.m.View().Orphans().Found) != 1 {
		t.Errorf("a search for orphans: %v", err)
	}
	var batches []state.Batch
	defer c.m.Watch(func(b state.Batch) { batches = append(batches, b) })()
	resume := &pb.Command{Actor: "bob", Change: &pb.Command_ResumeMesh{ResumeMesh: &pb.ResumeMesh{}}}
	if err := c.do(resume).Err; err != nil || c.m.View().Hold() != nil {
		t.Errorf("%v, %+v", err, c.m.View().Hold())
	}
	if o := c.m.View().Orphans(); o.At != 0 || len(o.Found) > 0 {
		t.Errorf("the grace of orphans has begun before the mesh was resumed: %+v", o)
	}
	if len(batches) != 1 || !batches[0].Resumed || !batches[0].Anew() || batches[0].Restored {
		t.Errorf("%+v", batches)
	}
	if err := c.do(resume).Err; !errors.Is(err, problem.Conflict) {
		t.Errorf("resumed twice: %v", err)
	}
	p, _ := c.m.View().Plan("00000002-001")
	if a := c.do(lease("00000002-001", "other", p.Leasable()...)); a.Err != nil || len(a.Refused) > 0 {
		t.Errorf("a lease after the hold: %+v", a)
	}
	if err := c.do(start("t", "00000003", "e", 1, "delete", "")).Err; err != nil {
		t.Errorf("an operation after the hold: %v", err)
	}
	got := map[string]string{}
	err := c.m.View().Audit().Each(&audit.Filter{Types: []string{"hold.*"}}, false, audit.Cursor{}, func(r audit.Record) bool {
		got[r.Type] = r.Actor + ": " + r.Message
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if why := "restored from a.snap at 2023-11-14 22:13:20Z"; len(got) != 2 || got["hold.created"] != "ann: "+why || got["hold.deleted"] != "bob: "+why {
		t.Errorf("the audit log has %v", got)
	}
}

// A mesh that resumes at once is not held, even if the snapshot is that of a mesh that was.
func TestRestoredWithoutHold(t *testing.T) {
	c := heldClinic(t, &roster.Hold{Since: 1})
	v, err := state.Restored(bytes.NewReader(dump(t, c.m)), func(string) bool { return true }, time.UnixMilli(c.now), nil, nil)
	if err != nil || v.Hold() != nil {
		t.Errorf("%v %+v", err, v.Hold())
	}
	if a := heldClinic(t, nil).do(lease("00000002-001", "other", 0)); errors.Is(a.Err, problem.Conflict) {
		t.Error(a.Err)
	}
}

// A mesh that restores a snapshot from before its upgrade keeps its feature level. Otherwise an agent of an older build, which does not know
// the hold, could become a voter, and another restore would be refused as long as a voter is away.
func TestRestoredFromBeforeAnUpgrade(t *testing.T) {
	at := func(level uint32) *state.Machine {
		c := newClinic(t)
		if err := c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level}}}).Err; err != nil {
			t.Fatal(err)
		}
		return c.m
	}
	for _, x := range []struct{ saved, own, want uint32 }{{logformat.HoldLevel - 1, logformat.HoldLevel, logformat.HoldLevel}, {2, 1, 2}, {1, 1, 1}} {
		v, err := state.Restored(bytes.NewReader(dump(t, at(x.saved))), func(string) bool { return true }, time.UnixMilli(1), at(x.own).View(), nil)
		if err != nil || v.FeatureLevel() != x.want {
			t.Errorf("a snapshot of level %d in a mesh of level %d: %d, %v", x.saved, x.own, v.FeatureLevel(), err)
		}
	}
}
