package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/coopr/coopr/rpc/identity"
)

// Protocol is the first byte of a conn after the TLS handshake.
type Protocol byte

// The protocols of the peer port. Their values are part of the wire format: never change or reuse one.
const (
	ProtocolRaft Protocol = 'R'
	ProtocolGRPC Protocol = 'G'
	ProtocolHTTP Protocol = 'H'
	// ProtocolDoor is gRPC for agents that have no valid certificate yet and ask for one.
	ProtocolDoor Protocol = 'J'
)

func (p Protocol) String() string {
	switch p {
	case ProtocolRaft:
		return "raft"
	case ProtocolGRPC:
		return "grpc"
	case ProtocolHTTP:
		return "http"
	case ProtocolDoor:
		return "door"
	}
	return fmt.Sprintf("protocol %#02x", byte(p))
}

// maxDoors bounds the conns of one remote host that join or renew their certificates.
const maxDoors = 16

// MuxConfig configures a Mux.
type MuxConfig struct {
	// Network opens and accepts the conns. Required.
	Network Network
	// Addr is the address to listen on, "host:port". Required.
	Addr string
	// Advertise is the address at which other agents reach this port. If it is empty, it is the
	// listener's own.
	Advertise string
	// HandshakeTimeout bounds the TLS handshake of an incoming conn together with the wait for the
	// protocol byte. It also bounds the wait until the protocol's server accepts the conn.
	// Default 5 s.
	HandshakeTimeout time.Duration
	// MaxConnsPerRemote bounds the gRPC and HTTP conns of one remote host, including those in
	// handshake. Raft conns have a separate bound of the same size, so that other conns never
	// displace them. Default 256; negative: no bound.
	MaxConnsPerRemote int
	// Logger receives messages about refused conns, at debug and warn level. Default: discard.
	Logger *slog.Logger
}

// Mux shares one port among Raft, gRPC and forwarded HTTP. A client that is slow, silent or sends
// invalid bytes costs one goroutine until the handshake time-out. It does not delay other clients.
type Mux struct {
	cfg       MuxConfig
	log       *slog.Logger
	inner     net.Listener
	advertise net.Addr
	life      context.Context // ends with Close, and with it dials and handshakes
	end       context.CancelFunc
	wg        sync.WaitGroup

	grpc, http, door *subListener

	mu   sync.Mutex
	raft *subListener // the latest one; see Raft
	// raftTaken is true if the method Raft has returned the listener raft already.
	raftTaken bool
	closed    bool
	open      map[net.Conn]identity.Peer // all incoming conns that are not closed yet; those in handshake have no peer
	over      func(identity.Peer) bool   // agents that are hung up on; nil: none
	counts    map[string]int             // per remote host: conns in handshake, gRPC and HTTP
	rafts     map[string]int             // per remote host: Raft conns
	doors     map[string]int             // per remote host: conns of agents that join
}

// NewMux returns a Mux that is bound to its port. Run serves the conns.
func NewMux(cfg MuxConfig) (*Mux, error) {
	if cfg.Network == nil {
		return nil, errors.New("wire: a mux needs a network")
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = 5 * time.Second
	}
	if cfg.MaxConnsPerRemote == 0 {
		cfg.MaxConnsPerRemote = 256
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	inner, err := cfg.Network.Listen(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen for peers on %s: %w", cfg.Addr, err)
	}
	life, end := context.WithCancel(context.Background())
	m := &Mux{
		cfg: cfg, log: cfg.Logger, inner: inner, advertise: inner.Addr(), life: life, end: end,
		open: map[net.Conn]identity.Peer{}, counts: map[string]int{}, rafts: map[string]int{}, doors: map[string]int{},
	}
	if cfg.Advertise != "" {
		m.advertise = Addr(cfg.Advertise)
	}
	m.raft = newSubListener(life, m.advertise)
	m.grpc = newSubListener(life, m.advertise)
	m.http = newSubListener(life, m.advertise)
	m.door = newSubListener(life, m.advertise)
	return m, nil
}

// Addr is a "host:port" as a net.Addr.
type Addr string

// Network returns "tcp": TCP, or a simulation of it, dials the address.
func (Addr) Network() string { return "tcp" }

func (a Addr) String() string { return string(a) }

// Addr returns the address at which other agents reach this port.
func (m *Mux) Addr() net.Addr { return m.advertise }

// GRPC returns the listener for conns that start with the gRPC byte.
func (m *Mux) GRPC() net.Listener { return m.grpc }

// HTTP returns the listener for conns that start with the HTTP byte: requests that another agent forwards.
func (m *Mux) HTTP() net.Listener { return m.http }

// Door returns the listener for conns of agents that have no valid certificate yet and ask for one.
func (m *Mux) Door() net.Listener { return m.door }

// Hang closes all conns from other agents for which over returns true, now and until the next call.
func (m *Mux) Hang(over func(identity.Peer) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = over
	for conn, p := range m.open {
		if p.ID != "" && over(p) {
			_ = inner(conn).Close()
		}
	}
}

// known notes which agent is at the other end of a conn. It reports whether the conn may go on.
func (m *Mux) known(conn net.Conn, p identity.Peer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.open[conn]; ok {
		m.open[conn] = p
	}
	return m.over == nil || !m.over(p)
}

// inner returns the conn below TLS. The close message of TLS would wait for seconds on a peer that does not read.
func inner(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// Run serves the port until ctx ends or the listener fails. Then it closes the port, the
// sub-listeners and every conn that was accepted through them, so a graceful shutdown of a server
// must be complete before ctx ends. Run returns nil if ctx ended or Close was called.
func (m *Mux) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { m.Close() })
	defer stop()
	defer m.wg.Wait()
	defer m.Close()
	delay := time.Duration(0)
	for {
		conn, err := m.inner.Accept()
		switch {
		case err == nil:
			delay = 0
			m.begin(conn)
		case m.isClosed():
			return nil
		case isTemporary(err): // no file descriptors left, or the conn ended before it was accepted
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			m.log.Warn("cannot accept a peer's connection", "addr", m.cfg.Addr, "error", err, "retry_in", delay)
			select {
			case <-time.After(delay):
			case <-m.life.Done():
				return nil
			}
		default:
			return fmt.Errorf("accept peers on %s: %w", m.cfg.Addr, err)
		}
	}
}

// Close releases the port. Run calls it at its end. A Mux that never ran must be closed by its owner.
func (m *Mux) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	m.end()
	err := m.inner.Close()
	for _, sub := range []*subListener{m.raft, m.grpc, m.http, m.door} {
		sub.Close()
	}
	for conn := range m.open {
		inner(conn).Close()
	}
	return err
}

func (m *Mux) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

func isTemporary(err error) bool {
	var ne interface{ Temporary() bool } // deprecated in general, but Accept still documents it
	return errors.As(err, &ne) && ne.Temporary()
}

// begin counts a new conn and greets it on its own goroutine. It refuses the conn if its host has too many.
func (m *Mux) begin(conn net.Conn) {
	remote := hostOf(conn.RemoteAddr())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		conn.Close()
		return
	}
	if limit := m.cfg.MaxConnsPerRemote; limit > 0 && m.counts[remote]+m.rafts[remote] >= 2*limit {
		m.log.Warn("too many connections from one peer, refusing another", "peer", remote, "limit", 2*limit)
		conn.Close()
		return
	}
	m.counts[remote]++
	m.open[conn] = identity.Peer{}
	m.wg.Go(func() { m.greet(conn, remote) })
}

// greet does a conn's TLS handshake and passes the conn to the server of its protocol.
func (m *Mux) greet(conn net.Conn, remote string) {
	protocol, err := m.handshake(conn)
	if err != nil {
		// An empty conn is a port check and is not logged.
		if !errors.Is(err, io.EOF) {
			m.log.Debug("refused a peer's connection", "peer", conn.RemoteAddr().String(), "error", err)
		}
		m.drop(conn, remote, m.counts)
		return
	}
	var sub *subListener
	counts := m.counts
	switch protocol {
	case ProtocolRaft:
		m.mu.Lock()
		sub, counts = m.raft, m.rafts
		m.mu.Unlock()
	case ProtocolGRPC:
		sub = m.grpc
	case ProtocolHTTP:
		sub = m.http
	case ProtocolDoor:
		sub, counts = m.door, m.doors
	default:
		m.log.Debug("refused a peer's connection", "peer", conn.RemoteAddr().String(), "error", "unknown "+protocol.String())
		m.drop(conn, remote, m.counts)
		return
	}
	setPatience(conn, protocol)
	if !m.admit(remote, counts, protocol == ProtocolDoor) {
		m.log.Warn("too many connections from one peer, refusing another", "peer", remote, "protocol", protocol.String(),
			"limit", m.cfg.MaxConnsPerRemote)
		m.drop(conn, remote, m.counts)
		return
	}
	// An agent that renews its certificate dials anew before the old one ends.
	over := func() bool { return true }
	if end, ok := identity.Expiry(conn); ok {
		over = time.AfterFunc(time.Until(end), func() { _ = inner(conn).Close() }).Stop
	}
	tracked := &muxConn{Conn: conn, onClose: func() { over(); m.forget(conn, remote, counts) }}
	timer := time.NewTimer(m.cfg.HandshakeTimeout)
	defer timer.Stop()
	select {
	case sub.conns <- tracked:
		return
	case <-sub.done:
	case <-m.life.Done():
	case <-timer.C:
		m.log.Warn("no server took a peer's connection in time", "peer", remote, "protocol", protocol.String())
	}
	tracked.Close()
}

// admit moves a conn from those in handshake to the count of its protocol. It reports false if that
// count has reached its bound.
func (m *Mux) admit(remote string, counts map[string]int, door bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	decrement(m.counts, remote)
	limit := m.cfg.MaxConnsPerRemote
	if door {
		limit = min(limit, maxDoors) // negative: no bound
	}
	if limit > 0 && counts[remote] >= limit {
		m.counts[remote]++ // drop decrements it
		return false
	}
	counts[remote]++
	return true
}

func (m *Mux) drop(conn net.Conn, remote string, counts map[string]int) {
	conn.Close()
	m.forget(conn, remote, counts)
}

func (m *Mux) forget(conn net.Conn, remote string, counts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, conn)
	decrement(counts, remote)
}

func decrement(counts map[string]int, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

func (m *Mux) handshake(conn net.Conn) (Protocol, error) {
	deadline := time.Now().Add(m.cfg.HandshakeTimeout)
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if t, ok := conn.(*tls.Conn); ok {
		if err := t.HandshakeContext(m.life); err != nil {
			return 0, err
		}
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return 0, err
	}
	protocol := Protocol(first[0])
	if err := m.mayUse(conn, protocol); err != nil {
		return 0, err
	}
	return protocol, conn.SetDeadline(time.Time{})
}

// ErrRole is the error for an agent that uses a protocol that its role does not allow.
var ErrRole = errors.New("the agent's role does not allow this")

// mayUse returns an error if the other end of a conn may not use a protocol: Raft is for voters, and an agent without a
// certificate may only ask for one.
func (m *Mux) mayUse(conn net.Conn, p Protocol) error {
	if _, ok := conn.(*tls.Conn); !ok || p == ProtocolDoor {
		return nil
	}
	peer, err := identity.PeerOf(conn)
	switch {
	case err != nil:
		return err
	case !m.known(conn, peer):
		return fmt.Errorf("%w: %s", identity.ErrRemoved, peer.ID)
	case p == ProtocolRaft && peer.Role != identity.Voter:
		return fmt.Errorf("%w: agent %s is a %s and speaks Raft", ErrRole, peer.ID, peer.Role)
	}
	return nil
}

func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}

// muxConn is an accepted conn. Close removes it from the counts.
type muxConn struct {
	net.Conn
	once    sync.Once
	onClose func()
}

func (c *muxConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.onClose)
	return err
}

// NetConn returns the wrapped conn, in which identity.PeerOf finds the TLS state.
func (c *muxConn) NetConn() net.Conn { return c.Conn }

// subListener is the net.Listener of one protocol.
type subListener struct {
	addr  net.Addr
	life  context.Context // the mux's
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newSubListener(life context.Context, addr net.Addr) *subListener {
	return &subListener{addr: addr, life: life, conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *subListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
	case <-l.life.Done():
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
}

func (l *subListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *subListener) Addr() net.Addr { return l.addr }
