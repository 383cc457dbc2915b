package member

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup/voters"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// Member is one life of this agent's Raft member: a replica of the state, and
// the leader's duties while this agent leads.
type Member struct {
	*replica.Replica
	// Box encrypts and decrypts values of the state.
	Box    *sealed.Box
	cfg    *Config
	terms  *leader.Runner
	voters *voters.Controller
	lead   atomic.Pointer[Leadership] // of the term that began last; nil before the first
	// distrusted is set when the state was found to be wrong, faults has the fault for the supervisor.
	distrusted atomic.Bool
	faults     chan error
	resealed   chan struct{} // has a value when the log must be replaced, because it has values in the clear or under an old key
	stores     *logstore.Stores
}

// Leadership returns the duties of the current term. ok is false while this
// agent does not lead, or leads and has not restored its duties yet.
func (m *Member) Leadership() (l *Leadership, ok bool) {
	l = m.lead.Load()
	_, ready := m.terms.Ready()
	return l, l != nil && ready
}

// statusTimeout bounds a request for another agent's status in Raft.
const statusTimeout = time.Second

// askStatus asks the agent at a peer address, or a wire.Target, for its status in Raft. mesh is set if
// that agent is a candidate for this one's Raft group. An answer counts only if it is about the agent that gave it, and a worker's
// says nothing about the group.
func askStatus(ctx context.Context, peers Peers, addr, mesh string) (*pb.StatusResponse, error) {
	c, err := peers.Client(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var from peer.Peer
	st, err := c.Status(ctx, &pb.StatusRequest{Mesh: mesh}, grpc.Peer(&from))
	if err != nil {
		return nil, err
	}
	info, ok := from.AuthInfo.(wire.PeerInfo)
	switch {
	case !ok || info.ID == "": // without certificates, in dev mode
	case st.Id != info.ID:
		return nil, fmt.Errorf("agent %s answers as agent %s", info.ID, st.Id)
	case info.Role != identity.Voter:
		return &pb.StatusResponse{Id: st.Id, Build: st.Build, FeatureLevel: st.FeatureLevel}, nil
	}
	return st, nil
}

// PeerAddr returns the peer address at which an agent is known to be now.
func PeerAddr(m Mesh, id string) (string, error) {
	if other, ok := m.Member(id); ok && other.RPCAddr != "" {
		return other.RPCAddr, nil
	}
	return "", fmt.Errorf("agent %s is not in this agent's view of the mesh", id)
}
