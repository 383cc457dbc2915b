package peer

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Each method has a row, and each row is obeyed: for a voter, a worker, a caller without a certificate, and in dev mode.
func TestRightsOfRoles(t *testing.T) {
	var methods []string
	for _, m := range pb.Peer_ServiceDesc.Methods {
		methods = append(methods, "/"+pb.Peer_ServiceDesc.ServiceName+"/"+m.MethodName)
	}
	for _, s := range pb.Peer_ServiceDesc.Streams {
		methods = append(methods, "/"+pb.Peer_ServiceDesc.ServiceName+"/"+s.StreamName)
	}
	if len(methods) != len(rights) {
		t.Errorf("%d methods, and %d rows", len(methods), len(rights))
	}
	as := func(role identity.Role) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: wire.PeerInfo{ID: "x", Role: role}})
	}
	stranger := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: wire.PeerInfo{}})
	r := roles{}
	for _, m := range methods {
		if rights[m] == 0 {
			t.Errorf("%s has no row", m)
		}
		if err := r.check(as(identity.Voter), m); err != nil {
			t.Errorf("a voter: %v", err)
		}
		want := codes.OK
		if rights[m] == votersOnly {
			want = codes.PermissionDenied
		}
		if err := r.check(as(identity.Worker), m); status.Code(err) != want {
			t.Errorf("a worker: %v", err)
		}
		if err := r.check(stranger, m); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s without a certificate: %v", m, err)
		}
		if err := (roles{dev: true}).check(stranger, m); err != nil {
			t.Errorf("%s in dev mode: %v", m, err)
		}
	}
	if err := r.check(as(identity.Voter), "/other/Method"); status.Code(err) != codes.Unimplemented {
		t.Error("an unknown method:", err)
	}
}
