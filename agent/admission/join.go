package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// askTimeout bounds one request to a voter.
const askTimeout = 5 * time.Second

// Dial opens the door of the agent at a peer address. The caller hangs up.
func Dial(network wire.Network, tls *tls.Config, addr string) (pb.DoorClient, func(), error) {
	secure := wire.WithTLS(network, wire.TLSConfigs{Client: tls})
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return wire.Dial(ctx, secure, addr, wire.ProtocolDoor)
		}),
		grpc.WithTransportCredentials(wire.Credentials()),
	)
	if err != nil {
		return nil, nil, err
	}
	return pb.NewDoorClient(conn), func() { _ = conn.Close() }, nil
}

// Joiner joins a mesh with a token.
type Joiner struct {
	Dir     string // the data directory
	Token   identity.JoinToken
	Names   []string     // of the API
	Network wire.Network // nil: that of the machine
	Logger  *slog.Logger
}

// Join returns the membership that the data directory keeps. If there is none, it asks the voters that the join token names, until
// one of them admits the agent, refuses it, or ctx ends.
func (j Joiner) Join(ctx context.Context) (*identity.Membership, error) {
	m, err := identity.LoadMembership(j.Dir)
	switch {
	case err == nil && (m.Mesh != ""):
		return m, nil
	case errors.Is(err, fs.ErrNotExist):
		// The key is on the disk before it is used: an answer that is lost can be asked for again.
		m = identity.NewMembership()
		err = m.Save(j.Dir)
	}
	if err != nil {
		return nil, err
	}
	agent, err := identity.LoadOrCreateID(j.Dir)
	if err != nil {
		return nil, err
	}
	csr, err := identity.Request(m.Key)
	if err != nil {
		return nil, err
	}
	api, err := identity.APIRequest(m.Key)
	if err != nil {
		return nil, err
	}
	network := j.Network
	if network == nil {
		network = wire.TCP(nil)
	}
	request := &pb.JoinRequest{Token: j.Token.ID(), Secret: j.Token.Secret(), Agent: agent, Csr: csr, ApiCsr: api, Names: j.Names}
	answer, err := first(ctx, j.Token.Addrs, j.Logger, func(ctx context.Context, addr string) (*pb.Admission, error) {
		c, hang, err := Dial(network, j.Token.DoorConfig(), addr)
		if err != nil {
			return nil, err
		}
		defer hang()
		return c.Join(ctx, request)
	})
	if err != nil {
		return nil, fmt.Errorf("join the mesh: %w", err)
	}
	next, err := m.Admit(admission(answer))
	if err != nil {
		return nil, fmt.Errorf("join the mesh: %w", err)
	}
	j.Logger.Info("the mesh has admitted this agent", "id", agent, "kind", string(next.Role))
	return next, next.Save(j.Dir)
}

// first asks voters at addresses, one after the other and again, until one answers or refuses for good.
func first(ctx context.Context, addrs func() []string, log *slog.Logger, call func(context.Context, string) (*pb.Admission, error)) (
	*pb.Admission, error) {
	why := ""
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		list := addrs()
		for _, addr := range list {
			one, cancel := context.WithTimeout(ctx, askTimeout)
			answer, err := call(one, addr)
			cancel()
			switch {
			case err == nil:
				return answer, nil
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case final(err):
				return nil, fmt.Errorf("the voter at %s: %s", addr, status.Convert(err).Message())
			}
			if next := status.Convert(err).Message(); next != why {
				why = next
				log.Warn("no voter has answered yet; this agent tries again", "addr", addr, "error", why)
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// admission returns a voter's answer in the form that package identity takes.
func admission(a *pb.Admission) *identity.Admission {
	return &identity.Admission{
		Mesh: a.Mesh, Role: identity.Role(a.Role), Zone: a.Zone, API: a.Api,
		Certificates: identity.Certificates{Agent: a.Certificate, API: a.ApiCertificate, Browser: a.Browser},
		CAs:          a.Cas, Gossip: a.Gossip, Peers: a.Peers, Seeds: a.Seeds, SealedCA: a.SealedCa,
		Ring: member.GossipRing(a.Ring), CAVersion: a.Bundle.GetVersion(), Bridges: a.Bundle.GetBridges(),
	}
}
