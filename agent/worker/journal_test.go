package worker_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/memjournal"
)

func open(t testing.TB, path string) *worker.File {
	t.Helper()
	j := worker.OpenFile(path, slog.New(slog.DiscardHandler))
	if err := j.Check(); err != nil {
		t.Fatal(err)
	}
	return j
}

// content returns the records of a journal as texts, in order.
func content(t testing.TB, j worker.Journal) []string {
	t.Helper()
	held, err := j.Load()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(held, func(a, b *pb.Held) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Fence, b.Fence))
	})
	var out []string
	for _, h := range held {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

func held(task int, fence uint64, result string) *pb.Held {
	h := &pb.Held{Task: fmt.Sprint("op/", task), Fence: fence, Started: true}
	if result != "" {
		h.Result = &pb.Result{Task: h.Task, Fence: fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Message: result}
	}
	return h
}

// After a crash at any byte the journal holds the result of some number of the first
// writes, and continues from there.
func TestJournalIsCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j := open(t, path)
	moments := [][]string{content(t, j)}
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		moments = append(moments, content(t, j))
	}
	for i := range 6 {
		step(j.Put(held(i, uint64(10+i), "")))
		if i%2 == 0 {
			step(j.Put(held(i, uint64(10+i), "done")))
		}
		if i%3 == 0 {
			step(j.Forget(worker.Key{Task: fmt.Sprint("op/", i), Fence: uint64(10 + i)}, worker.Key{Task: "unknown"}))
		}
		step(j.Put(held(100, 7, "the same again")))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for n := range len(whole) + 1 {
		for _, damage := range []bool{false, true} {
			b := slices.Clone(whole[:n])
			if damage && n > 0 {
				b[n-1] ^= 0x40
			}
			cut := filepath.Join(dir, "cut")
			if err := os.WriteFile(cut, b, 0o600); err != nil {
				t.Fatal(err)
			}
			c := open(t, cut)
			got := content(t, c)
			at := slices.IndexFunc(moments, func(m []string) bool { return slices.Equal(m, got) })
			if at < 0 {
				t.Fatalf("cut at byte %d of %d: it holds %d leases, as it never did", n, len(whole), len(got))
			}
			if !damage {
				if n == len(whole) && !slices.Equal(got, moments[len(moments)-1]) {
					t.Fatal("the whole file holds something else than was written")
				}
				last = n
			}
			// The journal continues: the next record can be read back.
			if err := c.Put(held(500, 99, "after")); err != nil {
				t.Fatal(err)
			}
			want := content(t, c)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c = open(t, cut)
			if !slices.Equal(content(t, c), want) || len(want) != len(got)+1 {
				t.Fatalf("cut at byte %d: what was written after it is lost", n)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last != len(whole) {
		t.Fatal("the test cut nothing")
	}
}

// A file that has grown is rewritten and has the same content. The journal in memory behaves like
// that in a file.
func TestJournalCompacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	rapid.Check(t, func(rt *rapid.T) {
		_ = os.Remove(path)
		j, m := open(t, path), memjournal.New()
		defer func() { _ = j.Close() }()
		big := string(make([]byte, 200<<10))
		for i := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			task, fence := rapid.IntRange(0, 3).Draw(rt, "task"), uint64(rapid.IntRange(1, 2).Draw(rt, "fence"))
			for _, k := range []worker.Journal{j, m} {
				var err error
				switch rapid.Map(rapid.Just(i), func(i int) int { return (i*7 + task) % 3 }).Draw(rt, "what") {
				case 0:
					err = k.Forget(worker.Key{Task: fmt.Sprint("op/", task), Fence: fence})
				default:
					err = k.Put(held(task, fence, big[:(i*31%200)<<10]+"x"))
				}
				if err != nil {
					rt.Fatal(err)
				}
			}
			if rapid.IntRange(0, 9).Draw(rt, "reopen") == 0 {
				if err := j.Close(); err != nil {
					rt.Fatal(err)
				}
				j = open(t, path)
			}
			if !slices.Equal(content(t, j), content(t, m)) {
				rt.Fatalf("after step %d the file holds something else than memory", i)
			}
		}
		if st, err := os.Stat(path); err != nil || st.Size() > 9<<20 {
			rt.Fatalf("the file has %d bytes (%v)", st.Size(), err)
		}
	})
}

// Whatever a file holds, it is opened as a journal: with the records that are whole, which it keeps, and
// ready for others.
func FuzzJournal(f *testing.F) {
	whole, err := proto.Marshal(held(1, 2, "done"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(1), whole, []byte{})
	f.Add(byte(2), whole, []byte{1, 0, 0, 0, 9})
	f.Add(byte(1), []byte("no message"), []byte{1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, kind byte, body, rest []byte) {
		b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))
		b = append(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body)), body...)
		b = append(b, rest...)
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, path)
		before := content(t, j)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, path)
		if now := content(t, j); !slices.Equal(before, now) {
			t.Fatalf("held %q, and when opened again %q", before, now)
		}
		if err := errors.Join(j.Put(held(7, 8, "later")), j.Close()); err != nil {
			t.Fatal(err)
		}
		j = open(t, path)
		defer func() { _ = j.Close() }()
		list, err := j.Load()
		if err != nil || !slices.ContainsFunc(list, func(h *pb.Held) bool { return h.Task == "op/7" && h.Fence == 8 }) {
			t.Fatalf("what was written afterwards is missing: %v, %v", list, err)
		}
	})
}

// TestJournalSkipsDamagedRecords changes each byte of a journal. The records that are whole are kept, except
// those that only exist because of the damage; the damaged file is put aside, and the journal continues.
func TestJournalSkipsDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j := open(t, path)
	size := func() int {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return int(info.Size())
	}
	type write struct {
		key  worker.Key
		held *pb.Held // nil: forgotten
		from int
	}
	var writes []write
	for i := range 8 {
		w := write{key: worker.Key{Task: fmt.Sprint("op/", i/2), Fence: uint64(10 + i/2)}, from: size()}
		err := error(nil)
		if w.held = held(i/2, w.key.Fence, []string{"", "done"}[i%2]); i == 5 {
			w.held = nil
			err = j.Forget(w.key)
		} else {
			err = j.Put(w.held)
		}
		if err != nil {
			t.Fatal(err)
		}
		writes = append(writes, w)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := writes[0].from; at < len(whole); at++ {
		want, last := memjournal.New(), false
		for i, w := range writes {
			end := len(whole)
			if i+1 < len(writes) {
				end = writes[i+1].from
			}
			switch {
			case at >= w.from && at < end:
				last = i == len(writes)-1
			case w.held == nil:
				err = want.Forget(w.key)
			default:
				err = want.Put(w.held)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		b := slices.Clone(whole)
		b[at] ^= 0x55
		folder := t.TempDir()
		bad := filepath.Join(folder, "journal")
		if err := os.WriteFile(bad, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c := open(t, bad)
		if got := content(t, c); !slices.Equal(got, content(t, want)) {
			t.Fatalf("byte %d of %d changed: %q", at, len(whole), got)
		}
		if list, err := os.ReadDir(filepath.Join(folder, "quarantine")); !last && (err != nil || len(list) != 2) {
			t.Fatalf("byte %d: the damaged file was not put aside: %v, %v", at, list, err)
		}
		if err := errors.Join(c.Put(held(50, 99, "after")), c.Close()); err != nil {
			t.Fatal(err)
		}
		c = open(t, bad)
		if got := content(t, c); len(got) != len(content(t, want))+1 {
			t.Fatalf("byte %d: what was written after it is lost: %q", at, got)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJournalBeginsAnew finds files in the journal's place that hold no record. They are put aside.
func TestJournalBeginsAnew(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a directory":  func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"another file": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("garbage "), 1<<10), 0o600) },
		"zeros":        func(path string) error { return os.WriteFile(path, make([]byte, 1<<16), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "journal")
			if err := place(path); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			j := worker.OpenFile(path, slog.New(slog.NewTextHandler(&log, nil)))
			if err := errors.Join(j.Put(held(1, 2, "")), j.Close()); err != nil {
				t.Fatal(err)
			}
			if got := content(t, open(t, path)); len(got) != 1 {
				t.Errorf("%q", got)
			}
			if list, err := os.ReadDir(filepath.Join(dir, "quarantine")); err != nil || len(list) == 0 {
				t.Errorf("%v, %v", list, err)
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "was put aside") {
				t.Errorf("the log:\n%s", &log)
			}
		})
	}
}
