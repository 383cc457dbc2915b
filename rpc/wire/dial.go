package wire

import (
	"context"
	"fmt"
	"net"
	"time"
)

// DialGRPC opens a conn for gRPC to another agent's peer port, or to a Target. It fits grpc.WithContextDialer.
func (m *Mux) DialGRPC(ctx context.Context, target string) (net.Conn, error) {
	return m.dial(ctx, target, ProtocolGRPC)
}

func (m *Mux) dial(ctx context.Context, target string, protocol Protocol) (net.Conn, error) {
	t := parseTarget(target)
	conn, err := Dial(ctx, m.cfg.Network, t.Addr, protocol)
	if err != nil {
		return nil, err
	}
	if err := t.check(conn); err != nil {
		_ = inner(conn).Close()
		return nil, err
	}
	return conn, nil
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
