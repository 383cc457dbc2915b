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
