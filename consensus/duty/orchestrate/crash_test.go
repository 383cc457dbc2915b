package orchestrate

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"testing"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
)

// TestCrashAtEveryEntry runs operations to their end and keeps the log. For many entries, it saves a state
// machine that has applied the log up to this entry. A second machine takes that snapshot, applies the rest
// of the log and must have the same state, byte for byte. So a voter that fails at any entry reaches the
// state of the others, and a leader whose term begins there sees the same state as another one would.
func TestCrashAtEveryEntry(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, log := history(t)
		want := snapshot(t, l.m)
		// Every 20th entry in each run, others in other runs: all are met.
		first := rapid.IntRange(0, 19).Draw(t, "first")
		began := map[int]*state.Machine{}
		m := machineOf(t)
		for i, e := range log {
			m.Apply(copied(e))
			for _, other := range began {
				other.Apply(copied(e))
			}
			if i%20 != first {
				continue
			}
			began[i] = machineOf(t)
			if err := began[i].Restore(io.NopCloser(bytes.NewReader(snapshot(t, m)))); err != nil {
				t.Fatalf("after entry %d: %v", e.Index, err)
			}
		}
		for i, again := range began {
			if got := snapshot(t, again); !bytes.Equal(got, want) {
				t.Fatalf("a machine that began after entry %d of %d came to another state: %s", i+1, len(log), differs(got, want))
			}
		}
		if !bytes.Equal(snapshot(t, m), want) {
			t.Fatal("the same log gave another state")
		}
	})
}

// history carries out a random history of one cluster. It returns the lab, which knows what was done, and the log.
func history(t *rapid.T) (l *lab, log []*raft.Log) {
	l = newLab(t, func(e *raft.Log) { log = append(log, e) })
	l.did = map[model.TaskID]bool{}
	l.define(1, "hello")
	never := func() bool { return false }
	nodes := rapid.IntRange(3, 4).Draw(t, "nodes")
	p, _, err := l.o.Create(context.Background(), who,
		model.CreateCluster{Name: "c", ClusterTemplate: "shop", NumMachines: model.Int(nodes)}, false)
	if err != nil {
		t.Fatal(err)
	}
	l.run(p.Operation.ID, never, never)
	fails := func() bool { return rapid.IntRange(0, 11).Draw(t, "fails") == 0 }
	for range rapid.IntRange(1, 2).Draw(t, "operations") {
		req := rapid.SampledFrom([]operation.Request{
			{Type: model.OpGrow, Nodes: 1}, {Type: model.OpRestart},
			{Type: model.OpReplaceNode, Victims: []string{"1000"}, Forced: true, OnFailure: "leave"},
			{Type: model.OpConfigure, Config: map[string]any{"greeting": "bye"}, Restart: true},
		}).Draw(t, "request")
		p, _, err := l.o.Operate(context.Background(), who, p.Cluster.ID, req)
		if err != nil {
			break // after the last operation the cluster does not accept another one
		}
		if req.Type == model.OpConfigure && rapid.Bool().Draw(t, "superseded") {
			l.some(p.Operation.ID, rapid.IntRange(0, 4).Draw(t, "done"))
			if op, _ := l.m.View().Operation("t", p.Operation.ID); op.Status.Ended() {
				break
			}
			held := l.takes(p.Operation.ID)
			next := l.supersede(p.Cluster.ID, p.Operation.ID, len(held) > 0)
			l.reports(p.Operation.ID, held)
			if err := l.o.dequeue(context.Background(), p.Operation.ID); err != nil {
				t.Fatal(err)
			}
			p.Operation.ID = next
		}
		op := l.run(p.Operation.ID, fails, never)
		if op.Status == model.OpRollingBack {
			if err := l.o.follow(context.Background(), op.ID); err != nil {
				t.Fatal(err)
			}
			cl, _ := l.m.View().Cluster("t", op.Cluster)
			op = l.run(cl.Operation, never, never)
		}
		if op.Status != model.OpSucceeded {
			break
		}
	}
	return l, log
}

// fewer makes a property's check play the same 25 cases each time: each case is many operations.
func fewer(t *testing.T) { t.Helper(); seeded(t, "25") }

// seeded makes a property's check play the same n cases each time.
func seeded(t *testing.T, n string) {
	t.Helper()
	seed(t, "1")
	rapidly(t, "rapid.checks", n)
}

// seed sets the seed of a property's check, unless the command line has a number of cases or a
// seed: `-rapid.checks 5000` searches among new cases.
func seed(t *testing.T, s string) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		rapidly(t, "rapid.seed", s)
	}
}

// rapidly sets an option of rapid for one test, unless the command line has it.
func rapidly(t *testing.T, option, n string) {
	t.Helper()
	f := flag.Lookup(option)
	was := f.Value.String()
	if was != f.DefValue {
		return // the command line has the option
	}
	if err := f.Value.Set(n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(was) })
}

func machineOf(t *rapid.T) *state.Machine {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func snapshot(t *rapid.T, m *state.Machine) []byte {
	var b bytes.Buffer
	if err := m.View().Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// copied returns a copy of an entry, because machines may keep the data that they read.
func copied(e *raft.Log) *raft.Log {
	return &raft.Log{Type: e.Type, Index: e.Index, Data: bytes.Clone(e.Data)}
}

// differs describes the place at which two states begin to differ.
func differs(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-60)
			return fmt.Sprintf("at byte %d: %q and %q", i, a[from:min(len(a), i+60)], b[from:min(len(b), i+60)])
		}
	}
	return fmt.Sprintf("%d bytes and %d", len(a), len(b))
}
