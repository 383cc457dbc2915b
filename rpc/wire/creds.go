package wire

import (
	"context"
	"net"

	"github.com/coopr/coopr/rpc/identity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Credentials returns gRPC's transport credentials for conns of the peer port. The TLS handshake has
// happened already (in Mux or DialGRPC), so the credentials only pass on the peer's id. Use them on
// both sides.
func Credentials() credentials.TransportCredentials { return passedOn{} }

// PeerInfo is the AuthInfo of a call that came through the peer port.
type PeerInfo struct {
	credentials.CommonAuthInfo
	ID   string        // the agent's id; empty in dev mode, where there is no TLS
	Role identity.Role // empty like ID
}

// AuthType returns the name of the method, for gRPC's diagnostics.
func (PeerInfo) AuthType() string { return "coopr-mesh" }

// CallerID returns the id of the agent that makes the gRPC call of ctx. ok is false if the conn has
// no identity, in dev mode or because it is not a peer conn.
func CallerID(ctx context.Context) (id string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, ok := p.AuthInfo.(PeerInfo)
	return info.ID, ok && info.ID != ""
}

// CallerRole returns the role of the agent that makes the gRPC call of ctx. ok is as of CallerID.
func CallerRole(ctx context.Context) (role identity.Role, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, ok := p.AuthInfo.(PeerInfo)
	return info.Role, ok && info.ID != ""
}

type passedOn struct{}

func (passedOn) info(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := PeerInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if p, err := identity.PeerOf(conn); err == nil {
		info.ID, info.Role, info.SecurityLevel = p.ID, p.Role, credentials.PrivacyAndIntegrity
	}
	return conn, info, nil
}

func (c passedOn) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.info(conn)
}

func (c passedOn) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.info(conn)
}

func (passedOn) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "coopr-mesh"}
}

func (c passedOn) Clone() credentials.TransportCredentials { return c }

// OverrideServerName does nothing: agents are identified by id, so there is no server name.
func (passedOn) OverrideServerName(string) error { return nil }
