package mesh

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/wire"
)

// Lifetime is that of certificates in a simulated mesh. A simulation of days would take minutes.
const Lifetime = 10 * time.Minute

// births are the identity of a new mesh and the tokens with which its agents join.
type births struct {
	first         *identity.Membership
	voter, worker identity.JoinToken
}

func newBirths(t testing.TB) *births {
	t.Helper()
	m, _, err := identity.Found()
	if err != nil {
		t.Fatal(err)
	}
	root := sha256.Sum256([]byte(Token))
	m.Birth.RootHash = root[:]
	b := &births{first: m}
	for role, token := range map[identity.Role]*identity.JoinToken{identity.Voter: &b.voter, identity.Worker: &b.worker} {
		if *token, err = identity.NewJoinToken(m.CAs[0], []string{"10.0.0.1" + peerPort}); err != nil {
			t.Fatal(err)
		}
		m.Birth.Tokens = append(m.Birth.Tokens, identity.BornToken{
			ID: token.ID(), Hash: token.Hash(), Role: role, Uses: 100, Expires: time.Now().Add(1000 * time.Hour),
		})
	}
	return b
}

// identify completes an agent's configuration by its identity. An agent that has none joins the mesh.
func (a *Agent) identify(cfg *agent.Config) error {
	cfg.Dev, cfg.HostExec, cfg.Credentials = false, true, admission.Credentials{Dir: a.folder(), Lifetime: Lifetime}
	if err := a.keepID(); err != nil {
		return err
	}
	m, err := identity.LoadMembership(a.dir)
	switch {
	case err == nil && m.Mesh != "":
		cfg.Membership = m
		return a.unseal(m)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case a == a.m.agents[0]:
		cfg.Membership = a.m.births.first
		return a.m.births.first.Save(a.dir)
	}
	token := a.m.births.voter
	if at := slices.Index(a.m.agents, a); at >= len(a.m.agents)-a.m.opts.Workers {
		token = a.m.births.worker
	}
	cfg.Membership, err = admission.Joiner{
		Dir: a.dir, Token: token, Network: network{a.host, newLife()}, Logger: slog.New(slog.DiscardHandler),
	}.Join(context.Background())
	return err
}

// folder returns the folder of the agent's identity.
func (a *Agent) folder() string {
	if a.dir == "" {
		a.dir = a.m.T.TempDir()
	}
	return a.dir
}

// keepID writes the agent's id to where an agent has it.
func (a *Agent) keepID() error {
	return os.WriteFile(filepath.Join(a.dir, "agent-id"), []byte(a.ID+"\n"), 0o600)
}

// unseal decrypts what the agent's disk has of the mesh with its keyring.
func (a *Agent) unseal(m *identity.Membership) error {
	ring, err := keyring.Open(a.keys)
	if err != nil {
		return err
	}
	return m.Unseal(ring)
}

// Membership returns what the agent's disk has of the mesh, decrypted with its keyring.
func (a *Agent) Membership() *identity.Membership {
	a.m.T.Helper()
	m, err := identity.LoadMembership(a.folder())
	if err == nil {
		err = a.unseal(m)
	}
	if err != nil {
		a.m.T.Fatalf("%s: %v", a.Name, err)
	}
	return m
}

// Older takes from the agent's disk what builds before certificates for browsers do not have of an identity. The agent does not run.
func (a *Agent) Older() {
	a.m.T.Helper()
	m, err := identity.LoadMembership(a.folder())
	if err == nil {
		m.Browser = nil
		err = m.Save(a.dir)
	}
	if err != nil {
		a.m.T.Fatalf("%s: %v", a.Name, err)
	}
}

// Sealed reports whether the identity on the agent's disk is encrypted.
func (a *Agent) Sealed() bool {
	a.m.T.Helper()
	m, err := identity.LoadMembership(a.folder())
	if err != nil {
		a.m.T.Fatalf("%s: %v", a.Name, err)
	}
	return len(m.Sealed) > 0
}

// Opens returns an error if the agent's keyring does not open the identity on its disk.
func (a *Agent) Opens() error {
	m, err := identity.LoadMembership(a.folder())
	if err != nil {
		return err
	}
	return a.unseal(m)
}

// Steal returns a network on a host of its own that has the certificate of the agent's disk, as it was when m was read.
func (a *Agent) Steal(host string, m *identity.Membership) wire.Network {
	a.m.T.Helper()
	thief, err := identity.Open("", a.ID, nil, Lifetime, m)
	if err != nil {
		a.m.T.Fatalf("%s: %v", a.Name, err)
	}
	return wire.WithTLS(a.m.Fabric.Host(host), wire.TLSConfigs{Server: thief.ServerConfig(), Client: thief.ClientConfig("")})
}

// PeerAddr returns the address of the agent's peer port.
func (a *Agent) PeerAddr() string { return a.ip + peerPort }
