package instance

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coopr/coopr/internal/ownhost"
)

// Guard decides which addresses the requests to a cloud may reach. A user who writes a provider
// chooses its endpoint, but the requests come from the agent's machine: without a Guard they would
// reach services that trust this machine. The Guard checks the address that is dialled, no matter
// whether it comes from the endpoint, from a redirect or from a name that has changed.
type Guard struct {
	allow     []netip.Prefix
	dialer    net.Dialer
	transport *http.Transport
}

// NewGuard returns a Guard that refuses the addresses of this machine, of its links and of clouds'
// metadata services, except those in allow. If these contain 127.0.0.1, it allows the addresses of this machine's interfaces.
func NewGuard(allow []netip.Prefix) *Guard {
	g := &Guard{allow: allow, dialer: net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}}
	g.dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error { return g.check(address) }
	// A proxy would be dialled instead of the endpoint, so none is used.
	g.transport = &http.Transport{
		DialContext: g.dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConns: 100,
		IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	}
	return g
}

// EnvGuard returns the Guard of a plugin's environment: COOPR_ENDPOINTS has the networks that the agent allows beyond those of
// NewGuard.
func EnvGuard() (*Guard, error) {
	g, err := ParseGuard(os.Getenv("COOPR_ENDPOINTS"))
	if err != nil {
		return nil, fmt.Errorf("COOPR_ENDPOINTS: %w", err)
	}
	return g, nil
}

// ParseGuard returns the Guard that allows networks, which are separated by commas.
func ParseGuard(allow string) (*Guard, error) {
	var networks []netip.Prefix
	for text := range strings.SplitSeq(allow, ",") {
		if text == "" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8", text)
		}
		networks = append(networks, p)
	}
	return NewGuard(networks), nil
}

// Transport returns the transport for requests to a cloud. That of a nil Guard reaches any address.
func (g *Guard) Transport() http.RoundTripper {
	if g == nil {
		return http.DefaultTransport
	}
	return g.transport
}

// DialContext connects to an address over TCP. That of a nil Guard reaches any address.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if g == nil {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return g.dialer.DialContext(ctx, network, address)
}

// close closes the idle connections.
func (g *Guard) close() {
	if g != nil {
		g.transport.CloseIdleConnections()
	}
}

// check returns a Fault if the address must not be dialled.
func (g *Guard) check(address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Fault{Kind: Invalid, Err: err}
	}
	ip := a.Addr().Unmap().WithZone("")
	if g.allows(ip) {
		return nil
	}
	no := ownhost.Reserved(ip)
	if !no && !g.allows(loopback) {
		own, err := ownhost.Addresses()
		if err != nil {
			return Faultf(Invalid, "%s is not dialled, because the addresses of the agent's machine cannot be read: %w", ip, err)
		}
		no = slices.Contains(own, ownhost.Plain(ip))
	}
	if no {
		return Faultf(Invalid, "%s is an address of the agent's machine, of its links or of a metadata service, which providers may not call: "+
			"correct the endpoint, or have an operator set providers.endpoints on the agents", ip)
	}
	return nil
}

func (g *Guard) allows(ip netip.Addr) bool {
	return slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// loopback stands for this machine: who may call it there may call it at its other addresses.
var loopback = netip.MustParseAddr("127.0.0.1")
