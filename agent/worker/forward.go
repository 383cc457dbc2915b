package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/internal/ownhost"
	pb "github.com/coopr/coopr/rpc/proto"
)

const (
	// forwardDial bounds the time in which a node must accept a connection.
	forwardDial = 10 * time.Second
	// forwardPiece is the size of the largest piece of data that an agent sends.
	forwardPiece = 32 << 10
	// forwardIdle is how long a connection may carry nothing.
	forwardIdle = time.Hour
	// forwardsAtOnce bounds the connections that an agent has open to nodes at a time. Further ones are refused.
	forwardsAtOnce = 64
)

// Forward connects to a port of a node and carries bytes both ways, until the node has ended its direction or the caller goes.
func (s Server) Forward(peer grpc.BidiStreamingServer[pb.ForwardUp, pb.ForwardDown]) error {
	if !s.Worker.forwards.TryAcquire(1) {
		return status.Errorf(codes.ResourceExhausted, "%d connections to nodes go through this agent already; wait for one of them to end",
			forwardsAtOnce)
	}
	defer s.Worker.forwards.Release(1)
	return forward(peer)
}

// forward carries out Forward.
func forward(peer grpc.BidiStreamingServer[pb.ForwardUp, pb.ForwardDown]) error {
	first, err := peer.Recv()
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(first.Address)
	if err != nil {
		return status.Error(codes.InvalidArgument, "the node has no IP address with a port")
	}
	if err := mayReach(to.Addr(), first.OwnHost); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(peer.Context(), forwardDial)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to.String())
	cancel()
	if err != nil {
		return status.Errorf(codes.FailedPrecondition, "no connection to the node: %v", err)
	}
	defer conn.Close()
	defer context.AfterFunc(peer.Context(), func() { conn.Close() })()
	if err := peer.Send(&pb.ForwardDown{}); err != nil {
		return err
	}
	ended, end := context.WithCancelCause(context.Background())
	defer context.AfterFunc(ended, func() { conn.Close() })()
	idle := time.AfterFunc(forwardIdle, func() { end(errIdle) })
	defer idle.Stop()
	go upload(peer, conn, idle, end)
	for buf := make([]byte, forwardPiece); ; {
		n, err := conn.Read(buf)
		if n > 0 {
			idle.Reset(forwardIdle)
			if err := peer.Send(&pb.ForwardDown{Data: buf[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return status.Errorf(codes.Aborted, "the connection to the node broke: %v", cmp.Or(context.Cause(ended), err))
		}
	}
}

// errIdle is why a connection ends that carries nothing.
var errIdle = fmt.Errorf("it has carried nothing for %v", forwardIdle)

// upload writes to the node what the caller sends, and puts idle off. At the caller's end it ends that direction only. If it fails, it ends
// the connection.
func upload(peer grpc.BidiStreamingServer[pb.ForwardUp, pb.ForwardDown], conn net.Conn, idle *time.Timer, end context.CancelCauseFunc) {
	for {
		piece, err := peer.Recv()
		if errors.Is(err, io.EOF) {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			return
		}
		if err == nil {
			idle.Reset(forwardIdle)
			_, err = conn.Write(piece.Data)
		}
		if err != nil {
			end(err)
			return
		}
	}
}

// mayReach refuses the addresses of the agent's own machine, unless the caller may reach that, and those of links and metadata services.
func mayReach(a netip.Addr, ownHost bool) error {
	a = ownhost.Plain(a)
	switch {
	case ownHost && a.IsLoopback():
		return nil
	case ownhost.Reserved(a):
		return status.Errorf(codes.PermissionDenied, "%s is an address of the agent's own machine, of its links or of a metadata service", a)
	case ownHost:
		return nil
	}
	own, err := ownhost.Addresses()
	if err != nil {
		return status.Errorf(codes.Internal, "the addresses of this machine are unknown: %v", err)
	}
	if slices.Contains(own, a) {
		return status.Errorf(codes.PermissionDenied, "%s is an address of the agent's own machine", a)
	}
	return nil
}
