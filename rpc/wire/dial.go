package wire

import (
	"context"
	"fmt"
	"net"
	"time"
)

// DialGRPC opens a conn for gRPC to another agent's peer port. It fits grpc.WithContextDialer.
func (m *Mux) DialGRPC(ctx context.Context, addr string) (net.Conn, error) {
	return m.dial(ctx, addr, ProtocolGRPC)
}

// DialHTTP opens a conn for forwarded HTTP to another agent's peer port. It fits http.Transport.DialContext when the
// network argument is dropped.
func (m *Mux) DialHTTP(ctx context.Context, addr string) (net.Conn, error) {
	return m.dial(ctx, addr, ProtocolHTTP)
}

func (m *Mux) dial(ctx context.Context, addr string, protocol Protocol) (net.Conn, error) {
	return Dial(ctx, m.cfg.Network, addr, protocol)
}

// Dial opens a conn of one protocol to a peer port. It is for callers without a Mux, such as the
// bootstrap and tests.
func Dial(ctx context.Context, network Network, addr string, protocol Protocol) (net.Conn, error) {
	conn, err := network.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s for %s: %w", addr, protocol, err)
	}
	setPatience(conn, protocol)
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetWriteDeadline(deadline)
	}
	if _, err := conn.Write([]byte{byte(protocol)}); err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s for %s: %w", addr, protocol, err)
	}
	conn.SetWriteDeadline(time.Time{})
	return conn, nil
}
