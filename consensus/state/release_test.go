package state_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/state"
)

// TestRelease applies logs of the last release's feature level, and restores its snapshots. A mesh that is being upgraded has voters of both
// builds, so that both must come to the same bytes. One log has every command; the others are the lives of clusters, with random orders
// about their plans (TestHistories of consensus/duty/dispatch).
func TestRelease(t *testing.T) {
	t.Run("every command", func(t *testing.T) { release(t, "testdata/release/log", "testdata/release/snapshot") })
	logs, err := filepath.Glob("testdata/release/histories/*.log")
	if err != nil || len(logs) == 0 {
		t.Fatal("there are no histories:", err)
	}
	for _, log := range logs {
		t.Run(filepath.Base(log), func(t *testing.T) { release(t, log, strings.TrimSuffix(log, "log")+"snapshot") })
	}
}

// release expects that a log of the last release comes to that release's snapshot.
func release(t *testing.T, log, snapshot string) {
	file := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	want := file(snapshot)
	applied := fresh(t)
	for i, data := range unframe(t, file(log)) {
		if a := do(t, applied, &raft.Log{Type: raft.LogCommand, Index: uint64(i + 1), Data: data}); len(a) == 0 {
			t.Fatalf("entry %d was not applied", i+1)
		}
	}
	restored := fresh(t)
	if err := restored.Restore(io.NopCloser(bytes.NewReader(want))); err != nil {
		t.Fatal(err)
	}
	if level := restored.View().FeatureLevel(); level != state.FeatureLevel-1 {
		t.Errorf("the last release has feature level %d, and this build %d", level, state.FeatureLevel)
	}
	same(t, "the state that the release's log comes to", rows(t, dump(t, applied), nil), rows(t, want, nil))
	if !bytes.Equal(dump(t, applied), want) {
		t.Error("a voter that applied the release's log writes another snapshot than one of the release")
	}
	if !bytes.Equal(dump(t, restored), want) {
		t.Error("a voter that restored the release's snapshot writes another one")
	}
}
