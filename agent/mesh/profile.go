package mesh

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// Profile is how fast gossip goes. The zero value means Auto.
type Profile struct {
	// ProbeInterval is how often an agent probes one other, ProbeTimeout how long it waits for the direct answer before it
	// asks third parties.
	ProbeInterval, ProbeTimeout time.Duration
	// SlowDown bounds how far an agent stretches its ProbeInterval while its probes fail for want of its own health.
	SlowDown int
	// SuspicionMult: a suspect is dead after SuspicionMult × log10(agents) × ProbeInterval without a contradiction, up to
	// SuspicionMaxMult times longer while nobody else suspects it.
	SuspicionMult, SuspicionMaxMult int
	// GossipInterval and GossipNodes: news go to so many others every so often.
	GossipInterval time.Duration
	GossipNodes    int
	// RetransmitMult: every piece of news is sent RetransmitMult × log10(agents) times by each agent.
	RetransmitMult int
	// PushPullInterval: two agents compare everything they know (stretched by memberlist above 32 agents).
	PushPullInterval time.Duration
	// ReconnectInterval: how often agents look whether failed ones are back. Spread over all agents.
	ReconnectInterval time.Duration
	// StreamTimeout bounds a dial and a push/pull.
	StreamTimeout time.Duration
}

// quick finds a death in a second or two. A suspicion needs a second witness, so that an agent that was stopped itself
// for a moment does not bury the others.
var quick = Profile{
	ProbeInterval: 250 * time.Millisecond, ProbeTimeout: 150 * time.Millisecond, SlowDown: 16,
	SuspicionMult: 3, SuspicionMaxMult: 3,
	GossipInterval: 100 * time.Millisecond, GossipNodes: 3, RetransmitMult: 3,
	PushPullInterval: 15 * time.Second, ReconnectInterval: 3 * time.Second, StreamTimeout: 5 * time.Second,
}

// calm stands storms: hundreds of agents that start at once, or share a few cores, with quick's work go over into a state
// where late answers cause suspicions, and suspicions cause more work than late answers did: every one, and its
// contradiction, goes to everybody as often as RetransmitMult says. Twice log10(agents) leaves out two or three in a
// thousand, which the list of record and doubter make good. calm finds a death in some twenty seconds; with hundreds of
// agents it is the leader, when the session breaks, that finds it in one (BenchmarkMesh500).
var calm = Profile{
	ProbeInterval: time.Second, ProbeTimeout: 500 * time.Millisecond, SlowDown: 8,
	SuspicionMult: 4, SuspicionMaxMult: 6,
	GossipInterval: 200 * time.Millisecond, GossipNodes: 3, RetransmitMult: 2,
	PushPullInterval: 30 * time.Second, ReconnectInterval: 15 * time.Second, StreamTimeout: 5 * time.Second,
}

// A mesh that grows past quickUpTo goes calm, one that shrinks below quickFrom goes quick. What lies between keeps what
// it has, so that an agent more or less does not set all the others going.
const (
	quickUpTo = 64
	quickFrom = 40
)

// ProfileFor is the profile for a mesh of so many agents, for one that has the given profile now (zero: none yet).
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
