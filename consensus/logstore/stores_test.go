package logstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/testing/doubles/faultystore"
)

var onDisk = []logstore.Kind{logstore.BoltDB, logstore.WAL}

func open(t testing.TB, dir string, kind logstore.Kind, o logstore.Options) *logstore.Stores {
	t.Helper()
	s, err := logstore.Open(dir, kind, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func shut(t testing.TB, s *logstore.Stores) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func fill(t testing.TB, s *logstore.Stores) {
	t.Helper()
	if err := errors.Join(
		s.Log.StoreLogs(entries(1, 20, 3)),
		s.Log.DeleteRange(1, 4),
		s.Stable.SetUint64([]byte("CurrentTerm"), 3),
		s.Stable.SetUint64([]byte("LastVoteTerm"), 3),
		s.Stable.Set([]byte("LastVoteCand"), []byte("me")),
	); err != nil {
		t.Fatal(err)
	}
	sink, err := s.Snapshots.Create(1, 4, 3, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write([]byte("state")); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
}

func checkFilled(t testing.TB, s *logstore.Stores) {
	t.Helper()
	first, _ := s.Log.FirstIndex()
	if got := last(t, s.Log); first != 5 || got != 20 {
		t.Fatalf("log from %d to %d", first, got)
	}
	for i := uint64(5); i <= 20; i++ {
		var l raft.Log
		if err := s.Log.GetLog(i, &l); err != nil || l.Index != i || l.Term != 3 || string(l.Data) != fmt.Sprint(3, "/", i) {
			t.Fatalf("entry %d: %+v, %v", i, l, err)
		}
	}
	if v, err := s.Stable.GetUint64([]byte("CurrentTerm")); v != 3 || err != nil {
		t.Fatalf("term %d, %v", v, err)
	}
	if v, err := s.Stable.Get([]byte("LastVoteCand")); string(v) != "me" || err != nil {
		t.Fatalf("vote %q, %v", v, err)
	}
	list, err := s.Snapshots.List()
	if err != nil || len(list) != 1 || list[0].Index != 4 {
		t.Fatalf("snapshots %v, %v", list, err)
	}
	if has, err := s.HasState(); !has || err != nil {
		t.Fatalf("state: %v, %v", has, err)
	}
}

func TestReopen(t *testing.T) {
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, kind, logstore.Options{})
			if has, err := s.HasState(); has || err != nil {
				t.Fatalf("new stores with state: %v, %v", has, err)
			}
			fill(t, s)
			checkFilled(t, s)
			shut(t, s)
			shut(t, s) // a second Close does no harm
			<-s.Closed()
			if k, err := logstore.Detect(dir); k != kind || err != nil {
				t.Fatalf("detected %q, %v", k, err)
			}
			s = open(t, dir, kind, logstore.Options{})
			checkFilled(t, s)
			shut(t, s)
		})
	}
}

func TestMonotonicThroughTheGuard(t *testing.T) {
	for kind, want := range map[logstore.Kind]bool{logstore.BoltDB: false, logstore.WAL: true, logstore.Memory: false} {
		disk := &faultystore.Disk{}
		s := open(t, t.TempDir(), kind, logstore.Options{Wrap: disk.Wrap})
		m, ok := s.Log.(raft.MonotonicLogStore)
		if !ok || m.IsMonotonic() != want {
			t.Errorf("%s: monotonic %v, want %v", kind, ok && m.IsMonotonic(), want)
		}
		shut(t, s)
	}
}

// TestLateAppendOnRealStores: raft-wal refuses an entry that does not follow its last one. So a late
// append that is not undone would stop the member for good.
func TestLateAppendOnRealStores(t *testing.T) {
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			disk := &faultystore.Disk{}
			s := open(t, t.TempDir(), kind, logstore.Options{Wrap: disk.Wrap, Deadline: 20 * time.Millisecond, MaxFailures: 1 << 20})
			defer shut(t, s)
			until := func(what string, err func() error) {
				t.Helper()
				end := time.Now().Add(20 * time.Second)
				for e := err(); e != nil; e = err() {
					if time.Now().After(end) {
						t.Fatalf("%s: %v", what, e)
					}
					<-time.After(time.Millisecond)
				}
			}
			until("first entries", func() error { return s.Log.StoreLogs(entries(1, 3, 1)) })
			disk.Hang()
			if err := s.Log.StoreLogs(entries(4, 9, 1)); !errors.Is(err, logstore.ErrStuck) {
				t.Fatal(err)
			}
			disk.Heal()
			until("the guard to forget its error", s.Guard().Err)
			if got := last(t, s.Log); got != 3 {
				t.Fatalf("the log ends at %d", got)
			}
			until("other entries in their place", func() error { return s.Log.StoreLogs(entries(4, 5, 2)) })
			var l raft.Log
			if err := s.Log.GetLog(4, &l); err != nil || l.Term != 2 {
				t.Fatalf("%+v, %v", l, err)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, kind, logstore.Options{})
			if _, err := logstore.Open(dir, kind, logstore.Options{}); !errors.Is(err, logstore.ErrInUse) {
				t.Errorf("opened twice: %v", err)
			}
			fill(t, s)
			shut(t, s)
			if _, err := logstore.Open(dir, other(kind), logstore.Options{}); !errors.Is(err, logstore.ErrOtherKind) {
				t.Errorf("opened as another kind: %v", err)
			}
		})
	}
	if _, err := logstore.Open("", logstore.BoltDB, logstore.Options{}); err == nil {
		t.Error("opened nowhere")
	}
	if _, err := logstore.Open(t.TempDir(), "punchcards", logstore.Options{}); err == nil {
		t.Error("opened punchcards")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := logstore.Open(file, logstore.BoltDB, logstore.Options{}); err == nil {
		t.Error("opened a file as a directory")
	}
}

func other(k logstore.Kind) logstore.Kind {
	if k == logstore.WAL {
		return logstore.BoltDB
	}
	return logstore.WAL
}

func TestTwoLogsAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"raft.db", "wal/wal-meta.db"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := logstore.Open(dir, logstore.BoltDB, logstore.Options{}); !errors.Is(err, logstore.ErrOtherKind) {
		t.Fatal(err)
	}
}

func TestGarbageIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "raft.db"), bytes.Repeat([]byte("garbage "), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := logstore.Open(dir, logstore.BoltDB, logstore.Options{}); err == nil {
		t.Fatal("opened garbage")
	}
	// The lock was released.
	if err := os.Remove(filepath.Join(dir, "raft.db")); err != nil {
		t.Fatal(err)
	}
	shut(t, open(t, dir, logstore.BoltDB, logstore.Options{}))
}

// A damaged entry that was deleted already makes raft-wal end its log before the first entry that it holds.
func TestLogThatEndsBeforeItBeginsIsDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, logstore.WAL, logstore.Options{})
	for i := uint64(1); i <= 40; i++ {
		if err := s.Log.StoreLogs(entries(i, i, 3)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Log.DeleteRange(1, 30); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	// The header of an entry has eight bytes, of which the first is a 1 and the last four are its length.
	at := bytes.Index(b, []byte("3/20")) &^ 7
	for b[at] != 1 || at+8+int(binary.LittleEndian.Uint32(b[at+4:])) < bytes.Index(b, []byte("3/20")) {
		at -= 8
	}
	b[at] ^= 0x10
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := logstore.Open(dir, logstore.WAL, logstore.Options{}); !errors.Is(err, logstore.ErrDamaged) {
		first, _ := s.Log.FirstIndex()
		t.Errorf("the log from %d to %d was opened: %v", first, last(t, s.Log), err)
		shut(t, s)
	}
	// The lock was released.
	if _, err := logstore.PutAside(dir, errors.New("a test")); err != nil {
		t.Fatal(err)
	}
	shut(t, open(t, dir, logstore.WAL, logstore.Options{}))
}

func TestParseKind(t *testing.T) {
	for in, want := range map[string]logstore.Kind{"": logstore.BoltDB, "BoltDB": logstore.BoltDB, " wal ": logstore.WAL,
		"memory": logstore.Memory} {
		if got, err := logstore.ParseKind(in); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	if _, err := logstore.ParseKind("tape"); err == nil {
		t.Error("tape is known")
	}
}
