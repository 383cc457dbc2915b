package state_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

func fresh(t testing.TB) *state.Machine {
	t.Helper()
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func js(x any) []byte {
	b, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return b
}

// entry returns a log entry of commands that each form a group of their own.
func entry(index uint64, now int64, cs ...*pb.Command) *raft.Log {
	return entryWithin(state.Bounds, index, now, cs...)
}

// entryWithin returns an entry with a version of the default limits of tenants.
func entryWithin(bounds uint32, index uint64, now int64, cs ...*pb.Command) *raft.Log {
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: now, Commands: cs,
		Bounds: bounds})
	if err != nil {
		panic(err)
	}
	return &raft.Log{Type: raft.LogCommand, Index: index, Data: b}
}

// do applies an entry and returns an answer for each command.
func do(t testing.TB, m *state.Machine, l *raft.Log) []state.Answer {
	t.Helper()
	switch r := m.Apply(l).(type) {
	case [][]state.Answer:
		var out []state.Answer
		for _, g := range r {
			out = append(out, g...)
		}
		return out
	case error:
		t.Fatal(r)
	}
	return nil
}

func dump(t testing.TB, m *state.Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.View().Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// These functions return the commands that tests use.
func tenant(name string, nodes, clusters int) *pb.Command {
	return &pb.Command{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: logtest.Tenant(
		model.Tenant{Name: name, MaxNodes: nodes, MaxClusters: clusters})}}}
}

func session(id, agent string, keep ...uint64) *pb.Command {
	return &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: id, Agent: agent, Keep: keep,
		Record: logtest.Agent(model.Agent{ID: agent, Name: agent})}}}
}

func endSession(id string) *pb.Command {
	return &pb.Command{Change: &pb.Command_EndSession{EndSession: &pb.EndSession{Session: id, Reason: "test"}}}
}

func graphOf(nodes []string) *plan.Graph {
	b := plan.NewBuilder(nodes, []string{"db", "app"})
	barrier := b.Barrier()
	for n := range nodes {
		last := b.Task(model.Create, n, plan.None)
		for i, a := range []model.Action{model.Confirm, model.Install, model.Start} {
			service := plan.None
			if i > 0 {
				service = n % 2
			}
			v := b.Task(a, n, service)
			b.Edge(last, v)
			last = v
		}
		b.Edge(last, barrier)
		b.Edge(barrier, b.Task(model.Configure, n, n%2))
	}
	g, err := b.Build()
	if err != nil {
		panic(err)
	}
	return g
}

func start(tenant, cluster, name string, nodes int, onFailure, request string) *pb.Command {
	cl := model.Cluster{ID: cluster, Tenant: tenant, Name: name, Operation: cluster + "-001", Operations: 1}
	op := model.Operation{ID: cluster + "-001", Tenant: tenant, Cluster: cluster, Type: model.OpCreate, OnFailure: onFailure}
	s := &pb.StartOperation{Operation: logtest.Operation(op), Cluster: logtest.Cluster(cl)}
	var ids []string
	for i := range nodes {
		n := model.Node{ID: string(model.ClusterID(cluster).Node(1000 + i)), Cluster: cluster, Tenant: tenant, Number: 1000 + i,
			Services: []string{[]string{"db", "app"}[i%2]}}
		ids = append(ids, n.ID)
		s.Nodes = append(s.Nodes, logtest.Node(n))
	}
	s.Graph = graphOf(ids).Encode()
	return &pb.Command{Tenant: tenant, Actor: "ann", RequestId: request, Change: &pb.Command_StartOperation{StartOperation: s}}
}

func lease(op, session string, tasks ...uint32) *pb.Command {
	return &pb.Command{Change: &pb.Command_Lease{Lease: &pb.Lease{Operation: op, Sessions: []string{session}, Tasks: tasks,
		SessionOf: make([]uint32, len(tasks))}}}
}

func report(op string, task uint32, fence uint64, o pb.Outcome, output string) *pb.Command {
	r := &pb.Report{Operation: op, Tasks: []uint32{task}, Fences: []uint64{fence}}
	if o != pb.Outcome_OUTCOME_SUCCEEDED || output != "" {
		r.Outputs = []*pb.Outputs{{Outcome: o, Message: "m", Output: []byte(output)}}
	}
	return &pb.Command{Change: &pb.Command_Report{Report: r}}
}

func order(id, what string) *pb.Command {
	c := logformat.Control(id, what, "")
	c.Actor = "ann"
	return c
}

// someCommand draws a command that is likely to make sense to the machine.
func someCommand(t *rapid.T, v *state.View, index uint64) *pb.Command {
	sessions := []string{"nobody"}
	for id := range v.Sessions() {
		sessions = append(sessions, id)
	}
	slices.Sort(sessions)
	ops := v.Operations("", "")
	agent := fmt.Sprint("agent-", rapid.IntRange(0, 2).Draw(t, "agent"))
	ten := []string{"one", "two"}[rapid.IntRange(0, 1).Draw(t, "tenant")]
	cluster := string(model.NewClusterID(rapid.IntRange(1, 4).Draw(t, "cluster")))
	kind := rapid.IntRange(0, 19).Draw(t, "kind")
	if kind >= 8 && len(ops) == 0 {
		kind = 3
	}
	switch kind {
	case 0:
		return tenant(ten, rapid.IntRange(0, 9).Draw(t, "nodes"), 0)
	case 1:
		fences := []uint64{}
		for _, op := range ops {
			if s, ok := v.Plan(op.ID); ok {
				for _, u := range s.Leased("") {
					if rapid.Bool().Draw(t, "keep") {
						fences = append(fences, s.Fence(u))
					}
				}
			}
		}
		return session(fmt.Sprint("s", index), agent, fences...)
	case 2:
		return endSession(rapid.SampledFrom(sessions).Draw(t, "session"))
	case 3, 4:
		return start(ten, cluster, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), rapid.IntRange(1, 3).Draw(t, "nodes"),
			rapid.SampledFrom([]string{"delete", "pause", "leave"}).Draw(t, "on failure"),
			rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "request"))
	case 5:
		put, name := &pb.PutDefinitions{}, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "definition")
		if rapid.Bool().Draw(t, "delete") {
			put.Delete = []*pb.DefinitionVersion{{Kind: "service", Name: name}}
		} else {
			put.Definitions = []*pb.Definition{{Kind: "service", Name: name, Body: []byte(`{"name":"x"}`)}}
		}
		return &pb.Command{Tenant: ten, Actor: "ann", Change: &pb.Command_PutDefinitions{PutDefinitions: put}}
	case 6:
		return &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: agent}}}
	case 7:
		p := &pb.Prune{RequestsBeforeMs: int64(index) * 500}
		for _, op := range ops {
			p.Operations = append(p.Operations, op.ID)
		}
		return &pb.Command{Change: &pb.Command_Prune{Prune: p}}
	}
	op := rapid.SampledFrom(ops).Draw(t, "operation")
	s, ok := v.Plan(op.ID)
	if !ok || kind == 8 {
		return order(op.ID, rapid.SampledFrom([]string{"pause", "resume", "abort"}).Draw(t, "order"))
	}
	u := uint32(rapid.IntRange(0, s.Graph.Len()-1).Draw(t, "task"))
	if kind < 14 {
		if l := s.Leasable(); len(l) > 0 && kind < 13 {
			u = rapid.SampledFrom(l).Draw(t, "leasable")
		}
		return lease(op.ID, rapid.SampledFrom(sessions).Draw(t, "session"), u)
	}
	if l := s.Leased(""); len(l) > 0 {
		u = rapid.SampledFrom(l).Draw(t, "leased")
	}
	fence := s.Fence(u)
	if rapid.IntRange(0, 5).Draw(t, "stale") == 0 {
		fence++
	}
	outcome := pb.Outcome_OUTCOME_SUCCEEDED
	if rapid.IntRange(0, 2).Draw(t, "bad") == 0 {
		outcome = pb.Outcome(rapid.IntRange(1, 6).Draw(t, "outcome"))
	}
	if kind == 14 {
		return &pb.Command{Change: &pb.Command_SaveValue{SaveValue: &pb.SaveValue{Operation: op.ID, Task: u, Fence: fence, Key: "k",
			Value: []byte("v")}}}
	}
	return report(op.ID, u, fence, outcome, rapid.SampledFrom([]string{"", `{"ipaddresses":{"access_v4":"10.0.0.1"},"result":{"a":1}}`}).Draw(
		t, "output"))
}

// The same log leads to the same bytes: entry by entry, in batches, and through snapshots at any
// point. A snapshot that is read is written again with the same bytes.
func TestSameLogSameState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one, batched, restored := fresh(t), fresh(t), fresh(t)
		var pending []*raft.Log
		index := uint64(0)
		apply := func(cs ...*pb.Command) {
			index++
			l := entry(index, int64(index)*1000, cs...)
			one.Apply(l)
			pending = append(pending, l)
			restored.Apply(l)
			if rapid.IntRange(0, 9).Draw(rt, "snapshot") == 0 {
				b := dump(t, restored)
				restored = fresh(t)
				if err := restored.Restore(io.NopCloser(bytes.NewReader(b))); err != nil {
					rt.Fatal(err)
				}
				if again := dump(t, restored); !bytes.Equal(b, again) {
					rt.Fatal("a snapshot that was read is written otherwise")
				}
			}
			if rapid.IntRange(0, 4).Draw(rt, "batch") == 0 {
				batched.ApplyBatch(pending)
				pending = nil
			}
		}
		apply(tenant("one", 6, 2), tenant("two", 0, 0), session("first", "agent-0"))
		for range rapid.IntRange(0, 60).Draw(rt, "entries") {
			v := one.View()
			var cs []*pb.Command
			for range rapid.IntRange(1, 3).Draw(rt, "commands") {
				cs = append(cs, someCommand(rt, v, index+1))
			}
			apply(cs...)
		}
		batched.ApplyBatch(pending)
		want := dump(t, one)
		if got := dump(t, batched); !bytes.Equal(got, want) {
			rt.Fatalf("batches give another state than single entries\n%s", firstDifference(want, got))
		}
		if got := dump(t, restored); !bytes.Equal(got, want) {
			rt.Fatalf("snapshots between give another state\n%s", firstDifference(want, got))
		}
		sameCounts(rt, t, one)
		sameCounts(rt, t, batched)
		sameCounts(rt, t, restored)
	})
}

func firstDifference(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	cut := func(x []byte) []byte { return x[max(0, i-200):min(len(x), i+200)] }
	return fmt.Sprintf("%q\n%q", cut(a), cut(b))
}

// Only the valid fence ends a task.
func TestStaleFencesAreRefused(t *testing.T) {
	m := fresh(t)
	const op = "00000001-001"
	do(t, m, entry(1, 1, tenant("one", 0, 0), session("s1", "a1"), session("s2", "a2"), start("one", "00000001", "a", 1, "", "")))
	const create = 1 // after the barrier
	if a := do(t, m, entry(2, 2, lease(op, "s1", create)))[0]; len(a.Refused) > 0 {
		t.Fatal(a)
	}
	if a := do(t, m, entry(3, 3, lease(op, "s2", create)))[0]; len(a.Refused) == 0 {
		t.Error("a task was leased twice")
	}
	do(t, m, entry(4, 4, endSession("s1")))
	if s, _ := m.View().Plan(op); s.Status(create) != model.TaskUncertain {
		t.Errorf("a CREATE that was lost is %s", s.Status(create))
	}
	if a := do(t, m, entry(5, 5, lease(op, "s1", create)))[0]; len(a.Refused) == 0 {
		t.Error("a session that has ended got a lease")
	}
	do(t, m, entry(6, 6, lease(op, "s2", create)))
	before, _ := m.View().Plan(op)
	if a := do(t, m, entry(7, 7, report(op, create, 2, pb.Outcome_OUTCOME_SUCCEEDED, "")))[0]; len(a.Refused) == 0 {
		t.Error("a result under an old fence was accepted")
	}
	after, _ := m.View().Plan(op)
	if after.Status(create) != before.Status(create) || after.Fence(create) != 6 {
		t.Errorf("the task is %s under fence %d", after.Status(create), after.Fence(create))
	}
	if a := do(t, m, entry(8, 8, report(op, create, 6, pb.Outcome_OUTCOME_SUCCEEDED, "")))[0]; len(a.Refused) > 0 {
		t.Error("the valid result was refused")
	}
	if a := do(t, m, entry(9, 9, report(op, create, 6, pb.Outcome_OUTCOME_RETRYABLE, "")))[0]; len(a.Refused) == 0 {
		t.Error("a second end was accepted")
	}
}

// A cancelled attempt does not count as a failure of the task, and its effect must be observed.
func TestCancelledCountsAsLost(t *testing.T) {
	m := fresh(t)
	const op, create = "00000001-001", 1
	do(t, m, entry(1, 1, tenant("one", 0, 0), session("s", "a"), start("one", "00000001", "a", 1, "", "")))
	for i := range uint64(state.MaxAttempts + 1) {
		do(t, m, entry(2+2*i, 2, lease(op, "s", create)))
		do(t, m, entry(3+2*i, 2, report(op, create, 2+2*i, pb.Outcome_OUTCOME_CANCELLED, "")))
	}
	s, _ := m.View().Plan(op)
	if n := s.Note(create); s.Status(create) != model.TaskUncertain || n.Failures != 0 || n.Lost != state.MaxAttempts+1 {
		t.Errorf("%s, %+v", s.Status(create), n)
	}
}

// An unknown entry that must be understood stops the machine for good. Any other unknown entry is
// skipped.
func TestUnknownEntriesHalt(t *testing.T) {
	unknown := func(must bool) *raft.Log {
		b, _ := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel + 1, MustUnderstand: must,
			Commands: []*pb.Command{{}}})
		return &raft.Log{Type: raft.LogCommand, Index: 2, Data: b}
	}
	m := fresh(t)
	do(t, m, entry(1, 1, tenant("one", 0, 0)))
	if a := do(t, m, unknown(false)); !errors.Is(a[0].Err, problem.Unsupported) || m.Halted() != nil {
		t.Fatal(a, m.Halted())
	}
	halted := make(chan error, 1)
	m, err := state.New(state.Config{OnHalt: func(err error) { halted <- err }})
	if err != nil {
		t.Fatal(err)
	}
	do(t, m, entry(1, 1, tenant("one", 0, 0)))
	for name, l := range map[string]*raft.Log{"level": unknown(true), "damaged": {Type: raft.LogCommand, Index: 3, Data: []byte{0xff}},
		"later": entry(4, 4, tenant("two", 0, 0))} {
		if l.Index == 2 {
			if err, ok := m.Apply(l).(error); !ok || !errors.Is(err, problem.Unsupported) {
				t.Fatal(name, err)
			}
		}
	}
	if err, ok := m.Apply(entry(4, 4, tenant("two", 0, 0))).(error); !ok || !errors.Is(err, problem.Unsupported) {
		t.Error("an entry was applied after the halt:", err)
	}
	if err := <-halted; !errors.Is(err, problem.Unsupported) || m.Halted() == nil {
		t.Error(err, m.Halted())
	}
	if _, ok := m.View().Tenant("two"); ok {
		t.Error("a halted machine applied an entry")
	}
	if _, err := m.Snapshot(); err == nil {
		t.Error("a halted machine gives snapshots")
	}
}

// A snapshot that was truncated or changed anywhere is refused, and changes nothing.
func TestDamagedSnapshotsAreRefused(t *testing.T) {
	m := fresh(t)
	do(t, m, entry(1, 1, tenant("one", 0, 0), session("s", "a"), start("one", "00000001", "a", 1, "", "r")))
	do(t, m, entry(2, 2, lease("00000001-001", "s", 1)))
	whole := dump(t, m)
	other := fresh(t)
	do(t, other, entry(1, 1, tenant("kept", 0, 0)))
	want := dump(t, other)
	refused := func(what string, b []byte) {
		t.Helper()
		if err := other.Restore(io.NopCloser(bytes.NewReader(b))); err == nil {
			t.Fatalf("%s: accepted", what)
		}
	}
	for i := range whole {
		refused(fmt.Sprintf("cut at byte %d of %d", i, len(whole)), whole[:i])
		bad := slices.Clone(whole)
		bad[i] ^= 0x10
		refused(fmt.Sprintf("byte %d changed", i), bad)
	}
	if !bytes.Equal(dump(t, other), want) {
		t.Error("a refused snapshot changed the state")
	}
	if err := other.Restore(io.NopCloser(bytes.NewReader(whole))); err != nil || !bytes.Equal(dump(t, other), whole) {
		t.Error("the whole one:", err)
	}
}

// Tenants see only their own objects, and are held to their quotas.
func TestTenantsAndQuotas(t *testing.T) {
	m := fresh(t)
	do(t, m, entry(1, 1, tenant("one", 3, 2), tenant("two", 0, 0)))
	expect := func(index uint64, c *pb.Command, want error) {
		t.Helper()
		if a := do(t, m, entry(index, 1, c))[0]; !errors.Is(a.Err, want) {
			t.Errorf("entry %d: %v, want %v", index, a.Err, want)
		}
	}
	expect(2, start("one", "00000001", "a", 2, "", ""), nil)
	expect(3, start("one", "00000002", "b", 2, "", ""), problem.Quota) // nodes
	expect(4, start("one", "00000002", "b", 1, "", ""), nil)
	expect(5, start("one", "00000003", "c", 0, "", ""), problem.Quota) // clusters
	expect(6, start("two", "00000004", "a", 9, "", ""), nil)
	expect(7, start("nobody", "00000005", "a", 1, "", ""), problem.NotFound)
	abort := order("00000001-001", "abort")
	abort.Tenant = "two"
	expect(8, abort, problem.NotFound)
	v := m.View()
	if _, ok := v.Cluster("two", "00000001"); ok {
		t.Error("a tenant sees another's cluster")
	}
	if _, ok := v.Operation("two", "00000001-001"); ok {
		t.Error("a tenant sees another's operation")
	}
	if n := len(v.Nodes("one", "")); n != 3 {
		t.Errorf("tenant one has %d nodes", n)
	}
	expect(9, &pb.Command{Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: "one"}}}, problem.Conflict)
}

// Events of one tenant are not sent to another.
func TestEventsStayWithTheirTenant(t *testing.T) {
	m := fresh(t)
	do(t, m, entry(1, 1, tenant("one", 0, 0), tenant("two", 0, 0)))
	do(t, m, entry(2, 1, start("one", "00000001", "a", 1, "", ""), start("two", "00000002", "a", 1, "", "")))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := m.Follow(ctx, "one", 1, func(list []model.Event) error {
		for _, e := range list {
			if e.Tenant == "two" {
				t.Errorf("tenant one is told %+v", e)
			}
		}
		cancel()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// bigPlan starts an operation with that many tasks, and opens a session.
func bigPlan(b *testing.B, tasks int) *state.Machine {
	b.Helper()
	m := fresh(b)
	nodes := tasks / 7
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("00000001-%d", 1000+i)
	}
	bld := plan.NewBuilder(names, []string{"s"})
	for n := range nodes {
		last := bld.Task(model.Bootstrap, n, plan.None)
		for range 6 {
			v := bld.Task(model.Configure, n, 0)
			bld.Edge(last, v)
			last = v
		}
	}
	g, err := bld.Build()
	if err != nil {
		b.Fatal(err)
	}
	cl := model.Cluster{ID: "00000001", Tenant: "one", Name: "a", Operation: "00000001-001", Operations: 1}
	op := model.Operation{ID: "00000001-001", Tenant: "one", Cluster: "00000001", Type: model.OpCreate}
	c := &pb.Command{Tenant: "one", Change: &pb.Command_StartOperation{StartOperation: &pb.StartOperation{Operation: logtest.Operation(op),
		Cluster: logtest.Cluster(cl), Graph: g.Encode()}}}
	do(b, m, entry(1, 1, tenant("one", 0, 0), session("s", "a")))
	if a := do(b, m, entry(2, 1, c))[0]; a.Err != nil {
		b.Fatal(a.Err)
	}
	return m
}

// BenchmarkApply applies a lease and a result for each task, a fixed number in each entry. ns/op is
// for the lease and the result of one task together.
func BenchmarkApply(b *testing.B) {
	const op = "00000001-001"
	for _, tasks := range []int{5_000, 500_000} {
		for _, pack := range []int{1, 16, 256, 1024} {
			b.Run(fmt.Sprintf("tasks=%d/pack=%d", tasks, pack), func(b *testing.B) {
				m := bigPlan(b, tasks)
				s, _ := m.View().Plan(op)
				ready := s.Leasable()
				index := uint64(2)
				b.ReportAllocs()
				b.ResetTimer()
				for done := 0; done < b.N; {
					if len(ready) == 0 {
						b.StopTimer()
						m = bigPlan(b, tasks)
						s, _ := m.View().Plan(op)
						ready, index = s.Leasable(), 2
						b.StartTimer()
					}
					n := min(pack, len(ready))
					index++
					fence := index
					if a := do(b, m, entry(index, 1, lease(op, "s", ready[:n]...)))[0]; len(a.Refused) > 0 {
						b.Fatal("refused")
					}
					index++
					r := &pb.Report{Operation: op, Tasks: ready[:n], Fences: slices.Repeat([]uint64{fence}, n)}
					a := do(b, m, entry(index, 1, &pb.Command{Change: &pb.Command_Report{Report: r}}))[0]
					if len(a.Refused) > 0 {
						b.Fatal("refused")
					}
					ready = append(ready[n:], a.Ready...)
					done += n
				}
			})
		}
	}
}
