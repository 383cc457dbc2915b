package raftgroup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

var onDisk = []logstore.Kind{logstore.BoltDB, logstore.WAL}

// onFiles runs a test, in real time, over members whose stores are real files.
func onFiles(t *testing.T, f func(t *testing.T, kind logstore.Kind, dir string, o grouptest.Options)) {
	t.Helper()
	for _, kind := range onDisk {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // these tests mostly wait
			dir := t.TempDir()
			o := grouptest.Options{
				// Long time-outs, because the test machine may be busy.
				Timing: raftgroup.Timing{Multiplier: 3, SnapshotThreshold: 30, SnapshotInterval: 20e6, TrailingLogs: 10},
				Stores: func(id string, wrap func(raft.LogStore, raft.StableStore) (raft.LogStore, raft.StableStore)) (*logstore.Stores, error) {
					return logstore.Open(filepath.Join(dir, id), kind, logstore.Options{Wrap: wrap})
				},
				RecoveryDir: func(id string) string { return filepath.Join(dir, id) },
			}
			f(t, kind, dir, o)
		})
	}
}

func TestRestartFromFiles(t *testing.T) {
	onFiles(t, func(t *testing.T, _ logstore.Kind, _ string, o grouptest.Options) {
		c := grouptest.Start(t, 3, o)
		defer c.Stop()
		n := 0
		apply := func(k int) {
			for range k {
				c.Apply(fmt.Sprint(n))
				n++
			}
		}
		for i := range 3 {
			apply(25)
			m := c.Members()[i]
			m.Crash()
			apply(5)
			m.Start()
		}
		for _, m := range c.Members() {
			m.Crash()
		}
		for _, m := range c.Members() {
			m.Start()
		}
		apply(1)
		if got := dedup(c.Agree()); len(got) != n {
			t.Fatalf("%d entries of %d", len(got), n)
		}
	})
}

// TestCrashBetweenSnapshotAndLog leaves a log that ends before the snapshot, as
// a crash does while a snapshot from the leader is installed.
func TestCrashBetweenSnapshotAndLog(t *testing.T) {
	onFiles(t, func(t *testing.T, kind logstore.Kind, dir string, o grouptest.Options) {
		c := grouptest.Start(t, 3, o)
		defer c.Stop()
		c.Apply("early")
		c.Agree()
		m := c.Member(others(c, c.Leader().ID)[0])
		m.Crash()
		for i := range 80 {
			c.Apply(fmt.Sprint(i))
		}
		meta, state, err := c.Leader().Group().Snapshot(bg)
		if err != nil {
			t.Fatal(err)
		}
		_, trans := raft.NewInmemTransport("")
		s, err := logstore.Open(filepath.Join(dir, m.ID), kind, logstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sink, err := s.Snapshots.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, trans)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(sink, state); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sink.Close(), state.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		m.Start()
		c.Apply("late")
		if got := dedup(c.Agree()); len(got) != 82 {
			t.Fatalf("%d entries", len(got))
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRecoverAfterLostQuorum loses two of three members for good and continues with the
// third one, which finds the file at its start.
func TestRecoverAfterLostQuorum(t *testing.T) {
	onFiles(t, func(t *testing.T, kind logstore.Kind, dir string, o grouptest.Options) {
		c := grouptest.Start(t, 3, o)
		defer c.Stop()
		for i := range 40 {
			c.Apply(fmt.Sprint(i))
		}
		c.Agree()
		for _, m := range c.Members() {
			m.Crash()
		}
		last := c.Member("c")
		file := filepath.Join(dir, "c", raftgroup.RecoverFile)
		write(t, file, `[{"id": "c", "address": "127.0.0.1:1"}]`)
		last.Start()
		lead := c.LeaderAmong("c").Group()
		if s := lead.Servers(); len(s) != 1 || s[0].ID != "c" || s[0].Addr != "127.0.0.1:1" {
			t.Fatalf("the group is %+v", s)
		}
		if err := lead.Apply([]byte("on")).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the file is still there: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "c", raftgroup.RecoveredFile)); err != nil {
			t.Fatal(err)
		}
		// The file is gone, so a restart leaves the group unchanged. A new
		// member receives the state.
		last.Crash()
		last.Start()
		d := c.Add("d")
		lead = c.LeaderAmong("c").Group()
		if err := lead.AddNonvoter(bg, d.ID, d.Addr, 0); err != nil {
			t.Fatal(err)
		}
		c.Until("the new member to have it all", func() bool {
			got := d.Journal().Entries()
			return len(got) > 0 && got[len(got)-1] == "on"
		})
		if got := dedup(d.Journal().Entries()); len(got) != 41 {
			t.Fatalf("%d entries", len(got))
		}
	})
}

func TestRecoveryFileFaults(t *testing.T) {
	dir := t.TempDir()
	o := grouptest.Options{RecoveryDir: func(string) string { return dir }}
	c := grouptest.Start(t, 1, o)
	defer c.Stop()
	c.Apply("x")
	m := c.Member("a")
	m.Crash()
	cases := map[string]struct {
		text string
		want []string
	}{
		"no JSON":       {"a b c", []string{"not a list"}},
		"old format":    {`["10.0.0.1:8300"]`, []string{"not a list"}},
		"unknown field": {`[{"id":"a","address":"h:1","nonvoter":true}]`, []string{"nonvoter"}},
		"two lists":     {`[{"id":"a","address":"h:1"}] []`, []string{"after the list"}},
		"empty":         {`[]`, []string{"no voter", "a, is not among the members"}},
		"all at once": {`[{"id":"","address":"h:1"},{"id":"b","address":"h:1"},{"id":"b","address":"nowhere"},{"id":"d","address":""}]`,
			[]string{"[0].id: is empty", "[1].address: h:1 is that of [0]", "[2].id: b is that of [1]", `"nowhere" is not host:port`,
				"[3].address: is empty", "a, is not among the members"}},
		"no voter": {`[{"id":"a","address":"h:1","non_voter":true}]`, []string{"no voter"}},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, raftgroup.RecoverFile)
			write(t, file, x.text)
			err := m.TryStart()
			if err == nil {
				t.Fatal("started")
			}
			for _, want := range x.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("the refused file: %v", err)
			}
		})
	}
	write(t, filepath.Join(dir, raftgroup.RecoverFile), `[{"id":"a","address":"h:1"}]`)
	fresh := grouptest.New(t, grouptest.Options{RecoveryDir: o.RecoveryDir, KeepSick: true})
	if err := fresh.Make("a").TryStart(); err == nil || !strings.Contains(err.Error(), "no Raft state") {
		t.Errorf("a member without state was recovered: %v", err)
	}
}

func FuzzReadRecoverFile(f *testing.F) {
	f.Add([]byte(`[{"id":"a","address":"h:1"}]`))
	f.Add([]byte(`[{"id":"a","address":"h:1","non_voter":true},{"id":"b","address":"h:2"}]`))
	f.Add([]byte(`["x"]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		path := filepath.Join(t.TempDir(), "peers.json")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		servers, err := raftgroup.ReadRecoverFile(path)
		if err != nil {
			return
		}
		voters := 0
		for _, s := range servers {
			if s.ID == "" || s.Addr == "" {
				t.Fatalf("accepted %+v", servers)
			}
			if s.Voter {
				voters++
			}
		}
		if voters == 0 {
			t.Fatalf("accepted %+v", servers)
		}
	})
}

// TestSnapshotThroughAnArchive moves the state of one mesh to another.
func TestSnapshotThroughAnArchive(t *testing.T) {
	var file bytes.Buffer
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		for i := range 50 {
			c.Apply(fmt.Sprint(i))
		}
		for range 2 { // the second time there are no new entries
			file.Reset()
			meta, state, err := c.Leader().Group().Snapshot(bg)
			if err != nil {
				t.Fatal(err)
			}
			if err := archive.Write(&file, archive.Meta{Index: meta.Index, Term: meta.Term, Size: meta.Size, SnapshotVersion: int(meta.Version)},
				state); err != nil {
				t.Fatal(err)
			}
			if err := state.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	var state bytes.Buffer
	meta, err := archive.Read(&file, &state, 0)
	if err != nil {
		t.Fatal(err)
	}
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		c.Apply("forgotten")
		lead := c.Leader()
		m := &raft.SnapshotMeta{Version: raft.SnapshotVersion(meta.SnapshotVersion), Index: meta.Index, Term: meta.Term, Size: meta.Size}
		if err := lead.Group().Restore(bg, m, bytes.NewReader(state.Bytes())); err != nil {
			t.Fatal(err)
		}
		c.Apply("after")
		got := c.Agree()
		if len(got) != 51 || got[0] != "0" || got[50] != "after" {
			t.Fatalf("agreed on %v", got)
		}
		at, err := lead.Group().ReadIndex(bg)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range c.Members() {
			if err := m.Group().WaitApplied(bg, at); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Member(others(c, lead.ID)[0]).Group().Restore(bg, m, nil); !errors.Is(err, raftgroup.ErrNotLeader) {
			t.Fatalf("restored on a follower: %v", err)
		}
	})
}

// batching is a state machine that takes entries in batches.
type batching struct {
	grouptest.Journal
	configs int
}

func (b *batching) ApplyBatch(logs []*raft.Log) []any {
	out := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogConfiguration {
			b.configs++
			continue
		}
		out[i] = b.Apply(l)
	}
	return out
}

func TestBatchingStateMachine(t *testing.T) {
	o := grouptest.Options{FSM: func(string) raft.FSM { return &batching{} }}
	box(t, 3, o, func(t *testing.T, c *grouptest.Cluster) {
		lead := c.Leader().Group()
		var futures []raftgroup.Future
		for i := range 100 {
			futures = append(futures, lead.Apply([]byte(fmt.Sprint(i))))
		}
		for i, f := range futures {
			if err := f.Err(); err != nil || f.Response() != i+1 {
				t.Fatalf("entry %d: %v, %v", i, f.Response(), err)
			}
		}
		at, err := lead.ReadIndex(bg)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range c.Members() {
			if err := m.Group().WaitApplied(bg, at); err != nil {
				t.Fatal(err)
			}
			if got := len(m.FSM().(*batching).Entries()); got != 100 {
				t.Fatalf("%s: %d", m.ID, got)
			}
			if servers, at := m.Group().ServersAt(); at == 0 || len(servers) != 3 {
				t.Fatalf("%s knows %v at %d", m.ID, servers, at)
			}
		}
	})
}

// keen is a state machine that records the indexes of the configurations that it receives.
type keen struct {
	grouptest.Journal
	seen []uint64
}

func (k *keen) StoreConfiguration(index uint64, _ raft.Configuration) { k.seen = append(k.seen, index) }

func TestStateMachineIsToldOfConfigurations(t *testing.T) {
	box(t, 1, grouptest.Options{FSM: func(string) raft.FSM { return &keen{} }}, func(t *testing.T, c *grouptest.Cluster) {
		lead := c.Leader()
		d := c.Add("d")
		if err := lead.Group().AddNonvoter(bg, d.ID, d.Addr, 0); err != nil {
			t.Fatal(err)
		}
		if err := lead.Group().Barrier(bg); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := lead.FSM().(*keen).seen; len(got) != 2 || !slices.IsSorted(got) {
			t.Fatalf("told of %v", got)
		}
	})
}
