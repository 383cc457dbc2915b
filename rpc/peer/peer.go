package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// maxMessage bounds the size of one message in bytes. Data without a size limit is streamed in much
// smaller pieces.
const maxMessage = 64 << 20

// NewServer returns the gRPC server of an agent. Callers need certificates, except in dev mode.
func NewServer(impl pb.PeerServer, dev bool) *grpc.Server {
	r := roles{dev: dev}
	s := grpc.NewServer(
		grpc.Creds(wire.Credentials()),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(r.unary), grpc.StreamInterceptor(r.stream),
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

// Client returns a client of the agent at a peer address, or of a wire.Target. The client's first request dials, unless the pool
// has a conn to that target.
func (p *Pool) Client(addr string) (pb.PeerClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return nil, errClosed
	}
	if c, ok := p.conns[addr]; ok {
		return pb.NewPeerClient(c), nil
	}
	c, err := grpc.NewClient(
		"passthrough:///"+addr,
		grpc.WithContextDialer(p.dial),
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
	if err != nil {
		return nil, err
	}
	p.conns[addr] = c
	return pb.NewPeerClient(c), nil
}

// Drop closes the conns to an address, so that the first request of the next client of that address dials again.
func (p *Pool) Drop(addr string) {
	p.mu.Lock()
	var dropped []*grpc.ClientConn
	for target, c := range p.conns {
		if wire.AddrOf(target) == addr {
			dropped = append(dropped, c)
			delete(p.conns, target)
		}
	}
	p.mu.Unlock()
	for _, c := range dropped {
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
