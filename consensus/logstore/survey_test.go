package logstore_test

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// TestSurveyAfterASentSnapshot reads the stores of a member that got a snapshot from the leader. The entries before it stay, with a
// gap behind them, and the group is the one of the snapshot, not the one of an earlier entry.
func TestSurveyAfterASentSnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	s := open(t, dir, logstore.BoltDB, logstore.Options{})
	group := func(ids ...string) (c raft.Configuration) {
		for _, id := range ids {
			c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":1")})
		}
		return c
	}
	store := func(l *raft.Log) {
		t.Helper()
		if err := s.Log.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	store(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(group("a", "b", "c"))})
	store(&raft.Log{Index: 2, Term: 1})
	_, transport := raft.NewInmemTransport("a:1")
	for index, g := range map[uint64]raft.Configuration{5: group("a", "b", "c"), 10: group("a", "b", "c", "d", "e")} {
		sink, err := s.Snapshots.Create(1, index, 2, g, index-1, transport)
		if err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
	}
	store(&raft.Log{Index: 11, Term: 2})
	shut(t, s)

	got, err := logstore.ReadSurvey(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Damage) > 0 || got.Last.Index != 11 || got.Snapshot.Index != 10 || len(got.Members) != 5 {
		t.Errorf("%+v", got)
	}
}
