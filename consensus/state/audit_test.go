package state_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// records returns the records of the audit log after a sequence number, as text.
func records(t testing.TB, m *state.Machine, after uint64) []string {
	t.Helper()
	var out []string
	err := m.View().Audit().Each(&audit.Filter{}, false, audit.Cursor{Seq: after, Item: 1 << 30}, func(r audit.Record) bool {
		what := r.Subject
		if r.Task != "" {
			what = strings.TrimSuffix(fmt.Sprint(r.Task, " ", r.Action, " ", r.Service), " ")
		}
		line := fmt.Sprintf("%s %s by %s", r.Type, what, r.Actor)
		for _, x := range []struct{ name, text string }{{"request", r.Request}, {"tenant", r.Tenant}, {"cluster", r.Cluster},
			{"operation", r.Operation}, {"node", r.Node}, {"says", r.Message}} {
			if x.text != "" {
				line += " " + x.name + "=" + x.text
			}
		}
		if r.Before != nil || r.After != nil {
			line += fmt.Sprintf(": %s → %s", r.Before, r.After)
		}
		out = append(out, line)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func definitions(actor, request string, defs ...*pb.Definition) *pb.Command {
	return &pb.Command{Tenant: "one", Actor: actor, RequestId: request,
		Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: defs}}}
}

// TestAuditRecords expects that every command leaves the right records, and that a command which
// was refused or repeated leaves none.
func TestAuditRecords(t *testing.T) {
	m := fresh(t)
	provider := func(region, pin string) *pb.Definition {
		return &pb.Definition{Kind: "providers", Name: "cloud",
			Body: []byte(`{"name":"cloud","providertype":"cloud","provisioner":{"region":"` + region + `","pin":"` + pin + `","api_password":"` +
				pin + `"}}`)}
	}
	long := strings.Repeat("x", 3000)
	op := "00000001-001"
	index := uint64(0)
	steps := []struct {
		name     string
		commands []*pb.Command
		want     []string
	}{
		{"an agent with its plugins", []*pb.Command{{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s1", Agent: "a1",
			Record: logtest.Agent(model.Agent{ID: "a1", Name: "alpha"}), Types: []*record.PluginType{
				{Name: "cloud", Class: "provider", Parameters: &record.PluginParameters{Admin: &record.PluginFields{
					Fields: map[string]*record.FieldSchema{
						"region": {Label: "r", Type: "text"}, "pin": {Label: "p", Type: "password"}}}}}}}}}}, nil},
		{"tenant", []*pb.Command{tenant("one", 10, 0)}, []string{`tenant.created one by root tenant=one:  → {"maxNodes":10,"name":"one"}`}},
		{"tenant again", []*pb.Command{tenant("one", 20, 0)},
			[]string{`tenant.changed one by root tenant=one: {"maxNodes":10} → {"maxNodes":20}`}},
		{"the same tenant", []*pb.Command{tenant("one", 20, 0)}, nil},
		{"another tenant", []*pb.Command{tenant("two", 0, 0)}, []string{`tenant.created two by root tenant=two:  → {"name":"two"}`}},
		{"token", []*pb.Command{{Actor: "root", RequestId: "r0",
			Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Hash: []byte("hash"), Actor: "ann", Tenant: "one", Role: "admin", Id: "t1"}}}},
			[]string{`token.created t1 by root request=r0 tenant=one:  → {"actor":"ann","created":6000,"id":"t1","role":"admin","tenant":"one"}`}},
		{"a request that was done", []*pb.Command{{Actor: "root", RequestId: "r0",
			Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Hash: []byte("hash"), Tenant: "one", Id: "t1"}}}}, nil},
		{"no such token", []*pb.Command{{Actor: "root", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "t9"}}}}, nil},
		{"token revoked", []*pb.Command{{Actor: "root", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "t1"}}}},
			[]string{`token.deleted t1 by root tenant=one: {"actor":"ann","created":6000,"id":"t1","role":"admin","tenant":"one"} → `}},
		{"definitions", []*pb.Command{definitions("ann", "r1", provider("north", "1234"),
			&pb.Definition{Kind: "services", Name: "x", Body: []byte(`{"name":"x","label":"` + long + `"}`)})},
			[]string{
				`definition.created providers/cloud by ann request=r1 tenant=one says=version 1:  → {"name":"cloud","providertype":"cloud",` +
					`"provisioner":{"api_password":"[redacted]","pin":"[redacted]","region":"north"}}`,
				`definition.created services/x by ann request=r1 tenant=one says=version 1:  → {"label":{"bytes":3002,"sha256":"`,
			}},
		{"a definition again", []*pb.Command{definitions("ann", "r2", provider("south", "5678"))},
			[]string{`definition.changed providers/cloud by ann request=r2 tenant=one says=version 2: {"provisioner":{"api_password":"[redacted]",` +
				`"pin":"[redacted]","region":"north"}} → {"provisioner":{"api_password":"[redacted]","pin":"[redacted]","region":"south"}}`}},
		{"a definition deleted", []*pb.Command{{Tenant: "one", Actor: "ann", RequestId: "r3",
			Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
				Delete: []*pb.DefinitionVersion{{Kind: "services", Name: "x"}}}}}},
			[]string{`definition.deleted services/x by ann request=r3 tenant=one says=version 1: {"label":{"bytes"`}},
		{"an operation", []*pb.Command{start("one", "00000001", "shop", 2, "pause", "r4")},
			[]string{
				`operation.created create by ann request=r4 tenant=one cluster=00000001 operation=` + op + `:  → {"actor":"","cluster":"00000001"`,
				`cluster.created shop by ann request=r4 tenant=one cluster=00000001:  → {`,
				`task.queued ` + op + `/1 CREATE by ann request=r4 tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1000: {"status":"blocked"} → {"status":"ready"}`,
				`task.queued ` + op + `/6 CREATE by ann request=r4 tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1001: {"status":"blocked"} → {"status":"ready"}`,
			}},
		{"leases", []*pb.Command{lease(op, "s1", 1, 6)},
			[]string{
				`task.taken ` + op + `/1 CREATE by coopr tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1000: {"status":"ready"} → {"agent":"alpha","attempt":1,"fence":14,"status":"leased"}`,
				`task.taken ` + op + `/6 CREATE by coopr tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1001: {"status":"ready"} → {"agent":"alpha","attempt":1,"fence":14,"status":"leased"}`,
			}},
		{"at work", []*pb.Command{{Change: &pb.Command_Report{Report: &pb.Report{Operation: op, Tasks: []uint32{1}, Fences: []uint64{14},
			Started: true}}}},
			[]string{`task.started ` + op + `/1 CREATE by coopr tenant=one cluster=00000001 operation=` + op +
				` node=00000001-1000: {"status":"leased"} → {"agent":"alpha","attempt":1,"fence":14,"status":"running"}`}},
		{"reports of several commands", []*pb.Command{report(op, 1, 14, pb.Outcome_OUTCOME_SUCCEEDED, `{"hostname":"h"}`),
			report(op, 6, 14, pb.Outcome_OUTCOME_RETRYABLE, "")},
			[]string{
				`task.finished ` + op + `/1 CREATE by coopr tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1000: {"status":"running"} → {"agent":"alpha","attempt":1,"fence":14,"status":"succeeded"}`,
				`task.queued ` + op + `/2 CONFIRM by coopr tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1000: {"status":"blocked"} → {"status":"ready"}`,
				`task.retry ` + op + `/6 CREATE by coopr tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1001 says=m: {"status":"leased"} → {"agent":"alpha","attempt":1,"fence":14,"outcome":"failed","status":"ready"}`,
			}},
		{"a stale report", []*pb.Command{report(op, 1, 14, pb.Outcome_OUTCOME_SUCCEEDED, "")}, nil},
		{"no such order", []*pb.Command{order(op, "dance")}, nil},
		{"an order", []*pb.Command{{Tenant: "one", Actor: "bob", RequestId: "r5",
			Change: &pb.Command_ControlOperation{ControlOperation: &pb.ControlOperation{Operation: op,
				Order: pb.OperationOrder_OPERATION_ORDER_PAUSE, Reason: "lunch"}}}},
			[]string{
				`operation.order pause by bob request=r5 tenant=one cluster=00000001 operation=` + op + ` says=lunch:  → {"operation":"` + op +
					`","order":"pause","reason":"lunch"}`,
				`operation.changed create by bob request=r5 tenant=one cluster=00000001 operation=` + op +
					` says=lunch: {"status":"running"} → {"message":"lunch","status":"paused"}`,
			}},
		{"resume, and a lease in the same entry", []*pb.Command{order(op, "resume"), lease(op, "s1", 2)},
			[]string{
				`operation.order resume by ann tenant=one cluster=00000001 operation=` + op + `:  → {"operation":"` + op + `","order":"resume"}`,
				`operation.changed create by ann tenant=one cluster=00000001 operation=` + op +
					`: {"message":"lunch","status":"paused"} → {"status":"running"}`,
				`task.taken ` + op + `/2 CONFIRM by coopr tenant=one cluster=00000001 operation=` + op +
					` node=00000001-1000: {"status":"ready"} → {"agent":"alpha","attempt":1,"fence":20,"status":"leased"}`,
			}},
		{"an agent that falls silent", []*pb.Command{endSession("s1")},
			[]string{`task.retry ` + op + `/2 CONFIRM by coopr tenant=one cluster=00000001 operation=` + op +
				` node=00000001-1000 says=test: {"status":"leased"} → {"agent":"alpha","attempt":1,"fence":20,"outcome":"lost","status":"ready"}`}},
		{"an agent removed", []*pb.Command{{Actor: "root", Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "a1"}}}},
			[]string{`agent.removed a1 by root:  → {"id":"a1"}`}},
		{"a feature level", []*pb.Command{{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 1}}}},
			[]string{`mesh.upgraded  by coopr:  → {"level":1}`}},
		{"abort", []*pb.Command{order(op, "abort")}, []string{
			`operation.order abort by ann`,
			`task.finished ` + op + `/2 CONFIRM by ann tenant=one cluster=00000001 operation=` + op +
				` node=00000001-1000: {"status":"ready"} → {"status":"cancelled"}`,
			`*task.finished ` + op + `/10 CONFIGURE app`, `*operation.changed create`, `*cluster.changed shop by ann`,
		}},
		{"an operation forgotten", []*pb.Command{{Change: &pb.Command_Prune{Prune: &pb.Prune{Operations: []string{op}}}}},
			[]string{`operation.deleted create by coopr tenant=one cluster=00000001 operation=` + op}},
		{"a large command in parts", parts(definitions("ann", "r6", &pb.Definition{Kind: "services", Name: "y", Body: []byte(`{"name":"y"}`)})),
			[]string{`definition.created services/y by ann request=r6 tenant=one says=version 1:  → {"name":"y"}`}},
		{"retention", []*pb.Command{{Change: &pb.Command_Prune{Prune: &pb.Prune{AuditBeforeMs: 3000}}}},
			[]string{`audit.pruned  by coopr says=the retention of 1 records is over:  → {"anchor":{"hash":"`}},
		{"a tenant deleted", []*pb.Command{{Actor: "root", Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: "two"}}}},
			[]string{`tenant.deleted two by root tenant=two: {"name":"two"} → `}},
		{"user", []*pb.Command{putUser("root", model.User{Name: "eve", Tenant: "one", Method: "local", Role: "user"}, "$hash")},
			[]string{`user.created eve by root tenant=one:  → {"created":29000,"method":"local","name":"eve","role":"user","set":29000,"tenant":"one"}`}},
		{"user changed", []*pb.Command{putUser("root", model.User{Name: "eve", Tenant: "one", Role: "user", Disabled: true}, "")},
			[]string{`user.changed eve by root tenant=one: {} → {"disabled":true}`}},
		{"no such user", []*pb.Command{putUser("root", model.User{Name: "nobody", Tenant: "one", Role: "user"}, "")}, nil},
		{"user deleted", []*pb.Command{{Tenant: "one", Actor: "root", Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: "eve"}}}},
			[]string{`user.deleted eve by root tenant=one: {"created":29000`}},
	}
	for _, s := range steps {
		index++
		before := m.View().Audit().Stats().Head.Seq
		do(t, m, entry(index, int64(index)*1000, s.commands...))
		got := records(t, m, before)
		exact := true
		for i, want := range s.want {
			if rest, ok := strings.CutPrefix(want, "*"); ok { // at any position
				exact = false
				found := false
				for _, g := range got {
					found = found || strings.HasPrefix(g, rest)
				}
				if !found {
					t.Errorf("%s: no record\n  %s\nin\n  %s", s.name, rest, strings.Join(got, "\n  "))
				}
				continue
			}
			if i >= len(got) || !strings.HasPrefix(got[i], want) {
				t.Fatalf("%s: record %d is not\n  %s\nin\n  %s", s.name, i+1, want, strings.Join(got, "\n  "))
			}
		}
		if exact && len(got) != len(s.want) {
			t.Errorf("%s: %d records, not %d:\n  %s", s.name, len(got), len(s.want), strings.Join(got, "\n  "))
		}
		for _, g := range got {
			for _, secret := range []string{"1234", "5678", "68617368", "aGFzaA"} {
				if strings.Contains(g, secret) {
					t.Errorf("%s tells a secret: %s", s.name, g)
				}
			}
		}
	}
	if rep := m.View().Audit().Verify(nil); !rep.OK {
		t.Errorf("%+v", rep.Bad)
	}
}

// parts splits a command into two parts.
func parts(c *pb.Command) []*pb.Command {
	b, err := proto.Marshal(c)
	if err != nil {
		panic(err)
	}
	half := len(b) / 2
	part := func(n uint32, data []byte) *pb.Command {
		return &pb.Command{Change: &pb.Command_Part{Part: &pb.Part{Id: "p", Number: n, Total: 2, Data: data}}}
	}
	return []*pb.Command{part(0, b[:half]), part(1, b[half:])}
}

// TestAuditChain applies random commands. The chain must verify, record every change of every
// task's status, and continue the same way after a restart from a snapshot.
func TestAuditChain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := fresh(t)
		do(t, m, entry(1, 1000, tenant("one", 0, 0), tenant("two", 0, 0)))
		twin := m
		for i := uint64(2); i < 40; i++ {
			var cs []*pb.Command
			for range rapid.IntRange(1, 3).Draw(rt, "commands") {
				cs = append(cs, someCommand(rt, m.View(), i))
			}
			l := entry(i, int64(i)*1000, cs...)
			m.Apply(l)
			if twin != m {
				twin.Apply(l)
			}
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				twin = fresh(t)
				if err := twin.Restore(io.NopCloser(bytes.NewReader(dump(t, m)))); err != nil {
					rt.Fatal(err)
				}
			}
		}
		if !bytes.Equal(dump(t, m), dump(t, twin)) {
			rt.Fatal("a machine that was restored differs")
		}
		log := m.View().Audit()
		if rep := log.Verify(nil); !rep.OK {
			rt.Fatalf("%+v", rep.Bad)
		}
		var file bytes.Buffer
		if err := log.Export(&file, audit.Filter{}, 0); err != nil {
			rt.Fatal(err)
		}
		if rep, err := audit.VerifyLines(&file, nil, log.Stats().Head); err != nil || !rep.OK {
			rt.Fatalf("%v %+v", err, rep.Bad)
		}
		// Derive the status of each task of the kept plans from the log.
		status := map[string]string{}
		_ = log.Each(&audit.Filter{Types: []string{"task.*", "operation.created"}}, false, audit.Cursor{}, func(r audit.Record) bool {
			if r.Task == "" {
				for id := range status { // another plan uses the id again
					if op, _, _ := model.TaskID(id).Split(); string(op) == r.Operation {
						delete(status, id)
					}
				}
				return true
			}
			was, is := statusIn(r.Before), statusIn(r.After)
			if have, ok := status[r.Task]; ok && have != was || !ok && was != "blocked" {
				rt.Fatalf("%s: it was %s, and record %d says %s", r.Task, have, r.Seq, was)
			}
			status[r.Task] = is
			return true
		})
		for _, op := range m.View().Operations("", "") {
			tasks := m.View().Tasks(op.Tenant, op.ID)
			for _, task := range tasks {
				if have := status[task.ID]; have != task.Status.String() && (have != "" || task.Status != model.TaskBlocked) {
					rt.Fatalf("%s is %s, and %q by the log", task.ID, task.Status, have)
				}
			}
		}
	})
}

// TestOldSnapshot expects that a snapshot from before there was an audit log loads, and that the
// log begins with the next change.
func TestOldSnapshot(t *testing.T) {
	m := fresh(t)
	op := "00000001-001"
	do(t, m, entry(1, 1000, tenant("one", 0, 0), session("s1", "a1")))
	do(t, m, entry(2, 2000, start("one", "00000001", "shop", 1, "pause", "")))
	whole := dump(t, m)
	var old bytes.Buffer
	rest, left := whole, 0
	for {
		n := binary.BigEndian.Uint32(rest)
		if n == 0 {
			break
		}
		body := rest[4 : 4+n]
		rest = rest[4+n:]
		var rec pb.SnapshotRecord
		if err := proto.Unmarshal(body, &rec); err == nil && rec.GetAudit() != nil {
			left++
			continue
		} else if plan := rec.GetPlan(); err == nil && plan != nil {
			if plan.Audit == "" {
				t.Fatal("the plan names no plan of the audit log")
			}
			plan.Audit = ""
			body, _ = proto.Marshal(&rec)
		}
		old.Write(binary.BigEndian.AppendUint32(nil, uint32(len(body))))
		old.Write(body)
	}
	old.Write(make([]byte, 4))
	sum := sha256.Sum256(old.Bytes())
	old.Write(sum[:])
	if left == 0 {
		t.Fatal("there was no log")
	}
	back := fresh(t)
	if err := back.Restore(io.NopCloser(&old)); err != nil {
		t.Fatal(err)
	}
	if s := back.View().Audit().Stats(); s != (audit.Stats{}) {
		t.Errorf("%+v", s)
	}
	do(t, back, entry(3, 3000, lease(op, "s1", 1)))
	got := records(t, back, 0)
	if len(got) != 1 || !strings.HasPrefix(got[0], "task.taken "+op+"/1 CREATE by coopr tenant=one cluster=00000001") {
		t.Errorf("%q", got)
	}
	again := fresh(t)
	if err := again.Restore(io.NopCloser(bytes.NewReader(dump(t, back)))); err != nil || !bytes.Equal(dump(t, again), dump(t, back)) {
		t.Errorf("%v: it goes on otherwise", err)
	}
}

func statusIn(text []byte) string {
	_, rest, _ := strings.Cut(string(text), `"status":"`)
	s, _, _ := strings.Cut(rest, `"`)
	return s
}
