package logstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/testing/doubles/faultystore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entries(from, to uint64, term uint64) []*raft.Log {
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: term, Data: []byte(fmt.Sprint(term, "/", i))})
	}
	return logs
}

// parts returns stores in memory, their disk, which the test controls, and the store below.
func parts(t testing.TB, o logstore.Options) (*logstore.Stores, *faultystore.Disk, *raft.InmemStore) {
	t.Helper()
	disk, mem := &faultystore.Disk{}, raft.NewInmemStore()
	o.Wrap = disk.Wrap
	s, err := logstore.FromParts(mem, mem, raft.NewInmemSnapshotStore(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, disk, mem
}

func last(t testing.TB, s raft.LogStore) uint64 {
	t.Helper()
	i, err := s.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestHangingAppendIsGivenUpAndUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk, mem := parts(t, logstore.Options{})
		defer func() { _ = s.Close() }()
		if err := s.Log.StoreLogs(entries(1, 5, 1)); err != nil {
			t.Fatal(err)
		}
		disk.Hang()
		if err := s.Log.StoreLogs(entries(6, 9, 1)); !errors.Is(err, logstore.ErrStuck) {
			t.Fatalf("a hanging append: %v", err)
		}
		if err := s.Guard().Err(); !errors.Is(err, logstore.ErrStuck) {
			t.Fatalf("the guard says %v", err)
		}
		// Other writes, votes included, are refused at once: none may overtake the hanging one.
		begun := time.Now()
		if err := s.Log.StoreLogs(entries(6, 6, 2)); !errors.Is(err, logstore.ErrStuck) {
			t.Fatalf("an append behind a hanging one: %v", err)
		}
		if err := s.Stable.Set([]byte("vote"), []byte("x")); !errors.Is(err, logstore.ErrStuck) {
			t.Fatalf("a vote behind a hanging append: %v", err)
		}
		if !time.Now().Equal(begun) {
			t.Fatal("refusals took time")
		}
		disk.Heal()
		synctest.Wait()
		if got := last(t, mem); got != 5 {
			t.Fatalf("the log ends at %d, Raft was told 5", got)
		}
		if err := s.Guard().Err(); err != nil {
			t.Fatalf("the guard still says %v", err)
		}
		if err := s.Log.StoreLogs(entries(6, 7, 2)); err != nil {
			t.Fatal(err)
		}
		var l raft.Log
		if err := s.Log.GetLog(6, &l); err != nil || l.Term != 2 {
			t.Fatalf("entry 6 is of term %d: %v", l.Term, err)
		}
		if st := s.Guard().Stats(); st.TimedOut != 1 || st.Refused != 2 || st.Undone != 1 {
			t.Fatalf("counted %+v", st)
		}
	})
}

func TestLostLateAppendNeedsNoUndoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk, mem := parts(t, logstore.Options{})
		defer func() { _ = s.Close() }()
		disk.HangAndLose()
		if err := s.Log.StoreLogs(entries(1, 3, 1)); !errors.Is(err, logstore.ErrStuck) {
			t.Fatal(err)
		}
		disk.Heal()
		synctest.Wait()
		if got := last(t, mem); got != 0 || s.Guard().Stats().Undone != 0 || s.Guard().Err() != nil {
			t.Fatalf("log ends at %d, %+v, %v", got, s.Guard().Stats(), s.Guard().Err())
		}
	})
}

func TestLateDeletionAtTheEndIsSick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk, _ := parts(t, logstore.Options{})
		defer func() { _ = s.Close() }()
		if err := s.Log.StoreLogs(entries(1, 9, 1)); err != nil {
			t.Fatal(err)
		}
		disk.Hang()
		if err := s.Log.DeleteRange(5, 9); !errors.Is(err, logstore.ErrStuck) {
			t.Fatal(err)
		}
		disk.Heal()
		synctest.Wait()
		if err := s.Log.StoreLogs(entries(5, 5, 2)); !errors.Is(err, logstore.ErrSick) {
			t.Fatalf("Raft believes in entries that are gone, and the store takes more: %v", err)
		}
	})
}

// TestFailedReplacementIsSick: the library forgets a deletion at the end when the append after it
// fails, and counts deleted entries as stored.
func TestFailedReplacementIsSick(t *testing.T) {
	s, disk, _ := parts(t, logstore.Options{})
	defer func() { _ = s.Close() }()
	if err := errors.Join(s.Log.StoreLogs(entries(1, 9, 1)), s.Log.DeleteRange(5, 9)); err != nil {
		t.Fatal(err)
	}
	disk.Fail(faultystore.ErrIO)
	if err := s.Log.StoreLogs(entries(5, 6, 2)); !errors.Is(err, faultystore.ErrIO) {
		t.Fatal(err)
	}
	disk.Heal()
	if err := s.Log.StoreLogs(entries(5, 6, 2)); !errors.Is(err, logstore.ErrSick) {
		t.Fatalf("the store takes more: %v", err)
	}
}

func TestReplacementIsFine(t *testing.T) {
	s, disk, _ := parts(t, logstore.Options{})
	defer func() { _ = s.Close() }()
	if err := errors.Join(s.Log.StoreLogs(entries(1, 9, 1)), s.Log.DeleteRange(5, 9), s.Log.StoreLogs(entries(5, 6, 2))); err != nil {
		t.Fatal(err)
	}
	disk.Fail(faultystore.ErrIO)
	if err := s.Log.StoreLogs(entries(7, 7, 2)); !errors.Is(err, faultystore.ErrIO) {
		t.Fatal(err)
	}
	disk.Heal()
	if err := s.Log.StoreLogs(entries(7, 7, 2)); err != nil {
		t.Fatal(err)
	}
}

func TestLateCompactionIsFine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk, mem := parts(t, logstore.Options{})
		defer func() { _ = s.Close() }()
		if err := s.Log.StoreLogs(entries(1, 9, 1)); err != nil {
			t.Fatal(err)
		}
		disk.Hang()
		if err := s.Log.DeleteRange(1, 5); !errors.Is(err, logstore.ErrStuck) {
			t.Fatal(err)
		}
		disk.Heal()
		synctest.Wait()
		if first, _ := mem.FirstIndex(); first != 6 || s.Guard().Err() != nil {
			t.Fatalf("log begins at %d, %v", first, s.Guard().Err())
		}
	})
}

func TestWhatMakesAStoreSick(t *testing.T) {
	store := func(s *logstore.Stores) error { return s.Log.StoreLogs(entries(1, 1, 1)) }
	cases := map[string]struct {
		do   func(s *logstore.Stores, d *faultystore.Disk)
		sick bool
		why  error
	}{
		"one long hang": {func(s *logstore.Stores, d *faultystore.Disk) {
			d.Hang()
			_ = store(s)
			time.Sleep(7 * time.Second)
		}, true, logstore.ErrStuck},
		"a hang that ends in time": {func(s *logstore.Stores, d *faultystore.Disk) {
			d.Hang()
			_ = store(s)
			time.Sleep(5 * time.Second)
			d.Heal()
			time.Sleep(5 * time.Second)
		}, false, nil},
		"refusals do not count": {func(s *logstore.Stores, d *faultystore.Disk) {
			d.Hang()
			for range 100 {
				_ = store(s)
			}
		}, false, nil},
		"a segment that looks complete": {func(s *logstore.Stores, d *faultystore.Disk) {
			d.Fail(wal.ErrSealed)
			_ = store(s)
		}, true, logstore.ErrDamaged},
		"failures over more than a deadline": {func(s *logstore.Stores, d *faultystore.Disk) {
			d.Fail(faultystore.ErrDiskFull)
			for range 5 {
				_ = store(s)
				time.Sleep(time.Second)
			}
		}, true, logstore.ErrDiskFull},
		"many failures in a moment": {func(s *logstore.Stores, d *faultystore.Disk) {
			d.Fail(faultystore.ErrIO)
			for range 50 {
				_ = store(s)
			}
		}, false, nil},
		"failures with a success between": {func(s *logstore.Stores, d *faultystore.Disk) {
			for range 10 {
				d.Fail(faultystore.ErrIO)
				_ = store(s)
				time.Sleep(time.Second)
				_ = store(s)
				d.Heal()
				_ = store(s)
			}
		}, false, nil},
		"slow but in time": {func(s *logstore.Stores, d *faultystore.Disk) {
			d.Delay(2900 * time.Millisecond)
			for range 10 {
				_ = store(s)
			}
		}, false, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, disk, _ := parts(t, logstore.Options{})
				defer func() { disk.Heal(); _ = s.Close() }()
				var mu sync.Mutex
				var told []error
				s.Guard().OnSick(func(err error) { mu.Lock(); told = append(told, err); mu.Unlock() })
				c.do(s, disk)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !c.sick {
					if len(told) != 0 {
						t.Fatalf("sick: %v", told)
					}
					return
				}
				if len(told) != 1 || !errors.Is(told[0], logstore.ErrSick) || !errors.Is(told[0], c.why) {
					t.Fatalf("told %v", told)
				}
				disk.Heal()
				synctest.Wait()
				if err := store(s); !errors.Is(err, logstore.ErrSick) {
					t.Fatalf("a sick store takes a write: %v", err)
				}
				again := make(chan error, 1)
				s.Guard().OnSick(func(err error) { again <- err })
				if err := <-again; !errors.Is(err, logstore.ErrSick) {
					t.Fatalf("a late listener hears %v", err)
				}
			})
		})
	}
}

func TestTermIsRetriedOnceArmed(t *testing.T) {
	term := []byte("CurrentTerm")
	synctest.Test(t, func(t *testing.T) {
		s, disk, mem := parts(t, logstore.Options{})
		disk.Fail(faultystore.ErrDiskFull)
		if err := s.Stable.SetUint64(term, 1); !errors.Is(err, logstore.ErrDiskFull) {
			t.Fatalf("before Raft runs the error must come out: %v", err)
		}
		s.Guard().Arm()
		if err := s.Stable.SetUint64([]byte("LastVoteTerm"), 1); !errors.Is(err, logstore.ErrDiskFull) {
			t.Fatalf("a vote's error must come out: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Stable.SetUint64(term, 7) }()
		time.Sleep(time.Second)
		select {
		case err := <-done:
			t.Fatalf("answered %v on a full disk", err)
		default:
		}
		disk.Heal()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if v, _ := mem.GetUint64(term); v != 7 {
			t.Fatalf("stored %d", v)
		}
		// A member that is being shut down does not wait either.
		disk.Hang()
		go func() { done <- s.Stable.SetUint64(term, 8) }()
		time.Sleep(time.Second)
		s.Guard().Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := s.Log.StoreLogs(entries(1, 1, 8)); err == nil {
			t.Fatal("an append after the release was let through")
		}
		if err := s.Close(); !errors.Is(err, logstore.ErrStuck) {
			t.Fatalf("closing over a hanging write: %v", err)
		}
		disk.Heal()
		<-s.Closed()
	})
}

func TestCompactionGoesInSteps(t *testing.T) {
	s, disk, mem := parts(t, logstore.Options{})
	defer func() { _ = s.Close() }()
	if err := s.Log.StoreLogs(entries(1, 5000, 1)); err != nil {
		t.Fatal(err)
	}
	before := disk.Writes()
	if err := s.Log.DeleteRange(1, 4999); err != nil {
		t.Fatal(err)
	}
	if n := disk.Writes() - before; n != 5 {
		t.Errorf("%d steps", n)
	}
	if first, _ := mem.FirstIndex(); first != 5000 {
		t.Errorf("log begins at %d", first)
	}
}

func TestGuardCanBeLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk, _ := parts(t, logstore.Options{Deadline: -1})
		defer func() { _ = s.Close() }()
		disk.Delay(time.Hour)
		if err := s.Log.StoreLogs(entries(1, 1, 1)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTold checks that with any faults of the disk, after it is healthy again and all writes have
// returned, the log holds exactly the entries that were acknowledged to Raft, or the store is sick.
func TestTold(t *testing.T) {
	type step struct {
		kind string
		n    int
	}
	rapid.Check(t, func(r *rapid.T) {
		var steps []step
		for range rapid.IntRange(1, 40).Draw(r, "steps") {
			s := step{kind: rapid.SampledFrom([]string{"append", "append", "append", "hang", "lose", "fail", "heal", "wait", "overrule"}).Draw(r,
				"step")}
			s.n = rapid.IntRange(0, 4000).Draw(r, "n")
			steps = append(steps, s)
		}
		var fault error
		// The bubble has a goroutine of its own, on which rapid's T must not fail.
		synctest.Test(t, func(t *testing.T) {
			disk, mem := &faultystore.Disk{}, raft.NewInmemStore()
			s, err := logstore.FromParts(mem, mem, raft.NewInmemSnapshotStore(), logstore.Options{Wrap: disk.Wrap, CacheEntries: 4})
			if err != nil {
				fault = err
				return
			}
			defer func() { disk.Heal(); _ = s.Close(); <-s.Closed() }()
			var told []uint64 // terms of the acknowledged entries: told[i] is the term of entry i+1
			for i, step := range steps {
				switch step.kind {
				case "append":
					k, at := 1+step.n%4, uint64(len(told))
					if s.Log.StoreLogs(entries(at+1, at+uint64(k), uint64(i))) == nil {
						for range k {
							told = append(told, uint64(i))
						}
					}
				case "overrule":
					if len(told) > 1 {
						from := 2 + step.n%(len(told)-1)
						if s.Log.DeleteRange(uint64(from), uint64(len(told))) == nil {
							told = told[:from-1]
						}
					}
				case "hang":
					disk.Hang()
				case "lose":
					disk.HangAndLose()
				case "fail":
					disk.FailAfter(step.n%3, faultystore.ErrIO)
				case "heal":
					disk.Heal()
				case "wait":
					time.Sleep(time.Duration(step.n) * time.Millisecond)
				}
			}
			disk.Heal()
			synctest.Wait()
			fault = holds(s, mem, told)
		})
		if fault != nil {
			r.Fatal(fault)
		}
	})
}

func holds(s *logstore.Stores, mem *raft.InmemStore, told []uint64) error {
	if err := s.Guard().Err(); errors.Is(err, logstore.ErrSick) {
		return nil // the member restarts and reads the log again
	} else if err != nil {
		return fmt.Errorf("not complete: %w", err)
	}
	if got, _ := mem.LastIndex(); got != uint64(len(told)) {
		return fmt.Errorf("the log ends at %d, told %d", got, len(told))
	}
	for i, term := range told {
		var l raft.Log
		if err := s.Log.GetLog(uint64(i+1), &l); err != nil || l.Term != term {
			return fmt.Errorf("entry %d is of term %d, told %d (%v)", i+1, l.Term, term, err)
		}
	}
	return nil
}

func TestWriteTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk, _ := parts(t, logstore.Options{})
		defer func() { _ = s.Close() }()
		disk.Delay(300 * time.Millisecond)
		for i := range uint64(2) {
			if err := s.Log.StoreLogs(entries(i+1, i+1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if st := s.Guard().Stats(); st.Writes != 2 || st.WriteTime != 600*time.Millisecond {
			t.Errorf("two writes of 300 ms each: %+v", st)
		}
	})
}
