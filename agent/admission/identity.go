package admission

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

// Credentials are what an agent is known by in its mesh. All are zero in dev mode.
type Credentials struct {
	// Membership is the agent's own. Dir is the folder that keeps it; "" means the data directory.
	Membership *identity.Membership
	Dir        string
	// Lifetime is that of certificates; 0 means that of package identity.
	Lifetime time.Duration
	// Secret is that of an older mesh, whose agents share it.
	Secret identity.Secret
	// Root is the root token, if this agent knows it: in dev mode, or in an older mesh.
	Root string
}

// Open returns the identity of an agent, or nil in dev mode. It completes the configuration and the credentials with what follows
// from them.
func Open(cfg *config.Config, c *Credentials, ring *keyring.Ring, id string, log *slog.Logger) (*identity.Identity, error) {
	switch {
	case c.Membership != nil:
		c.Lifetime = cmp.Or(c.Lifetime, identity.Lifetime)
		return open(cfg, c, ring, id, log)
	case !c.Secret.IsZero():
		c.Root = c.Secret.RootToken()
		return identity.New(c.Secret, id)
	case !cfg.Dev:
		return nil, errors.New("an agent needs an identity: create a mesh, give a join token, or use dev mode")
	case c.Root != "" || cfg.DataDir == "":
		return nil, nil
	}
	var shared bool
	var err error
	if c.Root, shared, err = identity.DevToken(cfg.DataDir); !shared && err == nil {
		log.Info("the token of this agent is its own: dev agents can join it with a copy of dev-token in their data directories")
	}
	return nil, err
}

func open(cfg *config.Config, c *Credentials, ring *keyring.Ring, id string, log *slog.Logger) (*identity.Identity, error) {
	names, m := cfg.APINames(), c.Membership
	i, err := identity.Open(cmp.Or(c.Dir, cfg.DataDir), id, names, c.Lifetime, m)
	if err != nil {
		return nil, err
	}
	if m.Unsealed() { // the mesh was at the level from which on agents encrypt
		_ = ring.Begin() // nothing is protected yet
	}
	err = ring.Protect(func(with []*keyring.Cipher) error {
		var sealers []identity.Sealer
		for _, c := range with {
			sealers = append(sealers, c)
		}
		return i.Store().SealWith(sealers...)
	})
	if err != nil {
		log.Warn("the identity of this voter could not be encrypted; this agent tries again", "error", err)
	}
	if err := SignSelf(i.Store(), ring, id, names, c.Lifetime); err != nil {
		log.Warn("this voter cannot renew its certificate by itself; it asks others", "error", err)
	}
	cfg.BootstrapExpect = 0
	if m.Birth != nil {
		cfg.BootstrapExpect = 1
	}
	if m.Zone != "" {
		cfg.Zone = m.Zone
	}
	if m.Role == identity.Worker {
		cfg.Eligible = false
	}
	if host, port, err := net.SplitHostPort(cfg.HTTP.Addr); !m.API && err == nil && !loopback(host) {
		cfg.HTTP.Addr = net.JoinHostPort("127.0.0.1", port)
		log.Info("this worker serves the API on loopback only, as its join token did not allow more", "addr", cfg.HTTP.Addr)
	}
	return i, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// JoinAddrs returns the gossip addresses through which the agent joins the mesh: the configured ones, and those that it got with its
// admission.
func (c *Credentials) JoinAddrs(cfg *config.Config) []string {
	if c.Membership == nil {
		return cfg.Join
	}
	return append(slices.Clone(cfg.Join), c.Membership.Seeds...)
}

// GossipKeys returns the keys with which gossip starts. There are none in simulations without identities.
func (c *Credentials) GossipKeys(cfg *config.Config) [][]byte {
	switch {
	case c.Membership != nil:
		return c.Membership.GossipRing().Keys
	case !c.Secret.IsZero():
		return [][]byte{c.Secret.GossipKey()}
	case cfg.DataDir != "":
		return [][]byte{identity.DevGossipKey(c.Root)}
	}
	return nil
}
