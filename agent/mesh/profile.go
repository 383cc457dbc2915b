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

// ProfileFor is the profile for a mesh of about so many agents.
func ProfileFor(agents int) Profile {
	p := Profile{
		ProbeInterval: 300 * time.Millisecond, ProbeTimeout: 150 * time.Millisecond,
		SuspicionMult: 2, SuspicionMaxMult: 2,
		GossipInterval: 100 * time.Millisecond, GossipNodes: 3, RetransmitMult: 3,
		PushPullInterval: 15 * time.Second, ReconnectInterval: 3 * time.Second, StreamTimeout: 5 * time.Second,
	}
	if agents > 64 {
		p.ProbeInterval, p.ProbeTimeout = time.Second, 500*time.Millisecond
		p.SuspicionMult, p.SuspicionMaxMult = 4, 6
		p.GossipInterval = 200 * time.Millisecond
		p.PushPullInterval, p.ReconnectInterval = 30*time.Second, 15*time.Second
	}
	return p
}

func (p Profile) apply(c *memberlist.Config) {
	c.ProbeInterval, c.ProbeTimeout = p.ProbeInterval, p.ProbeTimeout
	c.SuspicionMult, c.SuspicionMaxTimeoutMult = p.SuspicionMult, p.SuspicionMaxMult
	c.GossipInterval, c.GossipNodes, c.RetransmitMult = p.GossipInterval, p.GossipNodes, p.RetransmitMult
	c.GossipToTheDeadTime = p.PushPullInterval
	c.PushPullInterval = p.PushPullInterval
	c.TCPTimeout = p.StreamTimeout
}
