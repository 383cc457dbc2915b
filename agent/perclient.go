package agent

import (
	"log/slog"
	"net"
	"sync"
)

// perClient is a listener that hangs up on a client address which has as many
// connections open as it may. The others never wait for it.
type perClient struct {
	net.Listener
	limit func() int // 0: none
	log   *slog.Logger

	mu   sync.Mutex
	open map[string]int // by address, without the port
}

// Accept waits for the next connection that is within the limit.
func (l *perClient) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := conn.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(client); err == nil {
			client = host
		}
		limit := l.limit()
		l.mu.Lock()
		full := limit > 0 && l.open[client] >= limit
		if !full {
			l.open[client]++
		}
		l.mu.Unlock()
		if !full {
			return &countedConn{Conn: conn, gone: sync.OnceFunc(func() { l.gone(client) })}, nil
		}
		l.log.Warn("too many connections of one client, refusing another", "client", client, "limit", limit)
		_ = conn.Close() // nobody uses it
	}
}

func (l *perClient) gone(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// countedConn is a connection that is missed when it is closed.
type countedConn struct {
	net.Conn
	gone func()
}

// Close closes the connection; it may be called again.
func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.gone()
	return err
}
