package raftgroup_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/faultystore"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// TestLyingDisks lets the disks of two of five members lie while the members are down: they lose or change what they have
// acknowledged. Each time an honest member that may hold the only other copy is down, too, and comes back later. No
// answered entry is lost, nothing is applied that nobody wrote, no member votes twice in a term, no read misses an
// answered entry, and in the end all members hold the same entries.
//
// COOPR_CHAOS_SEEDS sets how many lives are lived, COOPR_CHAOS_SEED one of them.
func TestLyingDisks(t *testing.T) {
	eachSeed(t, 20, 3, lying)
}

func lying(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	votes := &ballots{t: t, given: map[ballot]string{}, last: map[string]uint64{}, members: map[string]*raft.InmemTransport{}}
	disks := map[string]*faultystore.Lying{}
	var c *grouptest.Cluster
	open := func(id string, wrap func(raft.LogStore, raft.StableStore) (raft.LogStore, raft.StableStore)) (*logstore.Stores, error) {
		switch d := disks[id]; {
		case d == nil:
			disks[id] = faultystore.NewLying()
		case errors.Is(c.Member(id).Sick(), logstore.ErrDamaged):
			d.Empty()
		}
		d := disks[id]
		return logstore.FromParts(d, d, d.Snapshots(), logstore.Options{CacheEntries: 4, Wrap: wrap, Watermark: d})
	}
	timing := raftgroup.Timing{SnapshotThreshold: 50, SnapshotInterval: 200 * time.Millisecond, TrailingLogs: 20}
	c = grouptest.Start(t, 5, grouptest.Options{Timing: timing, Stores: open, Transport: votes.count})
	defer c.Stop()
	start := func(members ...*grouptest.Member) {
		for _, m := range members {
			c.Until(m.ID+" to start", func() bool {
				if m.Up() {
					return true
				}
				err := m.TryStart()
				if errors.Is(err, logstore.ErrDamaged) {
					disks[m.ID].Empty()
				}
				return err == nil
			})
		}
	}
	var book ledger
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	stop := func() { cancel(); all.Wait() }
	defer stop()
	for w := range 3 {
		all.Go(func() { writer(ctx, c, &book, w) })
	}
	all.Go(func() { reader(ctx, t, c, &book) })

	pause := func() { time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond) }
	members := c.Members()
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	liars := members[:2]
	for range 6 {
		honest := members[2:]
		r.Shuffle(len(honest), func(i, j int) { honest[i], honest[j] = honest[j], honest[i] })
		witness := honest[0]
		if r.IntN(3) > 0 {
			c.Partition([]string{liars[0].ID, liars[1].ID, witness.ID}, []string{honest[1].ID, honest[2].ID})
		}
		pause()
		witness.Crash()
		for _, m := range liars {
			m.Crash()
			if r.IntN(4) > 0 {
				t.Logf("%s: %s", m.ID, disks[m.ID].Lie(r))
			}
		}
		c.Partition() // each alone
		start(liars...)
		for _, m := range liars {
			votes.askAgain(m, members)
		}
		c.Heal()
		pause()
		start(witness)
		pause()
		start(members...)
	}
	stop()
	has := map[string]bool{}
	c.Until("all members to be up and to agree", func() bool {
		start(members...)
		c.Apply("end")
		for _, e := range c.Agree() {
			has[e] = true
		}
		return !slices.ContainsFunc(members, func(m *grouptest.Member) bool { return !m.Up() })
	})
	for e := range has {
		var w, i int
		if _, err := fmt.Sscanf(e, "%d/%d", &w, &i); e != "end" && (err != nil || e != fmt.Sprint(w, "/", i)) {
			t.Errorf("%q was applied, and nobody wrote it", e)
		}
	}
	for _, e := range book.answered {
		if !has[e] {
			t.Errorf("%s was answered and is lost", e)
		}
	}
	if len(book.answered) < 100 {
		t.Errorf("only %d answered: this life was too quiet", len(book.answered))
	}
}

// ballot is a member's vote in a term.
type ballot struct {
	voter string
	term  uint64
}

// ballots holds the votes that the members have given to others.
type ballots struct {
	t       *testing.T
	mu      sync.Mutex
	given   map[ballot]string // the address of the candidate
	last    map[string]uint64 // the last term in which a member has given a vote
	members map[string]*raft.InmemTransport
}

// count wraps a member's transport with one that notes the votes that the member gets.
func (b *ballots) count(id string, t *raft.InmemTransport) raft.Transport {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.members[id] = t
	return counted{t, b}
}

type counted struct {
	*raft.InmemTransport
	b *ballots
}

func (c counted) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	err := c.InmemTransport.RequestVote(id, to, req, resp)
	if err != nil || !resp.Granted {
		return err
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	vote, candidate := ballot{string(id), req.Term}, string(req.Addr)
	if first := c.b.given[vote]; first != "" && first != candidate {
		c.b.t.Errorf("%s votes for %s and for %s in term %d", id, first, candidate, req.Term)
	}
	c.b.given[vote] = candidate
	c.b.last[vote.voter] = max(c.b.last[vote.voter], req.Term)
	return nil
}

// askAgain asks a member that hears nobody else for its vote in the last term in which it has given one, for every member.
func (b *ballots) askAgain(m *grouptest.Member, candidates []*grouptest.Member) {
	b.mu.Lock()
	term := b.last[m.ID]
	_, asking := raft.NewInmemTransport("")
	asking.Connect(raft.ServerAddress(m.Addr), b.members[m.ID])
	b.mu.Unlock()
	for _, x := range candidates {
		if x == m || term == 0 {
			continue
		}
		req := &raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(x.ID), Addr: []byte(x.Addr)},
			Term:      term, LastLogIndex: 1 << 40, LastLogTerm: 1 << 40,
		}
		err := counted{asking, b}.RequestVote(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), req, &raft.RequestVoteResponse{})
		if err != nil {
			b.t.Logf("%s does not answer: %v", m.ID, err)
		}
	}
}
