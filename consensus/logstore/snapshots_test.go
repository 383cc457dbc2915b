package logstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// TestFlippedDescription flips a bit of each byte of a snapshot's description. The snapshot is left out then: a wrong index would
// raise what the member owes, and a wrong group would replace the right one.
func TestFlippedDescription(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	s := open(t, dir, logstore.BoltDB, logstore.Options{})
	defer shut(t, s)
	group := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a:1"}}}
	_, transport := raft.NewInmemTransport("a:1")
	sink, err := s.Snapshots.Create(1, 14, 3, group, 2, transport)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "snapshots", sink.ID(), "meta.json")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if list, err := s.Snapshots.List(); err != nil || len(list) > 0 {
			t.Fatalf("with the description %s: %+v, %v", bad, list[0], err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Snapshots.List(); err != nil || len(list) != 1 || list[0].Index != 14 {
		t.Errorf("%v, %v", list, err)
	}
	// An older build has written no checksum.
	if err := os.Remove(filepath.Join(filepath.Dir(path), "meta.crc")); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Snapshots.List(); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestUnfinishedSnapshot opens stores after a crash in the middle of a snapshot. What was written of it is removed.
func TestUnfinishedSnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	s := open(t, dir, logstore.BoltDB, logstore.Options{})
	fill(t, s)
	_, transport := raft.NewInmemTransport("a:1")
	sink, err := s.Snapshots.Create(1, 14, 3, raft.Configuration{}, 2, transport)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(make([]byte, 1<<16)); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	s = open(t, dir, logstore.BoltDB, logstore.Options{})
	defer shut(t, s)
	checkFilled(t, s)
	if left, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}
