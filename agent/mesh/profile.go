package mesh

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// Profile has the intervals of gossip. The zero value means the profile that fits the number of agents.
type Profile struct {
	// ProbeInterval is how often an agent probes another one. After ProbeTimeout without an answer it asks third parties to
	// probe.
	ProbeInterval, ProbeTimeout time.Duration
	// SlowDown is the largest factor by which an agent stretches its ProbeInterval while it is too slow itself.
	SlowDown int
	// A suspect counts as failed after SuspicionMult × log10(agents) × ProbeInterval without a refutation, or up to
	// SuspicionMaxMult times later while no other agent suspects it.
	SuspicionMult, SuspicionMaxMult int
	// An agent sends news to GossipNodes others in each GossipInterval.
	GossipInterval time.Duration
	GossipNodes    int
	// Each agent sends every piece of news RetransmitMult × log10(agents) times.
	RetransmitMult int
	// PushPullInterval is how often an agent compares its whole view with another one. memberlist stretches it above 32
	// agents.
	PushPullInterval time.Duration
	// ReconnectInterval is how often an agent tries to contact a failed one.
	ReconnectInterval time.Duration
	// StreamTimeout bounds a dial and a push/pull.
	StreamTimeout time.Duration
}

// quick detects a failure in one or two seconds. A suspicion needs a second witness, so that an agent that was itself
// stopped for a moment does not declare the others failed.
var quick = Profile{
	ProbeInterval: 250 * time.Millisecond, ProbeTimeout: 150 * time.Millisecond, SlowDown: 16,
	SuspicionMult: 3, SuspicionMaxMult: 3,
	GossipInterval: 100 * time.Millisecond, GossipNodes: 3, RetransmitMult: 3,
	PushPullInterval: 15 * time.Second, ReconnectInterval: 3 * time.Second, StreamTimeout: 5 * time.Second,
}

// calm survives storms. With the intervals of quick, hundreds of agents that start together or share a few cores reach a
// state in which late answers cause suspicions, and suspicions cause even later answers: each suspicion and each
// refutation is sent to every agent, as often as RetransmitMult requires. With a factor of two, news misses two or three of
// a thousand agents, which the registry and doubter correct. calm detects a failure in about twenty seconds; the leader
// detects it in one second, when the agent's session breaks (BenchmarkMesh500).
var calm = Profile{
	ProbeInterval: time.Second, ProbeTimeout: 500 * time.Millisecond, SlowDown: 8,
	SuspicionMult: 4, SuspicionMaxMult: 6,
	GossipInterval: 200 * time.Millisecond, GossipNodes: 3, RetransmitMult: 2,
	PushPullInterval: 30 * time.Second, ReconnectInterval: 15 * time.Second, StreamTimeout: 5 * time.Second,
}

// A mesh that grows beyond quickUpTo becomes calm; one that shrinks below quickFrom becomes quick. Between the two it keeps
// its profile, so that one agent more or less does not change the profile of all.
const (
	quickUpTo = 64
	quickFrom = 40
)

// ProfileFor returns the profile for a mesh of this size. now is the current profile, or zero if there is none yet.
func ProfileFor(agents int, now Profile) Profile {
	switch {
	case agents > quickUpTo:
		return calm
	case agents < quickFrom || now == Profile{}:
		return quick
	}
	return now
}

func (p Profile) apply(c *memberlist.Config) {
	c.ProbeInterval, c.ProbeTimeout = p.ProbeInterval, p.ProbeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = p.SuspicionMult, p.SuspicionMaxMult
	c.AwarenessMaxMultiplier = p.SlowDown
	c.GossipInterval, c.GossipNodes, c.RetransmitMult = p.GossipInterval, p.GossipNodes, p.RetransmitMult
	c.GossipToTheDeadTime = p.PushPullInterval
	c.PushPullInterval = p.PushPullInterval
	c.TCPTimeout = p.StreamTimeout
}
