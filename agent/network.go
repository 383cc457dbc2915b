package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/listener"
	"github.com/coopr/coopr/agent/service"
	"github.com/coopr/coopr/rpc/peer"
	"github.com/coopr/coopr/rpc/wire"
)

// network has the agent's ports, and its connections to other agents.
type network struct {
	plain   wire.Network    // without TLS
	mux     *wire.Mux       // the peer port
	peers   *peer.Pool      // gRPC connections
	forward *http.Transport // API requests that are passed on to the leader
	api     net.Listener    // nil if the API has no port of its own
}

// listen binds the agent's ports.
func (a *Agent) listen() (err error) {
	n := &a.net
	if n.plain = a.cfg.Network; n.plain == nil {
		n.plain = wire.TCP(nil)
	}
	transport := n.plain
	if a.identity != nil {
		transport = wire.WithTLS(n.plain, wire.TLSConfigs{Server: a.identity.ServerConfig(), Client: a.identity.ClientConfig("")})
	}
	advertise, err := config.Advertised("peer.advertise", a.cfg.Peer.Addr, a.cfg.Peer.Advertise)
	if err != nil {
		return err
	}
	n.mux, err = wire.NewMux(wire.MuxConfig{
		Network: transport, Addr: a.cfg.Peer.Addr, Advertise: advertise, Logger: a.log,
		MaxConnsPerRemote: cmp.Or(a.cfg.Limits.PeerConns, -1),
	})
	if err != nil {
		return fmt.Errorf("peer port: %w", err)
	}
	n.peers = peer.NewPool(n.mux.DialGRPC)
	n.forward = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			conn, err := n.mux.DialHTTP(ctx, addr)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", service.ErrNotSent, err)
			}
			return conn, nil
		},
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
	if a.cfg.NoHTTP {
		return nil
	}
	n.api, err = listener.Listen(listener.Config{Settings: a.settings.Load, MeshTLS: a.meshTLS, Logger: a.log})
	if err != nil {
		return fmt.Errorf("API port: %w", err)
	}
	return nil
}

// meshTLS returns the TLS configuration of the API for an operator who has given no certificate.
func (a *Agent) meshTLS() *tls.Config {
	names := append([]string{"localhost", "127.0.0.1", a.cfg.Name}, a.cfg.HTTP.Names...)
	if h, _, err := net.SplitHostPort(a.net.mux.Addr().String()); err == nil {
		names = append(names, h)
	}
	return a.identity.HTTPSConfig(names)
}

// apiAddr returns the address at which other hosts reach the API.
func (n *network) apiAddr() string {
	if n.api == nil {
		return n.mux.Addr().String()
	}
	hostname, port, err := net.SplitHostPort(n.api.Addr().String())
	if ip := net.ParseIP(hostname); err == nil && ip != nil && ip.IsUnspecified() {
		// The API is bound to all addresses; the address of the peer port is one of them.
		if h, _, err := net.SplitHostPort(n.mux.Addr().String()); err == nil {
			return net.JoinHostPort(h, port)
		}
	}
	return n.api.Addr().String()
}

// closeClients closes the connections to other agents.
func (n *network) closeClients() (err error) {
	if n.peers != nil {
		err = n.peers.Close()
	}
	if n.forward != nil {
		n.forward.CloseIdleConnections()
	}
	return err
}

// close closes the ports.
func (n *network) close() (err error) {
	if n.mux != nil {
		err = n.mux.Close()
	}
	if n.api != nil {
		if cerr := n.api.Close(); !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	return err
}
