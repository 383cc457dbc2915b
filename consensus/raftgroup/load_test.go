package raftgroup_test

import (
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// processor simulates a member's share of its machine's processor. From time to time there is a
// burst of other work. During a burst the member runs for about a millisecond, then waits for
// its turn, and so gets 5% of the time.
type processor struct {
	mu     sync.Mutex
	rng    *rand.Rand
	burst  time.Time // end of the burst
	begin  time.Time // begin of the current or next wait
	end    time.Time // end of that wait
	loaded func() load
}

// load is the other work of the machine.
type load struct {
	longest  time.Duration // longest wait for a turn
	calm     time.Duration // average time between bursts
	bursting time.Duration // average length of a burst
}

// share is the share of the processor time in a burst.
const share = .05

// bursts is a load that the usual time-outs bridge. From waits of 80 ms on, they cause elections.
var bursts = load{longest: 50 * time.Millisecond, calm: 20 * time.Second, bursting: 5 * time.Second}

// wait returns when the member has the processor.
func (p *processor) wait() {
	p.mu.Lock()
	now := time.Now()
	for p.end.Before(now) {
		p.next(now)
	}
	var pause time.Duration
	if now.After(p.begin) {
		pause = p.end.Sub(now)
	}
	p.mu.Unlock()
	time.Sleep(pause)
}

// next draws the next wait. mu is held.
func (p *processor) next(now time.Time) {
	l := p.loaded()
	exp := func(mean time.Duration) time.Duration { return time.Duration(p.rng.ExpFloat64() * float64(mean)) }
	if !p.end.Before(p.burst) {
		p.end = p.end.Add(exp(l.calm))
		p.burst = p.end.Add(exp(l.bursting))
	}
	wait := min(exp(l.longest/3), l.longest)
	run := time.Duration(float64(wait) * share / (1 - share))
	p.begin = p.end.Add(run)
	p.end = p.begin.Add(wait)
}

// starved is the transport of a member that must wait for its processor before
// it sends a message and before it receives one.
type starved struct {
	*raft.InmemTransport
	cpu  *processor
	seen chan raft.RPC
}

func (s *starved) Consumer() <-chan raft.RPC { return s.seen }

func (s *starved) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	s.cpu.wait()
	defer s.cpu.wait()
	return s.InmemTransport.AppendEntries(id, target, args, resp)
}

func (s *starved) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	s.cpu.wait()
	defer s.cpu.wait()
	return s.InmemTransport.RequestVote(id, target, args, resp)
}

func (s *starved) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	s.cpu.wait()
	defer s.cpu.wait()
	return s.InmemTransport.RequestPreVote(id, target, args, resp)
}

func (s *starved) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	s.cpu.wait()
	defer s.cpu.wait()
	return s.InmemTransport.InstallSnapshot(id, target, args, resp, data)
}

// TestNoFalseElection: for an hour, each of the machines of three members has bursts of 95% load at
// its own times, and no member starts an election. The simulation is harder than reality, because
// timers run while the member has no processor. COOPR_LOAD sets another duration (make chaos-sim).
func TestNoFalseElection(t *testing.T) {
	t.Parallel()
	lasts := time.Hour
	if testing.Short() {
		lasts = 15 * time.Minute
	}
	if d, err := time.ParseDuration(os.Getenv("COOPR_LOAD")); err == nil {
		lasts = d
	}
	busy(t, func() load { return bursts }, func(t *testing.T, c *grouptest.Cluster) {
		start := time.Now()
		lead := c.Leader()
		term := lead.Group().Term()
		for time.Since(start) < lasts {
			c.Apply("work goes on")
			if now := lead.Group().Term(); now != term || !lead.Group().IsLeader() {
				t.Errorf("after %s: term %d, not %d", time.Since(start), now, term)
				break
			}
			time.Sleep(time.Minute)
		}
	})
}

// busy runs a test over three members whose machines have a load each.
func busy(t *testing.T, loaded func() load, f func(t *testing.T, c *grouptest.Cluster)) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		var pumps sync.WaitGroup
		start := time.Now()
		c := grouptest.Start(t, 3, grouptest.Options{Transport: func(id string, inner *raft.InmemTransport) raft.Transport {
			s := &starved{InmemTransport: inner, seen: make(chan raft.RPC), cpu: &processor{
				rng: rand.New(rand.NewPCG(1, uint64(id[0]))), burst: start, begin: start, end: start, loaded: loaded,
			}}
			pumps.Go(func() {
				for {
					select {
					case r := <-inner.Consumer():
						s.cpu.wait()
						select {
						case s.seen <- r:
						case <-stop:
							return
						}
					case <-stop:
						return
					}
				}
			})
			return s
		}})
		f(t, c)
		c.Stop()
		close(stop)
		pumps.Wait()
	})
}

// TestTempo: under a load that is far too much for the usual time-outs, members lose patience with their leader at most a few times
// in an hour, as they wait longer each time. Once their machines are quiet, a dead leader is replaced as fast as ever.
func TestTempo(t *testing.T) {
	t.Parallel()
	lasts := time.Hour
	if testing.Short() {
		lasts = 10 * time.Minute
	}
	for _, longest := range []time.Duration{100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond} {
		t.Run(longest.String(), func(t *testing.T) {
			t.Parallel()
			var quiet atomic.Bool
			loaded := func() load {
				if quiet.Load() {
					return load{longest: time.Millisecond, calm: time.Hour, bursting: time.Millisecond}
				}
				return load{longest: longest, calm: time.Second, bursting: 20 * time.Second}
			}
			busy(t, loaded, func(t *testing.T, c *grouptest.Cluster) {
				first := c.Leader().Group().Term()
				time.Sleep(5 * time.Minute)
				steady := c.Leader().Group().Term()
				for start := time.Now(); time.Since(start) < lasts; time.Sleep(time.Minute) {
					c.Apply("work goes on")
				}
				end := c.Leader().Group().Term()
				t.Logf("terms: %d to begin with, %d after five minutes, %d at the end", first, steady, end)
				// When the load first shows how far it goes is chance, and so is how many candidates an election takes.
				if end > first+8 {
					t.Errorf("%d elections in five minutes, then %d", steady-first, end-steady)
				}
				quiet.Store(true)
				time.Sleep(4 * time.Minute)
				c.Leader().Crash()
				dead := time.Now()
				c.Leader()
				if gap := time.Since(dead); gap > 600*time.Millisecond {
					t.Errorf("on quiet machines, a dead leader is replaced after %v", gap)
				}
			})
		})
	}
}
