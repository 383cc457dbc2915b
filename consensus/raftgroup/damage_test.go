package raftgroup_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// spoiled is a log on a disk that changes an entry's data when it is read.
type spoiled struct {
	raft.LogStore
	word *atomic.Value // entries with this word in their data are changed
}

func (s spoiled) GetLog(index uint64, l *raft.Log) error {
	if err := s.LogStore.GetLog(index, l); err != nil {
		return err
	}
	if w, _ := s.word.Load().(string); w != "" && strings.Contains(string(l.Data), w) {
		l.Data = []byte("a wrong entry")
	}
	return nil
}

func (s spoiled) IsMonotonic() bool { return false }

// overSpoiled returns options for a group of three whose members have spoiled logs. For each member it also
// returns the word whose entries the log changes; no entry is changed while the word is "".
func overSpoiled() (grouptest.Options, map[string]*atomic.Value) {
	words := map[string]*atomic.Value{}
	logs := map[string]*raft.InmemStore{}
	snaps := map[string]raft.SnapshotStore{}
	for _, id := range []string{"a", "b", "c"} {
		logs[id], snaps[id], words[id] = raft.NewInmemStore(), logstore.NewMemorySnapshots(2), new(atomic.Value)
	}
	open := func(id string, wrap func(raft.LogStore, raft.StableStore) (raft.LogStore, raft.StableStore)) (*logstore.Stores, error) {
		return logstore.FromParts(spoiled{logs[id], words[id]}, logs[id], snaps[id], logstore.Options{CacheEntries: 1, Wrap: wrap})
	}
	return grouptest.Options{Stores: open}, words
}

// TestDamagedEntryIsNotApplied restarts everything over logs of which one is damaged. That member is
// stopped with the entry's index, nothing wrong is applied, and the others go on.
func TestDamagedEntryIsNotApplied(t *testing.T) {
	for _, bad := range []string{"a", "b", "c"} { // one of them leads
		t.Run(bad, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, words := overSpoiled()
				c := grouptest.Start(t, 3, o)
				defer c.Stop()
				for i := range 5 {
					c.Apply(fmt.Sprint("early ", i))
				}
				c.Apply("the damaged one")
				for i := range 5 {
					c.Apply(fmt.Sprint("late ", i))
				}
				c.Agree()
				for _, m := range c.Members() {
					m.Crash()
				}
				words[bad].Store("damaged")
				var fault error
				for _, m := range c.Members() {
					if err := m.TryStart(); err != nil {
						fault = errors.Join(fault, err)
					}
				}
				if !errors.Is(fault, logstore.ErrDamaged) || !strings.Contains(fault.Error(), "start Raft member "+bad) ||
					!strings.Contains(fault.Error(), ": entry ") {
					t.Fatalf("the damaged member started: %v", fault)
				}
				c.Apply("last")
				for _, e := range c.Agree() {
					if strings.Contains(e, "wrong") {
						t.Fatalf("applied: %s", e)
					}
				}
				words[bad].Store("")
				c.Member(bad).Start()
				if got := dedup(c.Agree()); len(got) != 12 {
					t.Fatalf("%d entries", len(got))
				}
			})
		})
	}
}

// TestDamagedLastEntry starts a member whose last entry is damaged. The error says that the log is damaged, so that the
// log is put aside.
func TestDamagedLastEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, words := overSpoiled()
		c := grouptest.Start(t, 1, o)
		defer c.Stop()
		c.Apply("the damaged one")
		a := c.Member("a")
		a.Crash()
		words["a"].Store("damaged")
		if err := a.TryStart(); !errors.Is(err, logstore.ErrDamaged) || !errors.Is(err, raftgroup.ErrUnusable) {
			t.Fatalf("the damaged member: %v", err)
		}
	})
}

// TestDamageIsFoundInTheLeadersLog lets a leader read a damaged entry to send it to a member that was
// away. The leader sends nothing wrong, stops, and another leads.
func TestDamageIsFoundInTheLeadersLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, words := overSpoiled()
		c := grouptest.Start(t, 3, o)
		defer c.Stop()
		c.Apply("early")
		c.Agree()
		lead := c.Leader()
		away := c.Member(others(c, lead.ID)[0])
		away.Crash()
		c.Apply("the damaged one")
		c.Apply("late")
		words[lead.ID].Store("damaged")
		away.Start()
		c.Until("the leader to stop", func() bool { return !lead.Up() })
		if err := lead.Sick(); !errors.Is(err, logstore.ErrDamaged) {
			t.Fatal(err)
		}
		c.Apply("last")
		if got := dedup(c.Agree()); len(got) != 4 || got[1] != "the damaged one" {
			t.Fatalf("%q", got)
		}
	})
}
