package member

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/logstore"
)

// aloneMesh is the view of an agent that knows no others.
type aloneMesh struct{ Mesh }

func (aloneMesh) Members() []mesh.Member { return nil }

// TestCopiesMakeRoom replaces the end of a WAL on a disk that damaged copies have filled, so that it has no room for a new
// segment. The oldest copy is removed, and the log can be opened again. The newest stays, as the agent has no others.
func TestCopiesMakeRoom(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=220M,mode=0700"); err != nil {
		t.Skipf("a small disk needs root to mount a tmpfs: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	log := slog.New(slog.DiscardHandler)
	stores := StoresIn(filepath.Join(dir, "raft"), "wal", log)
	lone := New(Config{Stores: stores, Mesh: aloneMesh{}, Logger: log})
	store := func() *logstore.Stores {
		t.Helper()
		s, err := stores.Open()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	entries := func(from, to, term uint64) (out []*raft.Log) {
		for i := from; i <= to; i++ {
			out = append(out, &raft.Log{Index: i, Term: term, Data: fmt.Appendf(nil, "%d/%d", term, i)})
		}
		return out
	}
	var aside []string
	for range 2 { // of 64 MiB each
		s := store()
		if err := errors.Join(s.Log.StoreLogs(entries(1, 20, 3)), s.Close()); err != nil {
			t.Fatal(err)
		}
		to, err := stores.PutAside(errors.New("the test says so"))
		if err != nil {
			t.Fatal(err)
		}
		aside = append(aside, to)
	}
	s := store()
	if err := s.Log.StoreLogs(entries(1, 20, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.Log.DeleteRange(15, 20); !errors.Is(err, logstore.ErrDiskFull) {
		t.Fatal("the disk has room for four segments:", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := stores.Open(); !errors.Is(err, logstore.ErrDiskFull) {
		t.Fatal("the disk has room for four segments:", err)
	}
	lone.makeRoom(t.Context())
	s = store()
	if err := s.Log.StoreLogs(entries(15, 25, 4)); err != nil {
		t.Error(err)
	}
	if last, err := s.Log.LastIndex(); err != nil || last != 25 {
		t.Errorf("the log ends at %d: %v", last, err)
	}
	if _, err := os.Stat(aside[0]); !errors.Is(err, os.ErrNotExist) {
		t.Error("the oldest copy is still there:", err)
	}
	lone.makeRoom(t.Context()) // the disk is full for another reason, and nobody else leads
	if _, err := os.Stat(aside[1]); err != nil {
		t.Error("the newest copy was removed:", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
