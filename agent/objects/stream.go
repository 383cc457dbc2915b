package objects

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// OpenStream opens a stream to the host runtime of another agent. The stream ends
// with ctx.
func OpenStream(ctx context.Context, client pb.PeerClient) (Stream, error) {
	s, err := client.Changes(ctx)
	if err != nil {
		return nil, err
	}
	return openedStream{s}, nil
}

// Dialer returns a function that opens a stream to the host runtime of an agent.
// addr returns an agent's peer address, and client a client for an address.
func Dialer(addr func(agent string) (string, error), client func(addr string) (pb.PeerClient, error)) func(ctx context.Context,
	agent string) (Stream, error) {
	return func(ctx context.Context, agent string) (Stream, error) {
		at, err := addr(agent)
		if err != nil {
			return nil, err
		}
		c, err := client(at)
		if err != nil {
			return nil, err
		}
		return OpenStream(ctx, c)
	}
}

// openedStream is a stream that this agent opened.
type openedStream struct {
	grpc.BidiStreamingClient[pb.ChangePacket, pb.ChangePacket]
}

func (s openedStream) Close() { _ = s.CloseSend() }

// servedStream is a stream that another agent opened. Only that agent closes it.
type servedStream struct {
	grpc.BidiStreamingServer[pb.ChangePacket, pb.ChangePacket]
}

func (servedStream) Close() {}

// Serve serves a stream that another agent's host runtime opened, until it ends.
// The first packet names the caller; it must be the agent that the certificate names.
func (r *Runtime) Serve(s grpc.BidiStreamingServer[pb.ChangePacket, pb.ChangePacket]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	if caller, ok := wire.CallerID(s.Context()); ok && caller != "" && caller != first.From {
		return status.Errorf(codes.PermissionDenied, "agent %s claims to be agent %s", caller, first.From)
	}
	return r.Accept(first, servedStream{s})
}
