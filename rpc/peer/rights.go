package peer

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// callers are the agents that may call a method.
type callers uint8

const (
	anyAgent   callers = iota + 1 // as itself: the method checks what the agent may ask about
	votersOnly                    // agents whose certificate has the role voter
)

// rights has who may call each method. A method without a row is refused.
var rights = map[string]callers{
	pb.Peer_Status_FullMethodName:         anyAgent,
	pb.Peer_Session_FullMethodName:        anyAgent,
	pb.Peer_Blob_FullMethodName:           anyAgent,
	pb.Peer_ResourceSet_FullMethodName:    anyAgent,
	pb.Peer_Ticket_FullMethodName:         anyAgent,
	pb.Peer_Changes_FullMethodName:        anyAgent,
	pb.Peer_Gossip_FullMethodName:         anyAgent,
	pb.Peer_Sums_FullMethodName:           votersOnly,
	pb.Peer_Quarantine_FullMethodName:     votersOnly,
	pb.Peer_TaskLog_FullMethodName:        votersOnly,
	pb.Peer_RunCommand_FullMethodName:     votersOnly,
	pb.Peer_Forward_FullMethodName:        votersOnly,
	pb.Peer_ListResources_FullMethodName:  votersOnly,
	pb.Peer_RemoveResource_FullMethodName: votersOnly,
	pb.Peer_Hold_FullMethodName:           votersOnly,
	pb.Peer_RecordKeys_FullMethodName:     votersOnly,
	pb.Peer_KeyringPut_FullMethodName:     votersOnly,
	pb.Peer_AgentLog_FullMethodName:       votersOnly,
	pb.Peer_Examine_FullMethodName:        votersOnly,
}

// roles checks the roles of callers.
type roles struct{ dev bool }

// check returns an error if the agent that makes a call may not call a method.
func (r roles) check(ctx context.Context, method string) error {
	role, known := wire.CallerRole(ctx)
	switch {
	case rights[method] == 0:
		return status.Errorf(codes.Unimplemented, "agents have no method %s", method)
	case !known && !r.dev:
		return status.Error(codes.Unauthenticated, "the caller has no certificate")
	case known && rights[method] == votersOnly && role != identity.Voter:
		id, _ := wire.CallerID(ctx)
		return status.Errorf(codes.PermissionDenied, "agent %s is a %s, and only voters may call %s", id, role, method)
	}
	return nil
}

func (r roles) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := r.check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (r roles) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := r.check(s.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, s)
}
