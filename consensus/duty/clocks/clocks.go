// Package clocks compares the clocks of the agents, as the leader hears them.
package clocks

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
)

// Limit is the difference from which on a clock is reported. Certificates begin an hour before they are signed, so that an agent
// whose clock is a little slow can use them.
const Limit = 15 * time.Minute

// drift is the least change of an offset that leads to a new comparison: what networks and busy machines cause is less.
const drift = time.Second

// Clocks has the clocks of the agents that have a session with the leader. It is made for one term, and safe for concurrent use.
type Clocks struct {
	logger *slog.Logger

	mu      sync.Mutex
	heard   map[string]*clock // by session
	differ  []*pb.ClockOffset // sorted by name and id; replaced, never changed
	changes uint64            // of differ
}

// clock is the clock of one agent.
type clock struct {
	agent, name string
	ahead       time.Duration // of the leader's
}

// New returns the clocks of one term.
func New(logger *slog.Logger) *Clocks { return &Clocks{logger: logger, heard: map[string]*clock{}} }

// Hear notes how far an agent's clock is ahead of the leader's.
func (c *Clocks) Hear(session, agent, name string, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.heard[session]
	if old != nil && (ahead-old.ahead).Abs() < drift {
		return
	}
	c.heard[session] = &clock{agent: agent, name: name, ahead: ahead}
	c.compare()
}

// Leave forgets the clock of a session that has ended.
func (c *Clocks) Leave(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard[session] != nil {
		delete(c.heard, session)
		c.compare()
	}
}

// Differ returns the clocks that differ from the others by more than Limit, and a number that changes with the list.
func (c *Clocks) Differ() ([]*pb.ClockOffset, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.differ, c.changes
}

// compare finds the clocks that differ. The caller holds mu.
func (c *Clocks) compare() {
	var all []*clock
	for _, x := range c.heard {
		all = append(all, x)
	}
	median := middle(all)
	var differ []*pb.ClockOffset
	for _, x := range all {
		if ahead := x.ahead - median; ahead.Abs() > Limit {
			differ = append(differ, &pb.ClockOffset{Agent: x.agent, Name: x.name, AheadMs: ahead.Milliseconds()})
		}
	}
	slices.SortFunc(differ, func(a, b *pb.ClockOffset) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.AheadMs, b.AheadMs))
	})
	if slices.EqualFunc(differ, c.differ, same) {
		return
	}
	for _, x := range differ {
		if !slices.ContainsFunc(c.differ, func(old *pb.ClockOffset) bool { return old.Agent == x.Agent }) {
			c.logger.Warn("the clock of an agent differs from the others", "member", x.Name, "id", x.Agent,
				"ahead", (time.Duration(x.AheadMs) * time.Millisecond).Round(time.Second))
		}
	}
	c.differ = differ
	c.changes++
}

func same(a, b *pb.ClockOffset) bool {
	return a.Agent == b.Agent && a.Name == b.Name && a.AheadMs == b.AheadMs
}

// middle returns the median. Of two in the middle it is the one that is closer to the leader's.
func middle(all []*clock) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.SortFunc(all, func(a, b *clock) int { return cmp.Compare(a.ahead, b.ahead) })
	low, high := all[(len(all)-1)/2].ahead, all[len(all)/2].ahead
	if high.Abs() < low.Abs() {
		return high
	}
	return low
}
