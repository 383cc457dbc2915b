package listener

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/coopr/coopr/internal/bounds"
)

// limited is a listener that closes a new connection of a client address that has
// too many open. Other clients do not wait.
type limited struct {
	net.Listener
	limit func() int // connections per client address; 0: no limit
	log   *slog.Logger

	mu   sync.Mutex
	open map[netip.Prefix]int // by the client's address; of IPv6, by its network
}

// Accept waits for the next connection that is within the limit.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := bounds.Source(conn.RemoteAddr().String())
		limit := l.limit()
		l.mu.Lock()
		full := limit > 0 && l.open[client] >= limit
		if !full {
			l.open[client]++
		}
		l.mu.Unlock()
		if !full {
			return &countedConn{Conn: conn, release: sync.OnceFunc(func() { l.release(client) })}, nil
		}
		l.log.Warn("a client has too many connections open; the new one is closed", "client", client.String(), "limit", limit)
		_ = conn.Close() // nothing was sent on it
	}
}

func (l *limited) release(client netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[client]--; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// countedConn is a connection that no longer counts once it is closed.
type countedConn struct {
	net.Conn
	release func()
}

// Close closes the connection. It may be called more than once.
func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}
