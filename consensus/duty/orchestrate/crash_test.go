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

// TestCrashAtEveryEntry runs operations to their end and keeps the log. Then a machine that has applied the
// log up to it is saved, another takes
// the snapshot and the rest of the log, entry by entry, and at the end has the same
// state to the byte. So whenever a voter dies, it comes to what the others have; and
// a leader that begins there sees nothing that another would not.
func TestCrashAtEveryEntry(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		var log []*raft.Log
		l := newLab(t, func(e *raft.Log) { log = append(log, e) })
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
				break // the last one left the cluster as it does not take another
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

// fewer makes a property's check have 25 cases: each is many operations, under the
// race detector above all.
func fewer(t *testing.T) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	was := f.Value.String()
	if was != f.DefValue {
		return // whoever runs it knows what he wants
	}
	if err := f.Value.Set("25"); err != nil {
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

// copied gives an entry of its own: machines may keep what they read.
func copied(e *raft.Log) *raft.Log {
	return &raft.Log{Type: e.Type, Index: e.Index, Data: bytes.Clone(e.Data)}
}

// differs says where two states begin to differ.
func differs(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-60)
			return fmt.Sprintf("at byte %d: %q and %q", i, a[from:min(len(a), i+60)], b[from:min(len(b), i+60)])
		}
	}
	return fmt.Sprintf("%d bytes and %d", len(a), len(b))
}
