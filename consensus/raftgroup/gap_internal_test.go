package raftgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// TestGapBelowADamagedSnapshot damages a snapshot that the leader has sent: the log below it has a gap, so an older snapshot is no
// beginning. Without the gap it is one.
func TestGapBelowADamagedSnapshot(t *testing.T) {
	for what, c := range map[string]struct {
		sent uint64
		want error
	}{"with a gap": {10, logstore.ErrDamaged}, "without": {6, nil}} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s, err := logstore.Open(dir, logstore.BoltDB, logstore.Options{RetainSnapshots: 2})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			store := func(first, last uint64) {
				t.Helper()
				for i := first; i <= last; i++ {
					if err := s.Log.StoreLog(&raft.Log{Index: i, Term: 1, Data: []byte("x")}); err != nil {
						t.Fatal(err)
					}
				}
			}
			var newest string
			snapshot := func(index uint64) {
				t.Helper()
				sink, err := s.Snapshots.Create(raft.SnapshotVersionMax, index, 1, raft.Configuration{}, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = sink.Write([]byte("state"))
				if err := errors.Join(err, sink.Close()); err != nil {
					t.Fatal(err)
				}
				newest = sink.ID()
			}
			store(1, 6)
			snapshot(3)
			snapshot(c.sent)
			store(c.sent+1, c.sent+2)
			if err := checkSnapshots(s); err != nil {
				t.Fatal("while the snapshot is whole:", err)
			}
			if err := os.Truncate(filepath.Join(dir, "snapshots", newest, "state.bin"), 1); err != nil {
				t.Fatal(err)
			}
			if err := checkSnapshots(s); !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, ErrUnusable) {
				t.Errorf("got %v", err)
			}
		})
	}
}
