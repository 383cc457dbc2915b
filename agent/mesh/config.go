package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
)

// DefaultPort is the gossip port of an address without one.
const DefaultPort = 55056

// Config configures a Mesh.
type Config struct {
	// ID is the agent's persistent id. Required.
	ID string
	// Self is what other agents learn about this one.
	Self Self
	// Bind is the gossip address, "ip:port", UDP and TCP. Required without Transport.
	Bind string
	// Advertise is the address at which other agents reach this one, "ip:port" (port 0: the bound one). Default: Bind.
	Advertise string
	// Transport replaces the sockets (tests: testing/doubles/fabric). Run shuts it down.
	Transport memberlist.NodeAwareTransport
	// GossipKeys are the keys with which gossip starts, of 16, 24 or 32 bytes: the first one encrypts, and all decrypt. None: gossip is
	// plain, for simulations only.
	GossipKeys [][]byte
	// Prepare, if it is not nil, is called by Run before gossip starts. It may call SetKeys.
	Prepare func(ctx context.Context)
	// PeersFile keeps the addresses of other agents, so that a restarted agent rejoins without Join. It may be empty.
	PeersFile string
	// Join has addresses to try until an agent answers: "host[:port]".
	Join []string
	// Agents is the expected number of agents, for an agent that joins for the first time; 0 means few. It only chooses the
	// first profile: hundreds of new agents that start with the quick one overload a machine that they share. An agent that
	// was in the mesh before uses the number in its peers file.
	Agents int
	// Profile fixes the profile. By default it follows the number of agents.
	Profile Profile
	// Lookup resolves host names of Join. Default: the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Logger receives joins and failures, and the messages of the libraries at lower levels. Default: discard.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Lookup == nil {
		c.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
}

func (c *Config) check() error {
	var faults []error
	if c.ID == "" {
		faults = append(faults, errors.New("mesh: no agent id"))
	}
	if c.Transport == nil && c.Bind == "" {
		faults = append(faults, errors.New("mesh: neither a gossip address nor a transport"))
	}
	for _, key := range c.GossipKeys {
		if err := memberlist.ValidateKey(key); err != nil {
			faults = append(faults, fmt.Errorf("mesh: gossip key: %w", err))
		}
	}
	if err := checkTags(encodeTags(c.Self, 1<<63)); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// serfConfig returns the configuration of serf and memberlist.
func (m *Mesh) serfConfig(profile Profile, transport memberlist.NodeAwareTransport, events chan<- serf.Event) *serf.Config {
	logger := newLogBridge(m.log)
	ml := memberlist.DefaultLANConfig()
	profile.apply(ml)
	ml.Transport = transport
	ml.Logger = logger
	ml.EnableCompression = false // it costs a third of the CPU in a storm of news, and is one more decoder of foreign bytes
	ml.Alive = aliveWatch{m}
	ml.Keyring = m.keyring
	// An agent that moved may use its name again as soon as its old address is known dead, as ids are unique.
	ml.DeadNodeReclaimTime = time.Nanosecond
	ml.MsgpackUseNewTimeFormat = true
	ml.AdvertiseAddr, ml.AdvertisePort = "", 0
	ml.BindPort = DefaultPort // only used for addresses without a port; Coopr's have one
	if m.keyring == nil {
		ml.Label = "coopr-dev" // keeps other programs out, as there is no key
	}
	if m.advertise.IsValid() {
		ml.AdvertiseAddr, ml.AdvertisePort = m.advertise.Addr().String(), int(m.advertise.Port())
	}

	c := serf.DefaultConfig()
	c.NodeName = m.cfg.ID
	c.Tags = encodeTags(m.self, m.epoch)
	c.EventCh = events
	c.ProtocolVersion = serf.ProtocolVersionMax
	c.MemberlistConfig = ml
	c.Logger = logger
	c.LogOutput = nil
	c.EnableNameConflictResolution = false // with it, the mesh could vote a moved agent out
	c.DisableCoordinates = true            // Coopr does not use network distances
	c.ReconnectInterval = profile.ReconnectInterval
	c.ReconnectTimeout = 72 * time.Hour
	c.TombstoneTimeout = 24 * time.Hour
	c.MinQueueDepth = 4096
	c.LeavePropagateDelay = 5 * profile.GossipInterval
	c.MsgpackUseNewTimeFormat = true
	return c
}
