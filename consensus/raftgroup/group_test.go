package raftgroup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/faultystore"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// box runs a test over a group of n members in simulated time.
func box(t *testing.T, n int, o grouptest.Options, f func(t *testing.T, c *grouptest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := grouptest.Start(t, n, o)
		defer c.Stop()
		f(t, c)
	})
}

func others(c *grouptest.Cluster, not string) []string {
	var ids []string
	for _, m := range c.Members() {
		if m.ID != not {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func TestElectApplyAgree(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			box(t, n, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
				lead := c.Leader().Group()
				for i := range 20 {
					f := lead.Apply([]byte(fmt.Sprint(i)))
					if err := f.Err(); err != nil {
						t.Fatal(err)
					}
					if f.Response() != i+1 {
						t.Fatalf("answer %v to entry %d", f.Response(), i)
					}
					if lead.AppliedIndex() < f.Index() {
						t.Fatalf("applied %d after the answer to %d", lead.AppliedIndex(), f.Index())
					}
				}
				if got := c.Agree(); len(got) != 20 || got[19] != "19" {
					t.Fatalf("agreed on %v", got)
				}
			})
		})
	}
}

func TestFollowerRefusesWithTheLeadersName(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		lead := c.Leader()
		for _, id := range others(c, lead.ID) {
			m := c.Member(id)
			c.Until("the follower to know its leader", func() bool {
				l, _ := m.Group().Leader()
				return l == lead.ID
			})
			err := m.Group().Apply([]byte("x")).Err()
			var not *raftgroup.NotLeaderError
			if !errors.As(err, &not) || !errors.Is(err, raftgroup.ErrNotLeader) {
				t.Fatalf("got %v", err)
			}
			if not.LeaderID != lead.ID || not.LeaderAddr != lead.Addr {
				t.Fatalf("points at %+v, the leader is %s", not, lead.ID)
			}
			if _, err := m.Group().ReadIndex(bg); !errors.Is(err, raftgroup.ErrNotLeader) {
				t.Fatalf("a follower's read index: %v", err)
			}
			if err := m.Group().Transfer(bg, ""); !errors.Is(err, raftgroup.ErrNotLeader) {
				t.Fatalf("a follower's transfer: %v", err)
			}
		}
	})
}

func TestPartitionedLeaderStepsDownAndItsEntryIsOfUnknownOutcome(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		c.Apply("before")
		old := c.Leader()
		rest := others(c, old.ID)
		c.Partition([]string{old.ID}, rest)
		lost := old.Group().Apply([]byte("lost"))
		if err := lost.Err(); !errors.Is(err, raftgroup.ErrUnknownOutcome) {
			t.Fatalf("an entry under way in a cut-off leader ends with %v", err)
		}
		next := c.LeaderAmong(rest...)
		if err := next.Group().Apply([]byte("after")).Err(); err != nil {
			t.Fatal(err)
		}
		if old.Group().IsLeader() {
			t.Fatal("the cut-off leader still leads")
		}
		c.Heal()
		if got := c.Agree(); !slices.Equal(got, []string{"before", "after"}) {
			t.Fatalf("agreed on %v", got)
		}
	})
}

func TestCrashAndRestartOfEveryone(t *testing.T) {
	timing := raftgroup.Timing{SnapshotThreshold: 20, SnapshotInterval: 50 * time.Millisecond, TrailingLogs: 5}
	box(t, 3, grouptest.Options{Timing: timing}, func(t *testing.T, c *grouptest.Cluster) {
		want := 0
		for round := range 6 {
			for range 15 {
				c.Apply(fmt.Sprint(want))
				want++
			}
			victim := c.Members()[round%3]
			victim.Crash()
			c.Apply(fmt.Sprint(want))
			want++
			victim.Start()
		}
		for _, m := range c.Members() {
			m.Crash()
		}
		for _, m := range c.Members() {
			m.Start()
		}
		c.Apply("end")
		got := dedup(c.Agree())
		if len(got) != want+1 || got[want] != "end" || got[0] != "0" {
			t.Fatalf("%d entries, expected %d: %v", len(got), want+1, got)
		}
	})
}

func dedup(in []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range in {
		if !seen[s] {
			out = append(out, s)
		}
		seen[s] = true
	}
	return out
}

// TestHangingDisk tests raft issue 503: without the guard no working leader is ever
// elected.
func TestHangingDisk(t *testing.T) {
	for _, heal := range []bool{false, true} {
		t.Run(fmt.Sprintf("heals=%v", heal), func(t *testing.T) {
			box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
				c.Apply("before")
				sick := c.Leader()
				rest := others(c, sick.ID)
				sick.Disk.Hang()
				if err := sick.Group().Apply([]byte("hangs")).Err(); !errors.Is(err, raftgroup.ErrUnknownOutcome) ||
					!errors.Is(err, logstore.ErrStuck) {
					t.Fatalf("an entry on a hanging disk ends with %v", err)
				}
				next := c.LeaderAmong(rest...)
				if err := next.Group().Apply([]byte("after")).Err(); err != nil {
					t.Fatal(err)
				}
				if heal {
					sick.Disk.Heal()
					c.Until("the member to be well again", func() bool {
						g := sick.Group()
						return g != nil && g.Stats().StoreError == ""
					})
					if got := c.Agree(); !slices.Equal(got, []string{"before", "after"}) {
						t.Fatalf("agreed on %v", got)
					}
					if sick.Sick() != nil {
						t.Fatalf("a short hang ended the member: %v", sick.Sick())
					}
					return
				}
				c.Until("the sick member to stop", func() bool { return !sick.Up() })
				if err := sick.Sick(); !errors.Is(err, logstore.ErrSick) || !errors.Is(err, logstore.ErrStuck) {
					t.Fatalf("it complained of %v", err)
				}
				sick.Disk.Heal()
				sick.Start()
				c.Apply("well")
				if got := dedup(c.Agree()); !slices.Equal(got, []string{"before", "after", "well"}) {
					t.Fatalf("agreed on %v", got)
				}
			})
		})
	}
}

func TestFullDiskStopsTheMemberNotTheAgent(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			box(t, n, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
				c.Apply("before")
				m := c.Leader()
				m.Disk.Fail(faultystore.ErrDiskFull)
				if err := m.Group().Apply([]byte("x")).Err(); !errors.Is(err, logstore.ErrDiskFull) {
					t.Fatalf("an entry on a full disk ends with %v", err)
				}
				// An election stores a term, and the library panics when it cannot
				// store one. The code after the wait runs only if it did not panic.
				c.Until("the member to stop", func() bool { return !m.Up() })
				if err := m.Sick(); !errors.Is(err, logstore.ErrDiskFull) {
					t.Fatalf("it complained of %v", err)
				}
				m.Disk.Heal()
				m.Start()
				c.Apply("after")
				if got := dedup(c.Agree()); got[0] != "before" || got[len(got)-1] != "after" {
					t.Fatalf("agreed on %v", got)
				}
			})
		})
	}
}

func TestShortFullDiskIsSurvived(t *testing.T) {
	box(t, 1, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		m := c.Leader()
		m.Disk.Fail(faultystore.ErrDiskFull)
		if err := m.Group().Apply([]byte("x")).Err(); err == nil {
			t.Fatal("written to a full disk")
		}
		<-time.After(time.Second)
		m.Disk.Heal()
		c.Apply("after")
		if m.Sick() != nil {
			t.Fatalf("complained of %v", m.Sick())
		}
	})
}

func TestLeadershipMissesNothing(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		type log struct {
			all  []raftgroup.LeadershipChange
			done chan struct{}
		}
		logs := map[string]*log{}
		// One reader does not read until the end, to show that no other reader waits for it.
		lazy := c.Members()[0].Group().Leadership(bg)
		for _, m := range c.Members() {
			l := &log{done: make(chan struct{})}
			logs[m.ID] = l
			ch := m.Group().Leadership(bg)
			go func() {
				defer close(l.done)
				for x := range ch {
					l.all = append(l.all, x)
				}
			}()
		}
		for range 12 {
			lead := c.Leader()
			if err := lead.Group().Transfer(bg, ""); err != nil {
				t.Fatal(err)
			}
		}
		last := c.Leader()
		id := c.Members()[0].ID
		c.Stop()
		var lazyLog []raftgroup.LeadershipChange
		for x := range lazy {
			lazyLog = append(lazyLog, x)
		}
		terms := map[uint64]string{}
		gained := 0
		for who, l := range logs {
			<-l.done
			var before uint64
			for i, x := range l.all {
				if x.Leader != (i%2 == 0) {
					t.Fatalf("%s: change %d out of turn: %v", who, i, l.all)
				}
				if x.Leader {
					gained++
					if x.Term <= before {
						t.Fatalf("%s: terms do not rise: %v", who, l.all)
					}
					if by, ok := terms[x.Term]; ok {
						t.Fatalf("term %d led by %s and %s", x.Term, by, who)
					}
					terms[x.Term] = who
				} else if x.Term != before {
					t.Fatalf("%s: lost another term than it gained: %v", who, l.all)
				}
				before = x.Term
			}
			if len(l.all)%2 != 0 {
				t.Fatalf("%s: gained without a loss at the end: %v", who, l.all)
			}
		}
		if gained < 13 {
			t.Fatalf("13 leaderships, %d seen (the last leader was %s)", gained, last.ID)
		}
		if !slices.Equal(lazyLog, logs[id].all) {
			t.Fatalf("the lazy reader saw %v, the other %v", lazyLog, logs[id].all)
		}
	})
}

func TestLateSubscriberHearsOfThePresentLeadership(t *testing.T) {
	box(t, 1, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		g := c.Leader().Group()
		ctx, cancel := context.WithCancel(bg)
		ch := g.Leadership(ctx)
		if x := <-ch; !x.Leader || x.Term != g.Term() {
			t.Fatalf("heard %+v in term %d", x, g.Term())
		}
		cancel()
		if x, ok := <-ch; ok {
			t.Fatalf("heard %+v after the end", x)
		}
	})
}

func TestTransfer(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		old := c.Leader()
		to := others(c, old.ID)[1]
		changed := old.Group().LeaderChanged()
		if err := old.Group().Transfer(bg, to); err != nil {
			t.Fatal(err)
		}
		<-changed
		if now := c.Leader(); now.ID != to {
			t.Fatalf("transferred to %s, but %s leads", to, now.ID)
		}
		if err := c.Member(to).Group().Transfer(bg, "nobody"); !errors.Is(err, raftgroup.ErrNoPeer) {
			t.Fatalf("transfer to nobody: %v", err)
		}
	})
	box(t, 1, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		if err := c.Leader().Group().Transfer(bg, ""); !errors.Is(err, raftgroup.ErrNoPeer) {
			t.Fatalf("transfer without a peer: %v", err)
		}
	})
}

func TestFailedTransferLeavesAWorkingGroup(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		lead := c.Leader()
		ids := others(c, lead.ID)
		// The target is cut off and the third member is not, so the leader keeps its majority.
		c.Partition([]string{lead.ID, ids[0]}, []string{ids[1]})
		if err := lead.Group().Transfer(bg, ids[1]); err == nil {
			t.Fatal("transferred to a member that is cut off")
		}
		c.Heal()
		c.Apply("after")
		for _, m := range c.Members() {
			if m.Sick() != nil {
				t.Fatalf("%s complained of %v", m.ID, m.Sick())
			}
		}
	})
}

func TestReadIndex(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		for i := range 10 {
			f := c.Leader().Group().Apply([]byte(fmt.Sprint(i)))
			if f.Err() != nil {
				t.Fatal(f.Err())
			}
			lead := c.Leader()
			at, err := lead.Group().ReadIndex(bg)
			if err != nil {
				t.Fatal(err)
			}
			if at < f.Index() {
				t.Fatalf("read index %d is behind the answered %d", at, f.Index())
			}
			for _, m := range c.Members() {
				if err := m.Group().WaitApplied(bg, at); err != nil {
					t.Fatal(err)
				}
				if got := m.Journal().Entries(); len(got) < i+1 {
					t.Fatalf("%s shows %v at index %d", m.ID, got, at)
				}
			}
			if i%3 == 2 {
				if err := lead.Group().Transfer(bg, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		// A leader that is cut off must not answer, even if it has not noticed the cut yet and
		// answers to earlier heartbeats still arrive.
		old := c.Leader()
		if !old.Group().HasLease() {
			t.Fatal("a leader that has just committed has no lease")
		}
		c.Partition([]string{old.ID}, others(c, old.ID))
		if at, err := old.Group().ReadIndex(bg); !errors.Is(err, raftgroup.ErrNotLeader) {
			t.Fatalf("a cut-off leader read at %d: %v", at, err)
		}
		if old.Group().HasLease() {
			t.Fatal("a leader that was deposed has a lease")
		}
	})
}

func TestWaitAppliedHonoursItsContext(t *testing.T) {
	box(t, 1, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		g := c.Leader().Group()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := g.WaitApplied(ctx, 1<<40); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

func TestEmptyMemberWaitsAndIsAdded(t *testing.T) {
	box(t, 1, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		for i := range 30 {
			c.Apply(fmt.Sprint(i))
		}
		if _, rc, err := c.Leader().Group().Snapshot(bg); err != nil {
			t.Fatal(err)
		} else if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
		d := c.Add("d")
		<-time.After(time.Minute) // of simulated time: the member must stay inactive
		if d.Group().Term() != 0 || d.Group().Member() {
			t.Fatalf("an empty member stirred: %+v", d.Group().Stats())
		}
		lead := c.Leader().Group()
		_, at := lead.ServersAt()
		if err := lead.AddNonvoter(bg, d.ID, d.Addr, at); err != nil {
			t.Fatal(err)
		}
		if err := lead.AddVoter(bg, d.ID, d.Addr, at); !errors.Is(err, raftgroup.ErrChanged) {
			t.Fatalf("a change tied to an old configuration: %v", err)
		}
		c.Until("the new member to catch up", func() bool {
			return lead.Progress(d.ID).LastIndex >= lead.Stats().LastIndex
		})
		_, at = lead.ServersAt()
		if err := lead.AddVoter(bg, d.ID, d.Addr, at); err != nil {
			t.Fatal(err)
		}
		if got := c.Agree(); len(got) != 30 {
			t.Fatalf("agreed on %v", got)
		}
		if err := lead.Demote(bg, d.ID, 0); err != nil {
			t.Fatal(err)
		}
		if err := lead.Remove(bg, d.ID); err != nil {
			t.Fatal(err)
		}
		if s := lead.Servers(); len(s) != 1 || !s[0].Voter {
			t.Fatalf("left with %+v", s)
		}
		<-time.After(time.Minute)
		c.Apply("undisturbed")
	})
}

func TestLeaderIsAskedToRemoveItself(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		old := c.Leader()
		if err := old.Group().Remove(bg, old.ID); !errors.Is(err, raftgroup.ErrTransferring) {
			t.Fatalf("got %v", err)
		}
		next := c.LeaderAmong(others(c, old.ID)...)
		if err := next.Group().Demote(bg, old.ID, 0); err != nil {
			t.Fatal(err)
		}
		if err := old.Group().WaitNoVote(bg); err != nil {
			t.Fatal(err)
		}
		if err := next.Group().Remove(bg, old.ID); err != nil {
			t.Fatal(err)
		}
		old.Crash()
		c.Apply("after")
	})
}

func TestMovedMemberIsReachedAtItsNewAddress(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		c.Apply("before")
		lead := c.Leader()
		m := c.Member(others(c, lead.ID)[0])
		m.Crash()
		// The library reads the old address without its lock when a pipeline to
		// the member breaks, so let that happen first. (Simulated time.)
		c.Apply("meanwhile")
		<-time.After(5 * time.Second)
		m.Addr = "moved"
		m.Start()
		if err := lead.Group().AddVoter(bg, m.ID, m.Addr, 0); err != nil {
			t.Fatal(err)
		}
		c.Apply("after")
		if got := dedup(c.Agree()); len(got) != 3 {
			t.Fatalf("agreed on %v", got)
		}
		if n := len(lead.Group().Servers()); n != 3 {
			t.Fatalf("%d servers", n)
		}
	})
}

func TestShutdownAnswersEverything(t *testing.T) {
	box(t, 3, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		lead := c.Leader()
		g := lead.Group()
		lead.Disk.Delay(40 * time.Millisecond)
		var futures []raftgroup.Future
		for i := range 200 {
			futures = append(futures, g.Apply([]byte(fmt.Sprint(i))))
		}
		lead.Crash()
		for i, f := range futures {
			if err := f.Err(); err != nil && !errors.Is(err, raftgroup.ErrUnknownOutcome) &&
				!errors.Is(err, raftgroup.ErrNotLeader) && !errors.Is(err, raftgroup.ErrShutdown) {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
		if err := g.Apply(nil).Err(); !errors.Is(err, raftgroup.ErrShutdown) {
			t.Fatalf("an entry after the end: %v", err)
		}
		if err := g.Shutdown(bg); err != nil {
			t.Fatal(err)
		}
		if _, err := g.ReadIndex(bg); err == nil {
			t.Fatal("a read after the end")
		}
	})
}

func TestBootstrapOnce(t *testing.T) {
	box(t, 1, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		m := c.Leader()
		err := m.Group().Bootstrap(bg, []raftgroup.Server{{ID: m.ID, Addr: m.Addr, Voter: true}})
		if !errors.Is(err, raftgroup.ErrHasState) {
			t.Fatal(err)
		}
	})
}

// TestCampaign: a member that has just started a group is elected without waiting for a silence, which
// would last an hour here.
func TestCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := grouptest.Start(t, 3, grouptest.Options{Timing: raftgroup.Timing{HeartbeatTimeout: time.Hour}})
		defer c.Stop()
		begin := time.Now()
		m := c.Members()[1]
		if err := m.Group().Campaign(); err != nil {
			t.Fatal(err)
		}
		if l := c.Leader(); l != m || time.Since(begin) > time.Minute {
			t.Errorf("%s leads after %s", l.ID, time.Since(begin))
		}
		synctest.Wait() // a stop waits for questions that are not answered yet, here for hours
	})
}

func TestConfigFaultsAllAtOnce(t *testing.T) {
	_, err := raftgroup.New(raftgroup.Config{Timing: raftgroup.Timing{LeaderLeaseTimeout: time.Hour, MaxAppendEntries: 5000}})
	for _, want := range []string{"ID", "FSM", "Transport", "Stores", "leader_lease_timeout", "max_append_entries"} {
		if err == nil || !containsText(err, want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}
