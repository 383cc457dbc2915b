package logstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// TestNoRoomForASegment replaces the end of a log while the disk has no room for the new segment. Once there is room,
// the log can be written again.
func TestNoRoomForASegment(t *testing.T) {
	dir := t.TempDir()
	size := func(flags uintptr, mib int) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%dM,mode=0700", mib))
	}
	if err := size(0, 80); err != nil {
		t.Skipf("a small disk needs root to mount a tmpfs: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s := open(t, dir, logstore.WAL, logstore.Options{MaxFailures: 1 << 20})
	if err := s.Log.StoreLogs(entries(1, 20, 3)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Log.DeleteRange(15, 20); !errors.Is(err, logstore.ErrDiskFull) {
			t.Fatal(err)
		}
	}
	if err := size(syscall.MS_REMOUNT, 300); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Log.DeleteRange(15, 20), s.Log.StoreLogs(entries(15, 25, 4))); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	s = open(t, dir, logstore.WAL, logstore.Options{})
	defer shut(t, s)
	if got := last(t, s.Log); got != 25 {
		t.Errorf("the log ends at %d", got)
	}
	for i, term := range map[uint64]uint64{14: 3, 15: 4, 25: 4} {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil || l.Term != term {
			t.Errorf("entry %d: %+v, %v", i, l, err)
		}
	}
}

// TestNoRoomForTheNextSegment fills the last segment of a log while the disk has no room for the next one. That is a full
// disk and no damage, and the log has every entry once there is room.
func TestNoRoomForTheNextSegment(t *testing.T) {
	dir := t.TempDir()
	size := func(flags uintptr, mib int) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%dM,mode=0700", mib))
	}
	if err := size(0, 80); err != nil {
		t.Skipf("a small disk needs root to mount a tmpfs: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s := open(t, dir, logstore.WAL, logstore.Options{MaxFailures: 1 << 20})
	var stored uint64
	var failed error
	for data := make([]byte, 4<<20); failed == nil && stored < 40; {
		if failed = s.Log.StoreLog(&raft.Log{Index: stored + 1, Term: 1, Data: data}); failed == nil {
			stored++
		}
	}
	if !errors.Is(failed, logstore.ErrDiskFull) {
		t.Errorf("after %d entries: %v", stored, failed)
	}
	if err := s.Guard().Err(); err != nil {
		t.Error("a full disk is taken for damage:", err)
	}
	shut(t, s)
	if s, err := logstore.Open(dir, logstore.WAL, logstore.Options{}); !errors.Is(err, logstore.ErrDiskFull) {
		t.Error("opened on a full disk:", err)
		if err == nil {
			shut(t, s)
		}
	}
	if err := size(syscall.MS_REMOUNT, 300); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, logstore.WAL, logstore.Options{})
	defer shut(t, s)
	if got := last(t, s.Log); got != stored {
		t.Errorf("the log ends at %d, and %d entries were stored", got, stored)
	}
	if err := s.Log.StoreLogs(entries(stored+1, stored+5, 2)); err != nil {
		t.Error(err)
	}
}

// TestSegmentsWithoutIndex opens a WAL that has lost the index of its segments. The segments stay, as they may hold the
// only copy of an entry.
func TestSegmentsWithoutIndex(t *testing.T) {
	for name, lose := range map[string]func(string) error{
		"missing": os.Remove, "empty": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, logstore.WAL, logstore.Options{})
			fill(t, s)
			shut(t, s)
			if err := lose(filepath.Join(dir, "wal", "wal-meta.db")); err != nil {
				t.Fatal(err)
			}
			if s, err := logstore.Open(dir, logstore.WAL, logstore.Options{}); err == nil {
				t.Errorf("the log ends at %d", last(t, s.Log))
				shut(t, s)
			} else if !errors.Is(err, logstore.ErrDamaged) {
				t.Error(err)
			}
			segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
			if err != nil || len(segments) != 1 {
				t.Fatal(segments, err)
			}
			if b, err := os.ReadFile(segments[0]); err != nil || !bytes.Contains(b, []byte("3/20")) {
				t.Errorf("the entries are gone: %v", err)
			}
		})
	}
}

// openIn returns the files in dir that this process has open.
func openIn(t *testing.T, dir string) (paths []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(all) == 0 {
		t.Fatal("the open files of this process are not known:", err)
	}
	for _, fd := range all {
		if path, err := os.Readlink(fd); err == nil && strings.HasPrefix(path, dir) {
			paths = append(paths, path)
		}
	}
	return paths
}

// TestFailedOpeningLeavesNoLock opens a WAL of which a sealed segment is missing, twice. The second attempt does not
// wait for what the first one has left open, and none leaves a file open, which would keep its room on the disk.
func TestFailedOpeningLeavesNoLock(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, logstore.WAL, logstore.Options{})
	fill(t, s)
	// The log's end is replaced, so that there are two segments.
	if err := errors.Join(s.Log.DeleteRange(15, 20), s.Log.StoreLogs(entries(15, 25, 4))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Log.DeleteRange(20, 25), s.Log.StoreLogs(entries(20, 25, 5))); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(segments) != 3 {
		t.Fatal(segments, err)
	}
	if err := os.Rename(segments[1], segments[1]+".kept"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := logstore.Open(dir, logstore.WAL, logstore.Options{}); !errors.Is(err, logstore.ErrDamaged) {
			t.Fatal(err)
		}
		if paths := openIn(t, dir); len(paths) > 0 {
			t.Error("files are open:", paths)
		}
	}
	if err := os.Rename(segments[1]+".kept", segments[1]); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, logstore.WAL, logstore.Options{})
	defer shut(t, s)
	if got := last(t, s.Log); got != 25 {
		t.Errorf("the log ends at %d", got)
	}
}
