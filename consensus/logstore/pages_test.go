package logstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// TestGarbledFiles overwrites parts of the log's files. Opening them and reading all entries never ends
// the process, and every entry that is read is as it was written.
func TestGarbledFiles(t *testing.T) {
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			whole := filepath.Join(t.TempDir(), "raft")
			s := open(t, whole, kind, logstore.Options{})
			want := entries(1, 300, 3)
			for i, l := range want {
				l.Data = []byte(strings.Repeat(fmt.Sprint(i, "/"), 30))
			}
			for i := range 30 { // some of them in transactions of their own
				if err := s.Log.StoreLogs(want[10*i : 10*i+10]); err != nil {
					t.Fatal(err)
				}
			}
			shut(t, s)
			damaged := 0
			rnd := rand.New(rand.NewPCG(1, uint64(len(kind))))
			for range map[logstore.Kind]int{logstore.BoltDB: 60, logstore.WAL: 15}[kind] { // the WAL's files are large
				dir := filepath.Join(t.TempDir(), "raft")
				if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
					t.Fatal(err)
				}
				garble(t, dir, rnd)
				if !readAsFar(t, dir, kind, want) {
					damaged++
				}
			}
			if damaged == 0 {
				t.Fatal("no damage was noticed")
			}
		})
	}
}

// TestCutOffFile cuts a file of bbolt off behind pages that are in use, and before some that are free. bbolt would write to those.
func TestCutOffFile(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "raft")
	s := open(t, whole, logstore.BoltDB, logstore.Options{})
	for i := range uint64(30) {
		if err := s.Log.StoreLogs(entries(10*i+1, 10*i+10, 3)); err != nil {
			t.Fatal(err)
		}
	}
	large := entries(301, 301, 3)
	large[0].Data = make([]byte, 100<<10)
	if err := errors.Join(s.Log.StoreLogs(large), s.Log.DeleteRange(2, 301)); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) { // each transaction writes its pages to the first free ones
		if err := s.Stable.SetUint64([]byte("number"), i); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, s)
	b, err := os.ReadFile(filepath.Join(whole, "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	page := int64(os.Getpagesize())
	// Each of the first two pages is a description, which has the number of the first page that was never used.
	used := int64(max(binary.NativeEndian.Uint64(b[16+40:]), binary.NativeEndian.Uint64(b[page+16+40:])))
	if used < 10 {
		t.Fatalf("only %d pages were used", used)
	}
	for size := 3 * page; size < used*page; size += page {
		dir := filepath.Join(t.TempDir(), "raft")
		if err := errors.Join(os.CopyFS(dir, os.DirFS(whole)), os.Truncate(filepath.Join(dir, "raft.db"), size)); err != nil {
			t.Fatal(err)
		}
		s, err := logstore.Open(dir, logstore.BoltDB, logstore.Options{})
		if err == nil {
			shut(t, s)
		}
		if !errors.Is(err, logstore.ErrDamaged) {
			t.Errorf("%d of %d bytes: %v", size, used*page, err)
		}
	}
}

// garble overwrites 1 to 300 bytes in the first 64 KiB of a file.
func garble(t *testing.T, dir string, rnd *rand.Rand) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "raft.db"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(dir, "wal", "*"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, more...)
	f, err := os.OpenFile(files[rnd.IntN(len(files))], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	bad := make([]byte, 1+rnd.IntN(300))
	for i := range bad {
		bad[i] = byte(rnd.Uint32())
	}
	if _, err := f.WriteAt(bad, rnd.Int64N(min(64<<10, info.Size()-300))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// readAsFar opens the store and reads its entries. It reports false if the store is damaged or shorter
// than it was, and fails the test if an entry is wrong.
func readAsFar(t *testing.T, dir string, kind logstore.Kind, want []*raft.Log) bool {
	t.Helper()
	s, err := logstore.Open(dir, kind, logstore.Options{})
	if err != nil {
		return false
	}
	defer shut(t, s)
	if got, err := s.Log.LastIndex(); err != nil || got != want[len(want)-1].Index {
		return false
	}
	for _, w := range want {
		var l raft.Log
		if err := s.Log.GetLog(w.Index, &l); errors.Is(err, logstore.ErrDamaged) || errors.Is(err, raft.ErrLogNotFound) {
			return false
		} else if err != nil || l.Index != w.Index || l.Term != w.Term || string(l.Data) != string(w.Data) {
			t.Fatalf("entry %d was changed: %+v, %v", w.Index, l, err)
		}
	}
	return true
}

func TestPutAside(t *testing.T) {
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "raft")
			s := open(t, dir, kind, logstore.Options{})
			fill(t, s)
			if _, err := logstore.PutAside(dir, logstore.ErrDamaged); !errors.Is(err, logstore.ErrInUse) {
				t.Fatalf("stores that are open: %v", err)
			}
			shut(t, s)
			to, err := logstore.PutAside(dir, logstore.ErrDamaged)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(filepath.Join(to, "reason.txt")); err != nil || !strings.Contains(string(text), "damaged") {
				t.Fatalf("%q, %v", text, err)
			}
			s = open(t, dir, kind, logstore.Options{})
			checkVoteOf(t, s, 3, "me")
			if !s.Guard().Abstains() || last(t, s.Log) != 0 {
				t.Fatalf("the new stores hold entries up to %d", last(t, s.Log))
			}
			shut(t, s)
			for range 5 {
				shut(t, open(t, dir, kind, logstore.Options{}))
				if _, err := logstore.PutAside(dir, logstore.ErrDamaged); err != nil {
					t.Fatal(err)
				}
			}
			if kept, err := os.ReadDir(filepath.Dir(to)); err != nil || len(kept) != 3 {
				t.Fatalf("%d are kept, %v", len(kept), err)
			}
			shut(t, open(t, dir, kind, logstore.Options{}))
			if err := os.Remove(dir + "-watermark"); err != nil {
				t.Fatal(err)
			}
			if _, err := logstore.PutAside(dir, logstore.ErrDamaged); err == nil {
				t.Fatal("stores were put aside without a mark")
			}
			if _, err := os.Stat(dir); err != nil {
				t.Fatal(err)
			}
		})
	}
}
