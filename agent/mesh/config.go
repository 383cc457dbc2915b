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

// DefaultPort is the gossip port where an address names none.
const DefaultPort = 55056

// Config is what a Mesh is made of.
type Config struct {
	// ID is the agent's persistent id. Required.
	ID string
	// Self is what the others learn about this agent.
	Self Self
	// Bind is the gossip address, "ip:port", UDP and TCP. Required without Transport.
	Bind string
	// Advertise is the address others reach it at, "ip:port" (port 0: the one bound); empty: Bind.
	Advertise string
	// Transport replaces the sockets (tests: testing/doubles/fabric). Run shuts it down.
	Transport memberlist.NodeAwareTransport
	// GossipKey encrypts gossip: 16, 24 or 32 bytes. Nil: plain, for loopback dev mode only.
	GossipKey []byte
	// KeyringFile keeps keys that were rotated in; where it exists it wins over GossipKey. Empty: rotation does not
	// survive a restart.
	KeyringFile string
	// PeersFile remembers the others' addresses, so that a restarted agent finds back without help. Empty: it does not.
	PeersFile string
	// Join are addresses to try until somebody answers: "host[:port]".
	Join []string
	// Agents is how many agents the mesh is thought to have, for one that joins it for the first time; 0: few. It only
	// chooses the speed to begin with: hundreds of newcomers that begin quick and find out one by one are hard on a machine
	// that they share. One that was in the mesh before knows from its peers file.
	Agents int
	// Profile fixes the speed; zero: by the number of agents, as it changes.
	Profile Profile
	// Lookup resolves host names of Join. Default: the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Logger gets joins and deaths at info, and the libraries' messages at debug. Default: discard.
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
	if c.GossipKey != nil {
		if err := memberlist.ValidateKey(c.GossipKey); err != nil {
			faults = append(faults, fmt.Errorf("mesh: gossip key: %w", err))
		}
	}
	if err := checkTags(encodeTags(c.Self, 1<<63)); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// serfConfig turns everything into serf's and memberlist's words.
func (m *Mesh) serfConfig(profile Profile, transport memberlist.NodeAwareTransport, events chan<- serf.Event) *serf.Config {
	logger := newLogBridge(m.log)
	ml := memberlist.DefaultLANConfig()
	profile.apply(ml)
	ml.Transport = transport
	ml.Logger = logger
	ml.EnableCompression = false // a third of a storm's CPU, and a decoder less for strangers' bytes
	ml.Alive = aliveWatch{m}
	ml.Keyring = m.keyring
	// An agent that moved takes its name along as soon as its old address is known dead: ids are unique.
	ml.DeadNodeReclaimTime = time.Nanosecond
	ml.MsgpackUseNewTimeFormat = true
	ml.AdvertiseAddr, ml.AdvertisePort = "", 0
	ml.BindPort = DefaultPort // only used for addresses without a port, and ours have one
	if m.keyring == nil {
		ml.Label = "coopr-dev" // keeps other programs' meshes out where no key does
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
	c.EnableNameConflictResolution = false // or a moved agent could be voted out
	c.DisableCoordinates = true            // nothing here asks for network distances
	c.ReconnectInterval = profile.ReconnectInterval
	c.ReconnectTimeout = 72 * time.Hour
	c.TombstoneTimeout = 24 * time.Hour
	c.MinQueueDepth = 4096
	c.LeavePropagateDelay = 5 * profile.GossipInterval
	c.KeyringFile = m.cfg.KeyringFile
	c.MsgpackUseNewTimeFormat = true
	return c
}
