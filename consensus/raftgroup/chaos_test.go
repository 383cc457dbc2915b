package raftgroup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/faultystore"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// TestChaos writes to and reads from five members while networks are cut, members
// crash, disks hang, fill up and slow down, and leadership is transferred or, with even seeds,
// members are removed and added again. Afterwards no
// answered entry is lost, the entries of each writer are in order, no read missed an entry
// that was answered before it, and all members hold the same entries and the same configuration.
//
// COOPR_CHAOS_SEEDS sets how many lives are lived, COOPR_CHAOS_SEED one of them.
func TestChaos(t *testing.T) {
	lives, unknown := 0, 0
	eachSeed(t, 6, 2, func(t *testing.T, seed uint64) {
		lives++
		unknown += chaos(t, seed)
	})
	// One life in a hundred has no write of unknown outcome.
	if lives >= 6 && unknown == 0 {
		t.Errorf("in %d lives no write had an unknown outcome: they were too quiet", lives)
	}
}

// eachSeed runs a life for each seed, each as a subtest in simulated time: as many seeds as COOPR_CHAOS_SEEDS says, or
// else usual ones, or few with -short; or only the seed COOPR_CHAOS_SEED.
func eachSeed(t *testing.T, usual, few int, life func(t *testing.T, seed uint64)) {
	seeds, first := usual, uint64(1)
	if testing.Short() {
		seeds = few
	}
	if n, err := strconv.Atoi(os.Getenv("COOPR_CHAOS_SEEDS")); err == nil {
		seeds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("COOPR_CHAOS_SEED"), 10, 64); err == nil {
		first, seeds = n, 1
	}
	for seed := first; seed < first+uint64(seeds); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { life(t, seed) })
		})
	}
}

// ledger records the outcomes of the writes.
type ledger struct {
	mu       sync.Mutex
	answered []string // committed entries in the order of the answers
	unknown  int
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

// chaos is one life of a group. It returns how many writes had an unknown outcome.
func chaos(t *testing.T, seed uint64) (unknown int) {
	timing := raftgroup.Timing{SnapshotThreshold: 50, SnapshotInterval: 200 * time.Millisecond, TrailingLogs: 20}
	c := grouptest.Start(t, 5, grouptest.Options{Timing: timing})
	defer c.Stop()
	var book ledger
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() { writer(ctx, c, &book, w) })
	}
	for range 2 {
		all.Go(func() { reader(ctx, t, c, &book) })
	}
	r := rand.New(rand.NewPCG(seed, 0))
	for range 40 {
		mishap(c, r, seed%2 == 0)
		time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
	}
	c.Heal()
	for _, m := range c.Members() {
		m.Disk.Heal()
	}
	c.Until("all members to be up", func() bool { return allUp(c) })
	c.Until("all members to vote", func() bool { return allVote(c) })
	stop()
	all.Wait()
	c.Apply("end")
	got := c.Agree()
	c.Until("all members to know the same configuration", func() bool {
		conf := c.Leader().Group().Servers()
		return !slices.ContainsFunc(c.Members(), func(m *grouptest.Member) bool { return !slices.Equal(m.Group().Servers(), conf) })
	})
	place := map[string]int{}
	for i, e := range got {
		if _, ok := place[e]; !ok {
			place[e] = i
		}
	}
	last := map[string]int{}
	for _, e := range book.answered {
		at, ok := place[e]
		if !ok {
			t.Errorf("%s was answered and is lost", e)
		}
		who := e[:1]
		if at < last[who] {
			t.Errorf("%s is out of the order in which its writer wrote", e)
		}
		last[who] = at
	}
	if len(book.answered) < 200 {
		t.Errorf("only %d writes were answered: this life was too quiet", len(book.answered))
	}
	return book.unknown
}

func allUp(c *grouptest.Cluster) bool {
	up := true
	for _, m := range c.Members() {
		if !m.Up() {
			up = false
			_ = m.TryStart() // fails until the stores of its previous run are closed
		}
	}
	return up
}

// allVote reports whether all members vote; if one does not, its vote is asked for.
func allVote(c *grouptest.Cluster) bool {
	for _, m := range c.Members() {
		lead := c.Leader().Group()
		votes := slices.ContainsFunc(lead.Servers(), func(s raftgroup.Server) bool { return s.ID == m.ID && s.Voter })
		if !votes {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = lead.AddVoter(ctx, m.ID, m.Addr, 0) // asked for again by the caller
			cancel()
			return false
		}
	}
	return true
}

// expel removes a member from the group, or restores the vote of one that was removed.
func expel(c *grouptest.Cluster, m *grouptest.Member) {
	for _, x := range c.Members() {
		g := x.Group()
		if g == nil || !g.IsLeader() || x == m {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		servers, index := g.ServersAt()
		// Any error is possible here.
		if slices.ContainsFunc(servers, func(s raftgroup.Server) bool { return s.ID == m.ID }) {
			if len(servers) > 3 {
				_ = g.RemoveAt(ctx, m.ID, index)
			}
		} else {
			_ = g.AddVoter(ctx, m.ID, m.Addr, index)
		}
		return
	}
}

func writer(ctx context.Context, c *grouptest.Cluster, book *ledger, w int) {
	for i := 0; ctx.Err() == nil; i++ {
		entry := fmt.Sprint(w, "/", i)
		for _, m := range c.Members() {
			g := m.Group()
			if g == nil || !g.IsLeader() {
				continue
			}
			wait, cancel := context.WithTimeout(ctx, 5*time.Second)
			err := g.Apply([]byte(entry)).Wait(wait)
			cancel()
			book.mu.Lock()
			if err == nil {
				book.answered = append(book.answered, entry)
			} else if !errors.Is(err, raftgroup.ErrNotLeader) {
				book.unknown++
			}
			book.mu.Unlock()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// reader reads from every member, at a read index and by lease.
func reader(ctx context.Context, t *testing.T, c *grouptest.Cluster, book *ledger) {
	for ctx.Err() == nil {
		for _, m := range c.Members() {
			g := m.Group()
			if g == nil {
				continue
			}
			j, ok := m.FSM().(*grouptest.Journal)
			if !ok {
				continue
			}
			before := book.count()
			wait, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := g.ReadIndex(wait)
			cancel()
			if err == nil {
				seen(t, book, before, j, "at a read index")
			}
			before = book.count()
			if g.HasLease() {
				seen(t, book, before, j, "by lease")
			}
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// seen checks that a state holds the last entries of the first n answered ones, which a stale read
// would miss.
func seen(t *testing.T, book *ledger, n int, j *grouptest.Journal, how string) {
	book.mu.Lock()
	recent := book.answered[max(0, n-20):n]
	book.mu.Unlock()
	for _, e := range recent {
		if !j.Has(e) {
			t.Errorf("a read %s missed %s, answered before it", how, e)
			return
		}
	}
}

// mishap lets something happen. The library leaves goroutines behind when it transfers leadership to a
// member that is removed meanwhile, so one life has transfers or removals (expelling), not both.
func mishap(c *grouptest.Cluster, r *rand.Rand, expelling bool) {
	members := c.Members()
	m := members[r.IntN(len(members))]
	switch r.IntN(10) {
	case 0, 1:
		var a, b []string
		for _, x := range members {
			if r.IntN(2) == 0 {
				a = append(a, x.ID)
			} else {
				b = append(b, x.ID)
			}
		}
		c.Partition(a, b)
	case 2, 3:
		c.Heal()
	case 4:
		m.Crash()
	case 5:
		allUp(c)
	case 6:
		m.Disk.Hang()
	case 7:
		m.Disk.Delay(time.Duration(r.IntN(200)) * time.Millisecond)
	case 8:
		m.Disk.Fail(faultystore.ErrDiskFull)
	case 9:
		if expelling {
			expel(c, m)
			break
		}
		for _, x := range members {
			if g := x.Group(); g != nil && g.IsLeader() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_ = g.Transfer(ctx, "") // any error is possible here
				cancel()
			}
		}
	}
	if r.IntN(2) == 0 {
		members[r.IntN(len(members))].Disk.Heal()
	}
}
