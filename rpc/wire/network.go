package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// Network opens and accepts stream conns. Agents use TCP; tests use the hosts of
// testing/doubles/fabric.
type Network interface {
	// Listen accepts conns at addr ("host:port"; port 0 picks a free one).
	Listen(addr string) (net.Listener, error)
	// Dial opens a conn to addr. It gives up when ctx ends.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// TLSConfigs are the configurations of both sides of mutual TLS. identity.Identity returns them.
type TLSConfigs struct {
	Server *tls.Config
	Client *tls.Config
}

// TCP returns the network of the machine. With configs every conn uses TLS. With nil conns are not
// encrypted, which is only for dev mode on loopback.
func TCP(configs *TLSConfigs) Network {
	if configs == nil {
		return tcpNetwork{}
	}
	return WithTLS(tcpNetwork{}, *configs)
}

type tcpNetwork struct{}

// keepAlive detects a peer that lost power while the protocol of the conn is silent. Heartbeats
// detect it sooner.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

func (tcpNetwork) Listen(addr string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive, Control: setUserTimeout}
	return lc.Listen(context.Background(), "tcp", addr)
}

func (tcpNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: keepAlive, Control: setUserTimeout}
	return d.DialContext(ctx, "tcp", addr)
}

// WithTLS returns a network that adds TLS to every conn of inner. The accepting side does the
// handshake at the first read or write; Mux does it explicitly, with a deadline and outside of the
// accept loop. The dialling side has done the handshake when Dial returns.
func WithTLS(inner Network, configs TLSConfigs) Network {
	return tlsNetwork{inner: inner, configs: configs}
}

type tlsNetwork struct {
	inner   Network
	configs TLSConfigs
}

func (n tlsNetwork) Listen(addr string) (net.Listener, error) {
	if n.configs.Server == nil {
		return nil, errors.New("wire: TLS network without a server configuration")
	}
	inner, err := n.inner.Listen(addr)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(inner, n.configs.Server), nil
}

func (n tlsNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if n.configs.Client == nil {
		return nil, errors.New("wire: TLS network without a client configuration")
	}
	raw, err := n.inner.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, n.configs.Client)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &net.OpError{Op: "dial", Net: "tls", Addr: raw.RemoteAddr(), Err: err}
	}
	return conn, nil
}
