package state_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// update writes the fixtures of the present format. The fixtures of released formats are never
// written again: a new format has its own folder.
var update = flag.Bool("update", false, "write the fixtures of the log's format again")

const fixture = "testdata/format-1/"

// TestFormat applies the fixture's log and restores its snapshot. Both must lead to the state in
// the fixture.
func TestFormat(t *testing.T) {
	if *update {
		c := everything(t)
		write(t, "log", frames(c.log))
		write(t, "snapshot", dump(t, c.m))
		write(t, "state.jsonl", rows(t, dump(t, c.m), nil))
	}
	want := read(t, "state.jsonl")
	applied := fresh(t)
	kinds := map[protoreflect.Name]bool{}
	for i, data := range unframe(t, read(t, "log")) {
		if a := do(t, applied, &raft.Log{Type: raft.LogCommand, Index: uint64(i + 1), Data: data}); len(a) == 0 {
			t.Fatalf("entry %d was not applied", i+1)
		}
		var e pb.Entry
		if err := proto.Unmarshal(data, &e); err != nil {
			t.Fatal(err)
		}
		for _, c := range e.Commands {
			count(c, "change", kinds)
			count(c.GetChangeSite(), "change", kinds)
			count(c.GetChangeRuns(), "change", kinds)
			count(c.GetChangeResource(), "change", kinds)
		}
	}
	whole(t, kinds, &pb.Command{}, "change")
	whole(t, kinds, &pb.ChangeSite{}, "change")
	whole(t, kinds, &pb.ChangeRuns{}, "change")
	whole(t, kinds, &pb.ChangeResource{}, "change")
	same(t, "the state that the log comes to", rows(t, dump(t, applied), nil), want)

	restored := fresh(t)
	if err := restored.Restore(io.NopCloser(bytes.NewReader(read(t, "snapshot")))); err != nil {
		t.Fatal(err)
	}
	tables := map[protoreflect.Name]bool{}
	same(t, "the state that the snapshot holds", rows(t, dump(t, restored), tables), want)
	whole(t, tables, &pb.SnapshotRecord{}, "row")
	if !bytes.Equal(dump(t, restored), dump(t, applied)) {
		t.Error("a voter that restores the snapshot writes another one than a voter that applied the log")
	}
}

// TestSchema compares the numbers and types of all stored fields with the recorded ones. Fields may
// be added. None may change or go.
func TestSchema(t *testing.T) {
	var now []string
	seen := map[protoreflect.FullName]bool{}
	var visit func(m protoreflect.MessageDescriptor)
	visit = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			kind := f.Kind().String()
			switch {
			case f.IsMap():
				kind = fmt.Sprintf("map<%s, %s>", f.MapKey().Kind(), f.MapValue().Kind())
				if f.MapValue().Message() != nil {
					visit(f.MapValue().Message())
				}
			case f.Message() != nil:
				kind = string(f.Message().FullName())
				visit(f.Message())
			case f.Enum() != nil:
				kind = string(f.Enum().FullName())
				for j := range f.Enum().Values().Len() {
					v := f.Enum().Values().Get(j)
					now = append(now, fmt.Sprintf("%s %s = %d", f.Enum().FullName(), v.Name(), v.Number()))
				}
			}
			if f.IsList() {
				kind = "repeated " + kind
			}
			now = append(now, fmt.Sprintf("%s %s = %d %s", m.FullName(), f.Name(), f.Number(), kind))
		}
	}
	for _, m := range []proto.Message{&pb.Entry{}, &pb.SnapshotHeader{}, &pb.SnapshotRecord{}} {
		visit(m.ProtoReflect().Descriptor())
	}
	slices.Sort(now)
	now = slices.Compact(now)
	if *update {
		write(t, "schema.txt", []byte(strings.Join(now, "\n")+"\n"))
	}
	for _, line := range strings.Split(strings.TrimSpace(string(read(t, "schema.txt"))), "\n") {
		if _, ok := slices.BinarySearch(now, line); !ok {
			t.Errorf("the format had %q, and this build does not", line)
		}
	}
}

// FuzzEntry applies any bytes as an entry to the state of the fixture. Nothing may panic, and the
// resulting state can be written and read.
func FuzzEntry(f *testing.F) {
	for _, data := range unframe(f, read(f, "log")) {
		f.Add(data)
	}
	snapshot := read(f, "snapshot")
	f.Fuzz(func(t *testing.T, data []byte) {
		m := fresh(t)
		if err := m.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
			t.Fatal(err)
		}
		m.Apply(&raft.Log{Type: raft.LogCommand, Index: 1 << 20, Data: data})
		if m.Halted() != nil {
			return
		}
		if err := fresh(t).Restore(io.NopCloser(bytes.NewReader(dump(t, m)))); err != nil {
			t.Error(err)
		}
	})
}

// FuzzSnapshot restores a snapshot with any record. The machine refuses it, or the state can be
// written and read again. The sum at the end is correct, because otherwise every snapshot would be
// refused.
func FuzzSnapshot(f *testing.F) {
	all := read(f, "snapshot")
	pieces := unframe(f, all[:len(all)-36]) // without the end and the sum
	for _, p := range pieces[1:] {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, rec []byte) {
		if len(rec) == 0 {
			return // an empty record is the end
		}
		m := fresh(t)
		if err := m.Restore(io.NopCloser(bytes.NewReader(sealed(frames([][]byte{pieces[0], rec}))))); err != nil {
			return
		}
		if err := fresh(t).Restore(io.NopCloser(bytes.NewReader(dump(t, m)))); err != nil {
			t.Error(err)
		}
	})
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(fixture + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(fixture, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fixture+name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// frames writes each piece after its length.
func frames(pieces [][]byte) []byte {
	var out []byte
	for _, p := range pieces {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(p))), p...)
	}
	return out
}

func unframe(t testing.TB, b []byte) [][]byte {
	t.Helper()
	var out [][]byte
	for len(b) > 0 {
		n := binary.BigEndian.Uint32(b)
		if uint32(len(b)-4) < n {
			t.Fatal("the fixture's log ends within an entry")
		}
		out = append(out, b[4:4+n])
		b = b[4+n:]
	}
	return out
}

// rows returns a snapshot's records as lines of JSON, and adds their kinds to kinds.
func rows(t testing.TB, b []byte, kinds map[protoreflect.Name]bool) []byte {
	t.Helper()
	var out bytes.Buffer
	for i := 0; ; i++ {
		n := binary.BigEndian.Uint32(b)
		if n == 0 {
			return out.Bytes()
		}
		var m proto.Message = &pb.SnapshotRecord{}
		if i == 0 {
			m = &pb.SnapshotHeader{}
		}
		if err := proto.Unmarshal(b[4:4+n], m); err != nil {
			t.Fatal(err)
		}
		count(m, "row", kinds)
		text, err := protojson.Marshal(m)
		if err == nil {
			err = json.Compact(&out, text) // protojson varies its white space
		}
		if err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
		b = b[4+n:]
	}
}

// count adds the field of a oneof that a message has to into.
func count(m proto.Message, oneof protoreflect.Name, into map[protoreflect.Name]bool) {
	r := m.ProtoReflect()
	if o := r.Descriptor().Oneofs().ByName(oneof); o != nil && into != nil && r.IsValid() {
		if f := r.WhichOneof(o); f != nil {
			into[f.FullName().Name()+protoreflect.Name(" of ")+r.Descriptor().Name()] = true
		}
	}
}

// whole expects that the fixture has every field of a oneof.
func whole(t testing.TB, have map[protoreflect.Name]bool, m proto.Message, oneof protoreflect.Name) {
	t.Helper()
	d := m.ProtoReflect().Descriptor()
	for i := range d.Oneofs().ByName(oneof).Fields().Len() {
		f := d.Oneofs().ByName(oneof).Fields().Get(i)
		if !have[f.Name()+" of "+d.Name()] {
			t.Errorf("the fixture has no %s of a %s", f.Name(), d.Name())
		}
	}
}

func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		a, b := "", ""
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Fatalf("%s differs in line %d:\n%s\nwant\n%s", what, i+1, a, b)
		}
	}
}

// everything builds a state with a row in every table, by at least one command of every kind.
func everything(t *testing.T) *clinic {
	c := newClinic(t)
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 1, Mesh: "meshname"}}})
	must := func(cmd *pb.Command) state.Answer {
		t.Helper()
		a := c.do(cmd)
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a
	}
	as := func(request string, cmd *pb.Command) *pb.Command {
		cmd.Tenant, cmd.Actor, cmd.RequestId = "t", "ann", request
		return cmd
	}
	must(tenant("gone", 1, 1))
	must(&pb.Command{Actor: "root", Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: "gone"}}})
	for _, id := range []string{"t1", "t2"} {
		must(&pb.Command{Actor: "root", Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Hash: []byte("hash of " + id), Actor: "ann",
			Tenant: "t", Role: "admin", Id: id}}})
	}
	must(&pb.Command{Actor: "root", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "t2"}}})
	must(created("eve", "on call"))
	must(created("fay", "has left"))
	must(putUser("root", model.User{Name: "eve", Tenant: "t", Role: "admin", Groups: []string{"devs", "oncall"}, Disabled: true}, "$argon2id"))
	must(&pb.Command{Tenant: "t", Actor: "root", Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: "fay"}}})
	must(created("gus", ""))
	must(grantOf("g1", "ann", "user/gus", c.now+1e6))
	must(grantOf("g2", "ann", "group/devs", 0))
	must(dropGrant("g2"))
	must(sessionOf("gus", "t3", c.now+1e6, 0))
	must(&pb.Command{Actor: "gus", Change: &pb.Command_RenewToken{RenewToken: &pb.RenewToken{Id: "t3", ExpiresMs: c.now + 2e6}}})
	bound := tokenOf("ann", "t4", "read", "")
	bound.GetPutToken().Sources = []string{"10.0.0.0/8", "2001:db8::/32"}
	must(bound)
	must(as("r1", &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{
		{Kind: "services", Name: "x", Body: []byte(`{"name":"x"}`)}, {Kind: "services", Name: "y", Body: []byte(`{"name":"y"}`)},
	}}}}))
	must(as("", &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
		Delete: []*pb.DefinitionVersion{{Kind: "services", Name: "y"}}}}}))

	open := session("s2", "b")
	open.GetOpenSession().Types = append(open.GetOpenSession().Types,
		logtest.PluginType(model.PluginType{Base: model.Base{Name: "cloud", Label: "Cloud"}, Class: "provider"}))
	must(open)
	must(session("s3", "c"))
	must(endSession("s3"))
	must(&pb.Command{Actor: "root", Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "c"}}})

	c.verdict(app, "app", true, pb.Machine_MACHINE_THERE)
	c.verdict(app, "app", false, pb.Machine_MACHINE_UNKNOWN)
	const second = "00000001-002"
	must(c.concurrent(second, model.OpRecover, "coopr", map[string]string{app: "app"}))
	must(as("", &pb.Command{Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: second,
		Order: pb.PlanOrder_PLAN_ORDER_INTERRUPT}}}))
	must(as("", &pb.Command{Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{Operation: second,
		Order: pb.PlanOrder_PLAN_ORDER_CONTINUE}}}))
	must(as("", logformat.Control("00000001", "pause-recovery", "lunch")))
	must(lease(second, "s2", 0))
	s, _ := c.m.View().Plan(second)
	must(&pb.Command{Change: &pb.Command_SaveValue{SaveValue: &pb.SaveValue{Operation: second, Task: 0, Fence: s.Fence(0), Key: "k",
		Value: []byte(`"v"`)}}})
	must(&pb.Command{Change: &pb.Command_Report{Report: &pb.Report{Operation: second, Tasks: []uint32{0}, Fences: []uint64{s.Fence(0)},
		Started: true}}})
	must(report(second, 0, s.Fence(0), pb.Outcome_OUTCOME_RETRYABLE, ""))
	must(as("", logformat.Control(second, "pause", "")))

	// A second cluster is large enough for parts, and has an operation that waits for its turn.
	make2 := start("t", "00000002", "d", 2, "pause", "r2")
	make2.GetStartOperation().LifetimeMs = 1000
	make2.GetStartOperation().Operation.Config = []byte(`{"a":1}`)
	data, err := proto.Marshal(make2)
	if err != nil {
		t.Fatal(err)
	}
	for i, piece := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		must(&pb.Command{Tenant: "t", Change: &pb.Command_Part{Part: &pb.Part{Id: "large", Number: uint32(i), Total: 2, Data: piece}}})
	}
	must(&pb.Command{Tenant: "t", Change: &pb.Command_Part{Part: &pb.Part{Id: "begun", Total: 2, Data: []byte("half")}}})
	cl, _ := c.m.View().Cluster("t", "00000002")
	must(as("r3", &pb.Command{Change: &pb.Command_QueueOperation{QueueOperation: &pb.QueueOperation{
		Operation: logtest.Operation(model.Operation{ID: "00000002-002", Tenant: "t", Cluster: "00000002", Type: model.OpGrow,
			Actor: "ann"}),
		Request:        logtest.Request(operation.Request{Type: model.OpGrow, Nodes: 1, Config: map[string]any{"b": true}}),
		ClusterVersion: cl.Version,
	}}}))
	c.do(as("", &pb.Command{Change: &pb.Command_DropResource{DropResource: &pb.DropResource{Provider: "cloud", Id: "i-1", Cluster: "00000009",
		Node: "00000009-1000", Reason: "orphan"}}}))
	must(&pb.Command{Change: &pb.Command_Checkpoint{Checkpoint: &pb.Checkpoint{}}})
	must(&pb.Command{Change: &pb.Command_ReportDivergence{ReportDivergence: &pb.ReportDivergence{
		Server: "a", Index: 7, Tables: []string{"clusters"}, Quarantine: true,
	}}})
	must(&pb.Command{Change: &pb.Command_NoteOrphans{NoteOrphans: &pb.NoteOrphans{Found: []*pb.FoundOrphan{
		{Tenant: "t", ProviderType: "cloud", Id: "i-1"}}}}})

	for _, c := range births() {
		must(c)
	}
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_PutDataKey{PutDataKey: &pb.PutDataKey{
		Number: 1, MeshKey: 1, MeshPrint: []byte("print"), Wrapped: []byte("data key"),
	}}})
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_PutDataKey{PutDataKey: &pb.PutDataKey{
		Tenant: "t", Number: 1, MeshKey: 1, MeshPrint: []byte("print"), Wrapped: []byte("data key of t"),
	}}})
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{
		Tenant: "t", Values: []*pb.SealedValue{{Id: "v", Version: 1, Sealed: []byte("sealed")}, {Id: "u", Version: 1, Sealed: []byte("sealed")}},
	}}})
	seed := bytes.Repeat([]byte{7}, 32)
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_PutSigningKey{PutSigningKey: &pb.PutSigningKey{
		Number: 1, Public: signing.Public(1, seed).Key, Private: &pb.SealedValue{Id: table.PrivateID(1), Version: 1, Sealed: []byte("sealed")},
	}}})
	head, err := c.m.View().Audit().Stats().Head.Sign(1, seed)
	if err != nil {
		t.Fatal(err)
	}
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_SignHead{SignHead: &pb.SignHead{
		Number: head.Seq, Hash: head.Hash[:], Key: 1, Signature: head.Signature,
	}}})
	must(putTaskKey(1, c.now, func(p *pb.PutTaskKey) { p.Private.Sealed = []byte("sealed") }))
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_DropSealed{DropSealed: &pb.DropSealed{
		Values: []*pb.SealedName{{Tenant: "t", Id: "u", Version: 1}},
	}}})

	must(&pb.Command{Actor: "coopr", Change: &pb.Command_NoteExport{NoteExport: &pb.NoteExport{Number: 1, Print: []byte("print"), TimeMs: 7}}})
	rotated(must)
	c.do(as("", &pb.Command{Change: &pb.Command_ResumeMesh{ResumeMesh: &pb.ResumeMesh{}}})) // refused, as only a restore holds a mesh
	c.sites(must, as)
	c.resources(must, as)
	c.programs(must, as)
	must(&pb.Command{Change: &pb.Command_Prune{Prune: &pb.Prune{Parts: []string{"none"}, RequestsBeforeMs: 1001, AuditKeep: 30}}})
	move := func(sink string, number uint64) {
		must(&pb.Command{Change: &pb.Command_MoveCursors{MoveCursors: &pb.MoveCursors{Cursors: []*pb.SinkCursor{{Sink: sink, Number: number}}}}})
	}
	must(&pb.Command{Tenant: "t", Actor: "eve", RequestId: "refused", Change: &pb.Command_RefuseCopies{
		RefuseCopies: &pb.RefuseCopies{Code: string(problem.NotFound)},
	}})
	move("siem", 3)
	move("siem", 2)
	move("file", 1)
	must(&pb.Command{Change: &pb.Command_NoteIncidents{NoteIncidents: &pb.NoteIncidents{Incidents: []*pb.Incident{
		{Type: model.IncidentLogin, Tenant: "t", Actor: "eve", Action: "login", Object: "/v1/login", Source: "192.0.2.1", Agent: "a", Request: "r"},
		{Type: model.IncidentTokenRefused, Action: "getSelf", Source: "192.0.2.0/24", Agent: "a", Count: 7, FirstMs: 1, LastMs: 2},
	}}}})
	must(&pb.Command{Change: &pb.Command_PruneAudit{PruneAudit: &pb.PruneAudit{
		Keep: []*pb.TenantRecords{{Tenant: "t", Records: 20}}, Sinks: []string{"siem", "new"},
	}}})
	c.now += 2 * oneHour
	must(&pb.Command{Change: &pb.Command_TouchTokens{TouchTokens: &pb.TouchTokens{Ids: []string{"t1", "t4", "gone"}, HourMs: c.now}}})
	return c
}

// rotated rotates the root token, and the mesh key, that of gossip and the CA until some phase.
func rotated(must func(*pb.Command) state.Answer) {
	hash := sha256.Sum256([]byte("root"))
	must(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.RotationLevel}}})
	must(&pb.Command{Actor: "root", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{
		Kind: record.RotationKind_ROTATION_KIND_ROOT, Number: 1, Next: ended, RootHash: hash[:], RootActor: "root"}}})
	for phase := begins; phase < active; phase++ {
		must(rotate(1, phase, phase+1))
	}
	behind := rotate(1, active, active)
	behind.GetRotate().Behind = []string{"a"}
	must(behind)
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: &pb.Reseal{
		Keys: []*pb.RewrappedKey{{Was: []byte("data key"), Key: &pb.PutDataKey{
			Number: 1, MeshKey: 2, MeshPrint: []byte("new print"), Wrapped: []byte("data key anew")}}},
		Mesh: &pb.ResealedMesh{WasCa: []byte("sealed key"), Ca: []byte("key anew"), WasGossip: []byte("sealed gossip"), Gossip: []byte("gossip anew")},
	}}})
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_PutDataKey{PutDataKey: &pb.PutDataKey{
		Tenant: "t", Number: 2, MeshKey: 2, MeshPrint: []byte("new print"), Wrapped: []byte("second data key of t"),
	}}})
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: &pb.Reseal{
		Values: []*pb.ResealedValue{{Tenant: "t", Value: &pb.SealedValue{Id: "v", Version: 1, Sealed: []byte("sealed anew")}}},
		Drop:   []*pb.DataKeyName{{Tenant: "t", Number: 1}},
	}}})
	gossip := &pb.Rotate{Kind: record.RotationKind_ROTATION_KIND_GOSSIP, Number: 1, Next: begun}
	must(&pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: gossip}})
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_Rotate{Rotate: &pb.Rotate{Kind: gossip.Kind, Number: 1, Phase: begun, Next: spread,
		WasGossip: []byte("gossip anew"), Gossip: []byte("\x00\x00\x00\x02both keys of gossip")}}})
	for phase, p := range []*pb.Rotate{
		{NoBridge: false},
		{Cas: [][]byte{[]byte("ca"), []byte("next ca")}, WasCa: []byte("key anew"), SealedCa: []byte("\x00\x00\x00\x02both keys")},
		{Cas: [][]byte{[]byte("next ca"), []byte("ca")}, WasCa: []byte("\x00\x00\x00\x02both keys"), SealedCa: []byte("\x00\x00\x00\x02next key"),
			Bridge: []byte("bridge to the next ca")},
	} {
		p.Kind, p.Number = record.RotationKind_ROTATION_KIND_CA, 1
		p.Phase, p.Next = record.RotationPhase(phase), record.RotationPhase(phase+1)
		must(&pb.Command{Actor: "coopr", Change: &pb.Command_Rotate{Rotate: p}})
	}
}

func (c *clinic) sites(must func(*pb.Command) state.Answer, as func(string, *pb.Command) *pb.Command) {
	change := func(ch *pb.ChangeSite) { must(as("", &pb.Command{Change: &pb.Command_ChangeSite{ChangeSite: ch}})) }
	begin := func(name string) {
		doc := &site.Document{Name: name, Objects: []site.Object{{Name: "a", Host: "agent:a", Type: "script"}}}
		next, err := compile.Site(doc, compile.Options{})
		if err != nil {
			c.t.Fatal(err)
		}
		n := &pb.NextGeneration{}
		n.Generation, n.Switches = logtest.Site(site.Generation{Tenant: "t", Site: name, Number: 1, Document: js(doc),
			IDs: compile.Numbers(doc, next)},
			compile.Switches(compile.NewPlan(nil, next), next))
		change(&pb.ChangeSite{Site: name, Change: &pb.ChangeSite_Next{Next: n}})
	}
	begin("s")
	begin("forgotten")
	r, _ := c.m.View().Site("t", "s")
	change(&pb.ChangeSite{Site: "s", Change: &pb.ChangeSite_Assign{Assign: &pb.AssignHosts{Epoch: r.Epoch,
		Hosts: logtest.Hosts([]site.Host{{Name: "agent:a", Agent: "a", Process: "p"}})}}})
	// The switch is refused, because the first generation is in force at once. A change in the log
	// that comes too late is refused in the same way.
	c.do(as("", &pb.Command{Change: &pb.Command_ChangeSite{ChangeSite: &pb.ChangeSite{Site: "s",
		Change: &pb.ChangeSite_Switch{Switch: &pb.SwitchGroups{Generation: 1, Groups: []uint32{0}}}}}}))
	change(&pb.ChangeSite{Site: "s", Change: &pb.ChangeSite_Events{Events: &pb.ObjectEvents{Events: []*pb.ObjectEvent{{Object: "a",
		Status: "moved"}}}}})
	change(&pb.ChangeSite{Site: "s", Change: &pb.ChangeSite_Release{Release: &pb.ReleaseObject{Id: 0, Name: "a", Reason: "it is gone"}}})
	change(&pb.ChangeSite{Site: "forgotten", Change: &pb.ChangeSite_Forget{Forget: &pb.ForgetSite{}}})
}

func (c *clinic) resources(must func(*pb.Command) state.Answer, as func(string, *pb.Command) *pb.Command) {
	must(addResource("t", "one", strings.Repeat("1", 64), 5, model.StageResource))
	must(syncResources("t"))
	must(addResource("t", "one", strings.Repeat("2", 64), 6, ""))
	must(orderResource("t", "one", model.StageResource, 2))
}

func (c *clinic) programs(must func(*pb.Command) state.Answer, as func(string, *pb.Command) *pb.Command) {
	put := func(kind, name, order string, value any) {
		p, err := logtest.PutSetting(kind, name, order, value)
		if err != nil {
			c.t.Fatal(err)
		}
		must(as("", &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: p}}}}))
	}
	retries := 1
	put("secret", "key", "put", profile.Secret{Value: model.NewSecret("value"), UsableBy: []string{"alice"}})
	put("secret", "old", "put", profile.Secret{Value: model.NewSecret("value")})
	must(&pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: &pb.Reseal{
		Secrets:   []*pb.ResealedSecret{{Tenant: "t", Name: "old", Value: &pb.SealedValue{Id: "w", Version: 1, Sealed: []byte("\x00\x00\x00\x02sealed")}}},
		Providers: []*pb.ResealedProvider{{Tenant: "t", Cluster: "00000002", ClusterVersion: 1, Fields: []byte(`{}`)}},
	}}})
	put("secret", "new", "put", logformat.Secret{Value: &pb.SealedValue{Id: "x", Version: 1, Sealed: []byte("\x00\x00\x00\x02sealed")}})
	put("profile", "p", "put", profile.Profile{Provisioner: profile.Provisioner{Name: "cloud"}, Retries: 1,
		Limits: profile.Limits{Runs: &retries}})
	put("program", "job", "create", profile.Program{Steps: []profile.Step{{Name: "run", On: profile.OnEach, Script: "true",
		Env: map[string]string{"A": "b"}}}})
	put("preferences", "job", "put", map[string]string{profile.ProfileKey: "p"})
	put("schedule", "nightly", "put", profile.Schedule{Program: "job", Cron: "@daily"})
	put("schedule", "nightly", "disable", nil)
	who := model.Caller{Tenant: "t", Actor: "ann"}
	event := func(run string, e profile.Event) {
		change, err := logformat.RunEvent(run, 0, e)
		if err != nil {
			c.t.Fatal(err)
		}
		must(as("", &pb.Command{Change: change}))
	}
	for i := range uint32(2) {
		p, err := runs.Prepare(c.m.View(), who, runs.Start{Program: "job"}, time.UnixMilli(c.now), i)
		if err != nil {
			c.t.Fatal(err)
		}
		cmd, err := p.Command(who, nil, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		id := must(cmd).Subject
		event(id, profile.Event{Kind: profile.Asking})
		event(id, profile.Event{Kind: profile.Returned, Cluster: &profile.RunCluster{Name: "job"}, ID: "0000000" + fmt.Sprint(i+3),
			Operation: "o"})
		if i == 0 { // it ends and is removed; its usage stays
			event(id, profile.Event{Kind: profile.Stop, Reason: "enough"})
			event(id, profile.Event{Kind: profile.Requested, Operation: "o"})
			event(id, profile.Event{Kind: profile.Saw, Seen: profile.SeenNotExists})
			must(&pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
				Change: &pb.ChangeRuns_Prune{Prune: &pb.PruneRuns{Runs: []string{"t/" + id}}}}}})
		}
	}
}

// sealed appends the end and the sum to a snapshot's records.
func sealed(records []byte) []byte {
	b := append(bytes.Clone(records), 0, 0, 0, 0)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}
