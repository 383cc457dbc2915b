package wire

import (
	"context"
	"encoding/base32"
	"fmt"
	"net"
	"strings"

	"github.com/coopr/coopr/rpc/identity"
)

// Target is a peer address together with the agent that must answer there. Addresses are hints: gossip has them, and whoever has
// its key can forge them.
type Target struct {
	Addr string
	ID   string // "": any agent
	// Voter is true if the agent must have the role of a voter.
	Voter bool
}

// Leader returns the target of an agent that acts as the leader, or for it.
func Leader(addr, id string) Target { return Target{Addr: addr, ID: id, Voter: true} }

const (
	targetMark = "#"
	voterMark  = "voter"
)

// String returns the target in the form that the Mux dials in place of an address.
func (t Target) String() string {
	if t.ID == "" && !t.Voter {
		return t.Addr
	}
	out := t.Addr + targetMark + t.ID
	if t.Voter {
		out += targetMark + voterMark
	}
	return out
}

func parseTarget(s string) Target {
	addr, rest, _ := strings.Cut(s, targetMark)
	id, role, _ := strings.Cut(rest, targetMark)
	return Target{Addr: addr, ID: id, Voter: role == voterMark}
}

// AddrOf returns the address of a target in the form of String.
func AddrOf(target string) string { return parseTarget(target).Addr }

// check returns an error if another agent answers. Conns without TLS, in dev mode, have no identity.
func (t Target) check(conn net.Conn) error {
	p, err := identity.PeerOf(conn)
	switch {
	case err != nil:
		return nil
	case t.ID != "" && p.ID != t.ID:
		return fmt.Errorf("%w: %s answers at %s, where %s was expected", identity.ErrWrongPeer, p.ID, t.Addr, t.ID)
	case t.Voter && p.Role != identity.Voter:
		return fmt.Errorf("%w: %s answers at %s as a %s", identity.ErrWrongPeer, p.ID, t.Addr, p.Role)
	}
	return nil
}

// hostEncoding makes a host name of a target.
var hostEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Host returns the target as the host of an HTTP URL, for a client whose conns DialHTTP opens.
func (t Target) Host() string { return hostEncoding.EncodeToString([]byte(t.String())) }

// DialHTTP opens a conn for forwarded HTTP to another agent's peer port. It fits http.Transport.DialContext when the
// network argument is dropped; host is that of a Target, with a port.
func (m *Mux) DialHTTP(ctx context.Context, host string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return nil, err
	}
	target, err := hostEncoding.DecodeString(name)
	if err != nil {
		return nil, fmt.Errorf("dial %s for %s: it is no target", host, ProtocolHTTP)
	}
	return m.dial(ctx, string(target), ProtocolHTTP)
}
