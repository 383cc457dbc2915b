package logstore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/testing/doubles/faultystore"
)

// TestLostLog deletes a member's log. The member keeps its term and its vote, and does not vote again
// before it has all entries that it had acknowledged.
func TestLostLog(t *testing.T) {
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "raft")
			s := open(t, dir, kind, logstore.Options{})
			fill(t, s)
			if s.Guard().Abstains() {
				t.Fatal("a whole log abstains")
			}
			shut(t, s)
			s = open(t, dir, kind, logstore.Options{})
			if s.Guard().Abstains() {
				t.Fatal("a whole log abstains after it was opened again")
			}
			shut(t, s)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // also after another restart
				s = open(t, dir, kind, logstore.Options{})
				checkVoteOf(t, s, 3, "me")
				if !s.Guard().Abstains() {
					t.Fatal("a lost log may vote")
				}
				if err := s.Stable.SetUint64([]byte("LastVoteTerm"), 4); !errors.Is(err, logstore.ErrAbstains) {
					t.Fatalf("the term of a vote: %v", err)
				}
				if err := s.Stable.Set([]byte("LastVoteCand"), []byte("you")); !errors.Is(err, logstore.ErrAbstains) {
					t.Fatalf("the candidate of a vote: %v", err)
				}
				shut(t, s)
			}
			s = open(t, dir, kind, logstore.Options{})
			may := make(chan struct{})
			if !s.Guard().OnMayVote(func() { close(may) }) {
				t.Fatal("a lost log may vote")
			}
			if err := errors.Join(s.Stable.SetUint64([]byte("CurrentTerm"), 5), s.Log.StoreLogs(entries(1, 19, 5))); err != nil {
				t.Fatal(err)
			}
			if !s.Guard().Abstains() {
				t.Fatal("it may vote without the last entry")
			}
			if err := s.Log.StoreLogs(entries(20, 21, 5)); err != nil {
				t.Fatal(err)
			}
			<-may
			if err := errors.Join(s.Stable.SetUint64([]byte("LastVoteTerm"), 5), s.Stable.Set([]byte("LastVoteCand"), []byte("you"))); err != nil {
				t.Fatal(err)
			}
			shut(t, s)
			s = open(t, dir, kind, logstore.Options{})
			defer shut(t, s)
			checkVoteOf(t, s, 5, "you")
			if s.Guard().Abstains() {
				t.Fatal("a log that is whole again abstains")
			}
		})
	}
}

func checkVoteOf(t *testing.T, s *logstore.Stores, term uint64, cand string) {
	t.Helper()
	for _, key := range []string{"CurrentTerm", "LastVoteTerm"} {
		if v, err := s.Stable.GetUint64([]byte(key)); v != term || err != nil {
			t.Fatalf("%s is %d, %v", key, v, err)
		}
	}
	if v, err := s.Stable.Get([]byte("LastVoteCand")); string(v) != cand || err != nil {
		t.Fatalf("the vote is %q, %v", v, err)
	}
}

// TestLostCandidate loses the last write of a vote: the candidate. The candidate of an earlier term takes its place, and
// the member must not vote for it, too.
func TestLostCandidate(t *testing.T) {
	d, before := faultystore.NewLying(), []byte("before")
	fromParts := func() *logstore.Stores {
		s, err := logstore.FromParts(d, d, d.Snapshots(), logstore.Options{Watermark: d})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := fromParts()
	if err := errors.Join(
		s.Stable.Set([]byte("LastVoteCand"), before),
		s.Stable.SetUint64([]byte("LastVoteTerm"), 3),
		s.Stable.Set([]byte("LastVoteCand"), []byte("now")),
		d.Set([]byte("LastVoteCand"), before),
	); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	s = fromParts()
	defer shut(t, s)
	if got, err := s.Stable.Get([]byte("LastVoteCand")); len(got) == 0 || bytes.Equal(got, before) || err != nil {
		t.Fatalf("the vote is %q, %v", got, err)
	}
}

// TestCutLog replaces the end of a log by a shorter one, as a new leader does. No entry is lost by that.
func TestCutLog(t *testing.T) {
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "raft")
			s := open(t, dir, kind, logstore.Options{})
			fill(t, s)
			if err := errors.Join(s.Log.DeleteRange(11, 20), s.Log.StoreLogs(entries(11, 12, 4))); err != nil {
				t.Fatal(err)
			}
			shut(t, s)
			s = open(t, dir, kind, logstore.Options{})
			defer shut(t, s)
			if s.Guard().Abstains() {
				t.Fatal("it abstains")
			}
		})
	}
}

// TestDamagedMark opens a whole log with a mark that cannot be read.
func TestDamagedMark(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	s := open(t, dir, logstore.BoltDB, logstore.Options{})
	fill(t, s)
	shut(t, s)
	for _, b := range [][]byte{nil, make([]byte, 100), make([]byte, 5000)} {
		if err := os.WriteFile(dir+"-watermark", b, 0o600); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, logstore.BoltDB, logstore.Options{})
		if s.Guard().Abstains() {
			t.Error("it abstains")
		}
		checkFilled(t, s)
		shut(t, s)
	}
}
