package logstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/testing/doubles/flip"
)

// TestScrubLog damages an entry that is in the cache, so that nothing else reads it from the disk.
func TestScrubLog(t *testing.T) {
	const text = "the quick brown fox jumps over the lazy dog"
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, kind, logstore.Options{})
			defer shut(t, s)
			logs := entries(1, 20, 3)
			logs[9].Data = []byte(text)
			if err := s.Log.StoreLogs(logs); err != nil {
				t.Fatal(err)
			}
			if err := s.ScrubLog(t.Context()); err != nil {
				t.Fatalf("a whole log: %v", err)
			}
			spots := flip.Find(t, dir, text)
			spots.Flip(t, 4)
			var l raft.Log
			if err := s.Log.GetLog(10, &l); err != nil || string(l.Data) != text {
				t.Fatalf("the entry in the cache: %q, %v", l.Data, err)
			}
			if err := s.ScrubLog(t.Context()); !errors.Is(err, logstore.ErrDamaged) || !strings.Contains(err.Error(), "entry 10") {
				t.Errorf("a damaged entry: %v", err)
			}
			if err := s.Guard().Err(); err != nil {
				t.Errorf("the member may go on: %v", err)
			}
			spots.Flip(t, 4)
			if err := s.ScrubLog(t.Context()); err != nil {
				t.Errorf("the entry is whole again: %v", err)
			}
		})
	}
}

func TestScrubSnapshots(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, logstore.BoltDB, logstore.Options{})
	defer shut(t, s)
	fill(t, s)
	list, err := s.Snapshots.List()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ScrubSnapshots(t.Context()); err != nil {
		t.Fatalf("a whole snapshot: %v", err)
	}
	for _, name := range []string{"state.bin", "meta.json"} {
		path := filepath.Join(dir, "snapshots", list[0].ID, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte(nil), whole...)
		at := len(bad) / 2
		if name == "meta.json" {
			at = strings.Index(string(bad), `"CRC"`) + 8
		}
		bad[at] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.ScrubSnapshots(t.Context()); !errors.Is(err, logstore.ErrDamaged) || !strings.Contains(err.Error(), list[0].ID) {
			t.Errorf("a byte of %s was changed: %v", name, err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ScrubSnapshots(t.Context()); err != nil {
		t.Errorf("the snapshot is whole again: %v", err)
	}
}

// hangingReads is a store whose reads of entries hang until release is closed.
type hangingReads struct {
	raft.LogStore
	release chan struct{}
}

func (h hangingReads) GetLog(index uint64, l *raft.Log) error {
	<-h.release
	return h.LogStore.GetLog(index, l)
}

// TestCloseWhileScrubHangs closes a store whose disk does not answer a read.
func TestCloseWhileScrubHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		inner := raft.NewInmemStore()
		s, err := logstore.FromParts(inner, inner, logstore.NewMemorySnapshots(1), logstore.Options{
			Wrap: func(l raft.LogStore, s raft.StableStore) (raft.LogStore, raft.StableStore) {
				return hangingReads{l, release}, s
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Log.StoreLogs(entries(1, 3, 1)); err != nil {
			t.Fatal(err)
		}
		scrubbed := make(chan error)
		go func() { scrubbed <- s.ScrubLog(context.Background()) }()
		synctest.Wait()
		if err := s.Close(); !errors.Is(err, logstore.ErrStuck) {
			t.Errorf("the store is closed during a read: %v", err)
		}
		close(release)
		if err := <-scrubbed; !errors.Is(err, logstore.ErrClosed) {
			t.Errorf("the next entry is read from a closed store: %v", err)
		}
		<-s.Closed()
	})
}

// TestChecksumIsRequired stores entries without checksums below the guard. Those from before the first
// opening are of an older build; later ones are damaged.
func TestChecksumIsRequired(t *testing.T) {
	inner := raft.NewInmemStore()
	if err := inner.StoreLogs(entries(1, 2, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, the store is opened again
		s, err := logstore.FromParts(inner, inner, logstore.NewMemorySnapshots(1), logstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var l raft.Log
		if err := s.Log.GetLog(2, &l); err != nil {
			t.Errorf("an entry of an older build: %v", err)
		}
		if err := inner.StoreLogs(entries(3, 3, 1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Log.GetLog(3, &l); !errors.Is(err, logstore.ErrDamaged) {
			t.Errorf("an entry that has lost its checksum: %v", err)
		}
		shut(t, s)
	}
}
