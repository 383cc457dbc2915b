package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// maxMessage bounds the size of one message in bytes. Data without a size limit is streamed in much
// smaller pieces.
const maxMessage = 64 << 20

// NewServer returns the gRPC server of an agent.
func NewServer(impl pb.PeerServer) *grpc.Server {
	s := grpc.NewServer(
		grpc.Creds(wire.Credentials()),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(checkUnary), grpc.StreamInterceptor(checkStream),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterPeerServer(s, impl)
	return s
}

// Pool holds a conn to each peer address for which it has returned a client.
type Pool struct {
	dial func(ctx context.Context, addr string) (net.Conn, error)

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

// NewPool returns a pool over a dialer of gRPC conns ((*wire.Mux).DialGRPC).
func NewPool(dial func(ctx context.Context, addr string) (net.Conn, error)) *Pool {
	return &Pool{dial: dial, conns: map[string]*grpc.ClientConn{}}
}

// errClosed is the error of a closed pool.
var errClosed = errors.New("peer: the pool is closed")

// Client returns a client of the agent at a peer address. The client's first request dials, unless the pool has a
// conn to that address.
func (p *Pool) Client(addr string) (pb.PeerClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return nil, errClosed
	}
	if c, ok := p.conns[addr]; ok {
		return pb.NewPeerClient(c), nil
	}
	c, err := newConn(addr, p.dial)
	if err != nil {
		return nil, err
	}
	p.conns[addr] = c
	return pb.NewPeerClient(c), nil
}

// newConn returns a conn that dials when it is used first.
func newConn(addr string, dial func(ctx context.Context, addr string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient(
		"passthrough:///"+addr,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(wire.Credentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		// The delays are short, so that a restarted agent is reachable again soon.
		grpc.WithConnectParams(
			grpc.ConnectParams{
				MinConnectTimeout: 2 * time.Second,
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			},
		),
	)
}

// Only returns a client that dials an address anew and talks to nobody there but the voter with an id. Where there are no
// certificates, in dev mode, it cannot tell. The caller hangs up.
func (p *Pool) Only(addr, id string) (client pb.PeerClient, hang func(), err error) {
	c, err := newConn(addr, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := p.dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		who, err := identity.PeerOf(conn)
		if err == nil && (who.ID != id || who.Role != identity.Voter) {
			_ = conn.Close()
			return nil, fmt.Errorf("%w: %s %s answers at %s, where voter %s was expected", identity.ErrWrongPeer, who.Role, who.ID, addr, id)
		}
		return conn, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return pb.NewPeerClient(c), func() { _ = c.Close() }, nil
}

// Drop closes the conn to an address, so that the first request of the next client of that address dials again.
func (p *Pool) Drop(addr string) {
	p.mu.Lock()
	c := p.conns[addr]
	delete(p.conns, addr)
	p.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// Close closes all conns.
func (p *Pool) Close() error {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	var errs error
	for _, c := range conns {
		errs = errors.Join(errs, c.Close())
	}
	return errs
}
