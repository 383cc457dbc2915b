package wire

import (
	"context"
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

type targetKey struct{}

// To returns a context for a request over HTTP that DialHTTP opens a conn for: the target must answer.
func To(ctx context.Context, t Target) context.Context { return context.WithValue(ctx, targetKey{}, t) }

// DialHTTP opens a conn for forwarded HTTP to a voter's peer port. It fits http.Transport.DialContext when the network argument is
// dropped. The context may have a target at that address. A conn that is used again is one to a voter.
func (m *Mux) DialHTTP(ctx context.Context, addr string) (net.Conn, error) {
	t, _ := ctx.Value(targetKey{}).(Target)
	if t.Addr != addr {
		t = Target{Addr: addr}
	}
	t.Voter = true
	return m.dial(ctx, t.String(), ProtocolHTTP)
}
