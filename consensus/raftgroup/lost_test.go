package raftgroup_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/testing/doubles/flip"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// TestLostLogElectsNoLeader lets one of two members that hold the last entries lose its log while the
// other is down. It would be enough to elect the third, which lacks the entries.
func TestLostLogElectsNoLeader(t *testing.T) {
	onFiles(t, func(t *testing.T, _ logstore.Kind, dir string, o grouptest.Options) {
		c := grouptest.Start(t, 3, o)
		defer c.Stop()
		c.Apply("early")
		c.Agree()
		lead := c.Leader()
		rest := others(c, lead.ID)
		lost, behind := c.Member(rest[0]), c.Member(rest[1])
		behind.Crash()
		for i := range 5 {
			c.Apply(fmt.Sprint(i))
		}
		lost.Crash()
		lead.Crash()
		if err := os.RemoveAll(filepath.Join(dir, lost.ID)); err != nil {
			t.Fatal(err)
		}
		lost.Start()
		behind.Start()
		// It stands for election in a new term, and the other one learns of that term when it is asked.
		term := lost.Group().Term()
		c.Until("the member that is behind to ask for a vote", func() bool {
			if lost.Group().Term() > term {
				return true
			}
			if err := behind.Group().Campaign(); err != nil {
				t.Error(err)
			}
			return false
		})
		lead.Start()
		c.Apply("late")
		if got := dedup(c.Agree()); len(got) != 7 {
			t.Fatalf("acknowledged entries are lost: %q", got)
		}
		// It has its entries again, so it votes, and may lead.
		c.Until("the member to lead", func() bool {
			l := c.Leader()
			return l == lost || l.Group().Transfer(bg, lost.ID) == nil && lost.Group().IsLeader()
		})
	})
}

// TestSnapshotReplacesLostLog lets a member lose its log, which the leader replaces by a snapshot alone. The
// member has all entries again, so it votes before there is another entry.
func TestSnapshotReplacesLostLog(t *testing.T) {
	onFiles(t, func(t *testing.T, _ logstore.Kind, dir string, o grouptest.Options) {
		o.Timing.TrailingLogs = 1
		var mu sync.Mutex
		newest := map[string]*logstore.Stores{}
		open := o.Stores
		o.Stores = func(id string, wrap func(raft.LogStore, raft.StableStore) (raft.LogStore, raft.StableStore)) (*logstore.Stores, error) {
			s, err := open(id, wrap)
			mu.Lock()
			defer mu.Unlock()
			newest[id] = s
			return s, err
		}
		c := grouptest.Start(t, 3, o)
		defer c.Stop()
		for i := range 5 {
			c.Apply(fmt.Sprint(i))
		}
		c.Agree()
		lead := c.Leader()
		lost := c.Member(others(c, lead.ID)[0])
		lost.Crash()
		if err := os.RemoveAll(filepath.Join(dir, lost.ID)); err != nil {
			t.Fatal(err)
		}
		if err := lead.Group().Library().Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		lost.Start()
		mu.Lock()
		guard := newest[lost.ID].Guard()
		mu.Unlock()
		c.Until("the member to vote again", func() bool { return !guard.Abstains() })
	})
}

// TestDamagedFilesArePutAside damages one member's files while all are down. The others go on. The member
// does not start, its files are put aside, and it gets the state again.
func TestDamagedFilesArePutAside(t *testing.T) {
	const text = "an entry that will be damaged"
	for what, damage := range map[string]func(t *testing.T, dir string){
		"entry": func(t *testing.T, dir string) { flip.Find(t, dir, text).Flip(t, 3) },
		"snapshots": func(t *testing.T, dir string) {
			each(t, filepath.Join(dir, "snapshots", "*", "state.bin"), func(path string) error { return os.Truncate(path, 1) })
		},
		"no snapshots": func(t *testing.T, dir string) {
			each(t, filepath.Join(dir, "snapshots", "*"), os.RemoveAll)
		},
		"database": func(t *testing.T, dir string) {
			garble := func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("garbage "), 4<<10), 0o600) }
			each(t, filepath.Join(dir, "raft.db"), garble)
			each(t, filepath.Join(dir, "wal", "wal-meta.db"), garble)
		},
	} {
		t.Run(what, func(t *testing.T) {
			onFiles(t, func(t *testing.T, _ logstore.Kind, dir string, o grouptest.Options) {
				c := grouptest.Start(t, 3, o)
				defer c.Stop()
				for i := range 60 { // more than a snapshot, and a log that begins behind it
					c.Apply(fmt.Sprint(i))
				}
				c.Agree()
				for _, m := range c.Members() {
					g := m.Group()
					if _, rc, err := g.Snapshot(bg); err != nil {
						t.Fatal(err)
					} else if err := rc.Close(); err != nil {
						t.Fatal(err)
					}
				}
				c.Apply(text)
				c.Agree()
				for _, m := range c.Members() {
					m.Crash()
				}
				bad := c.Member("b")
				damage(t, filepath.Join(dir, bad.ID))
				c.Member("a").Start()
				c.Member("c").Start()
				c.Apply("while it is away")
				err := bad.TryStart()
				if !errors.Is(err, logstore.ErrDamaged) {
					t.Fatalf("the damaged member: %v", err)
				}
				if _, err := logstore.PutAside(filepath.Join(dir, bad.ID), err); err != nil {
					t.Fatal(err)
				}
				bad.Start()
				c.Apply("late")
				if got := dedup(c.Agree()); len(got) != 63 {
					t.Fatalf("%d entries", len(got))
				}
			})
		})
	}
}

// each calls do for each file that fits the pattern.
func each(t *testing.T, pattern string, do func(path string) error) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if err := do(p); err != nil {
			t.Fatal(err)
		}
	}
}
