package raftgroup

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// slowFSM takes a second for each entry.
type slowFSM struct{}

func (slowFSM) Apply(*raft.Log) any                 { time.Sleep(time.Second); return nil }
func (slowFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, nil }
func (slowFSM) Restore(io.ReadCloser) error         { return nil }

func TestApplyingTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := raft.NewInmemStore()
		s, err := logstore.FromParts(mem, mem, raft.NewInmemSnapshotStore(), logstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		tracked := newTracker(slowFSM{}, nil, s.Guard())
		for i := range uint64(3) {
			tracked.Apply(&raft.Log{Index: i + 1})
		}
		if n, took := tracked.applied.Load(), time.Duration(tracked.applying.Load()); n != 3 || took != 3*time.Second {
			t.Errorf("%d entries were applied in %s", n, took)
		}
	})
}
