package logstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/testing/doubles/flip"
)

// TestFlippedBytes changes each byte of an entry, and those around it, on the disk in turn. The entry is then read as it was
// written, or it is damaged, but it never has another content.
func TestFlippedBytes(t *testing.T) {
	const text = "the quick brown fox jumps over the lazy dog"
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			o := logstore.Options{CacheEntries: 1} // so that entries are read from the disk
			s := open(t, dir, kind, o)
			logs := entries(1, 20, 3)
			logs[9].Data = []byte(text)
			for _, l := range logs { // each in a transaction of its own
				if err := s.Log.StoreLog(l); err != nil {
					t.Fatal(err)
				}
			}
			shut(t, s)
			damaged, spots := 0, flip.Find(t, dir, text)
			// The store's own frame, and the entry's other fields, are within this distance of the data.
			for at := -120; at < len(text)+60; at++ {
				spots.Flip(t, at)
				if !readAsWritten(t, dir, kind, o, logs) {
					damaged++
				}
				spots.Flip(t, at)
			}
			if damaged < len(text) {
				t.Fatalf("only %d flipped bytes were noticed", damaged)
			}
			if !readAsWritten(t, dir, kind, o, logs) {
				t.Fatal("the whole log is damaged")
			}
		})
	}
}

// readAsWritten opens the store and reads all entries. It reports false if the store reports an entry
// as damaged, and fails the test if the store returns a wrong entry.
func readAsWritten(t *testing.T, dir string, kind logstore.Kind, o logstore.Options, want []*raft.Log) bool {
	t.Helper()
	s, err := logstore.Open(dir, kind, o)
	if err != nil {
		return false
	}
	defer shut(t, s)
	for _, w := range want {
		var l raft.Log
		err := s.Log.GetLog(w.Index, &l)
		switch {
		case errors.Is(err, logstore.ErrDamaged):
			if !strings.Contains(err.Error(), fmt.Sprint("entry ", w.Index)) {
				t.Fatalf("entry %d: the error does not name it: %v", w.Index, err)
			}
			return false
		case errors.Is(err, raft.ErrLogNotFound) && kind == logstore.WAL && last(t, s.Log) < w.Index:
			return false // the store takes what is damaged in the last segment for a write that was cut short
		case err != nil:
			t.Fatalf("entry %d: %v", w.Index, err)
		case l.Index != w.Index || l.Term != w.Term || l.Type != w.Type || string(l.Data) != string(w.Data):
			t.Fatalf("entry %d was changed: %+v", w.Index, l)
		}
	}
	return true
}

// TestDamageWhileRaftRuns reads a damaged entry from a store on which Raft runs.
func TestDamageWhileRaftRuns(t *testing.T) {
	inner := raft.NewInmemStore()
	s, err := logstore.FromParts(inner, inner, logstore.NewMemorySnapshots(1), logstore.Options{CacheEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, s)
	if err := s.Log.StoreLogs(entries(1, 5, 1)); err != nil {
		t.Fatal(err)
	}
	var bad raft.Log
	if err := inner.GetLog(3, &bad); err != nil {
		t.Fatal(err)
	}
	bad.Data = []byte("something else")
	if err := inner.StoreLog(&bad); err != nil {
		t.Fatal(err)
	}
	var got raft.Log
	if err := s.Log.GetLog(3, &got); !errors.Is(err, logstore.ErrDamaged) {
		t.Fatalf("before Raft runs: %v", err)
	}
	if err := s.Guard().Damaged(); err != nil {
		t.Fatalf("before Raft runs: %v", err)
	}
	s.Guard().Arm()
	sick := make(chan error, 1)
	s.Guard().OnSick(func(err error) { sick <- err })
	got = raft.Log{}
	if err := s.Log.GetLog(3, &got); err != nil || got.Index != 3 || got.Type != raft.LogNoop || len(got.Data) > 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	err = <-sick
	if !errors.Is(err, logstore.ErrSick) || !errors.Is(err, logstore.ErrDamaged) || !strings.Contains(err.Error(), "entry 3") {
		t.Fatal(err)
	}
	if err := s.Guard().Damaged(); !errors.Is(err, logstore.ErrDamaged) {
		t.Fatal(err)
	}
	if err := s.Log.StoreLogs(entries(6, 6, 1)); !errors.Is(err, logstore.ErrSick) {
		t.Fatalf("an entry behind the damaged one: %v", err)
	}
	other, err := logstore.Open("", logstore.Memory, logstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, other)
	if err := other.Log.StoreLog(&got); !errors.Is(err, logstore.ErrDamaged) {
		t.Fatalf("another member takes what stands for the damaged entry: %v", err)
	}
}

func TestHoleInTheLog(t *testing.T) {
	inner := raft.NewInmemStore()
	if err := errors.Join(inner.StoreLogs(entries(1, 2, 1)), inner.StoreLogs(entries(4, 5, 1))); err != nil {
		t.Fatal(err)
	}
	s, err := logstore.FromParts(inner, inner, logstore.NewMemorySnapshots(1), logstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, s)
	var l raft.Log
	if err := s.Log.GetLog(3, &l); !errors.Is(err, logstore.ErrDamaged) {
		t.Errorf("the missing entry: %v", err)
	}
	sink, err := s.Snapshots.Create(1, 3, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Log.GetLog(3, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("the missing entry, which a snapshot covers: %v", err)
	}
	if err := s.Log.GetLog(6, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("behind the end: %v", err)
	}
	if err := s.Log.GetLog(2, &l); err != nil {
		t.Errorf("an entry of an older build: %v", err)
	}
}

func TestFlippedSnapshot(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, logstore.BoltDB, logstore.Options{})
	defer shut(t, s)
	fill(t, s)
	list, err := s.Snapshots.List()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "snapshots", list[0].ID, "state.bin")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		bad := append([]byte(nil), whole...)
		bad[i] ^= 0x20
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, rc, err := s.Snapshots.Open(list[0].ID); err == nil {
			t.Errorf("byte %d was changed and the snapshot opens", i)
			_ = rc.Close()
		}
	}
}
