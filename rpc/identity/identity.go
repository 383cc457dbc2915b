package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// DefaultLifetime is how long an agent's certificate is valid. The certificate is renewed after two
// thirds of that time, so that a day remains for an agent that hangs or a clock that is ahead.
const DefaultLifetime = 72 * time.Hour

// backdate lets an agent whose clock is behind accept a certificate that was just issued.
const backdate = time.Hour

// Identity is the identity of one agent. It is safe for concurrent use.
type Identity struct {
	id       string
	lifetime time.Duration
	ca       *authority
	agent    *leaf
}

// New returns the identity of an agent, made from the mesh secret and the agent's id.
func New(secret Secret, agentID string) (*Identity, error) {
	return newIdentity(secret, agentID, DefaultLifetime)
}

func newIdentity(secret Secret, agentID string, lifetime time.Duration) (*Identity, error) {
	if secret.IsZero() {
		return nil, errors.New("identity: no mesh secret")
	}
	if !validID(agentID) {
		return nil, fmt.Errorf("identity: %q is not an agent id", agentID)
	}
	ca, err := newAuthority(secret)
	if err != nil {
		return nil, err
	}
	i := &Identity{id: agentID, lifetime: lifetime, ca: ca}
	i.agent = i.newLeaf(func() *x509.Certificate {
		return &x509.Certificate{
			Subject:     pkix.Name{CommonName: agentID},
			URIs:        []*url.URL{agentURI(agentID)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	})
	if _, err := i.agent.current(); err != nil {
		return nil, err
	}
	return i, nil
}

// ServerConfig returns the TLS configuration that answers peers: TLS 1.3 with this agent's
// certificate. The peer's certificate must be of the mesh's CA.
func (i *Identity) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert, // verified below
		SessionTicketsDisabled: true,                     // every conn authenticates again
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.agent.current() },
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := i.verify(state, x509.ExtKeyUsageClientAuth)
			return err
		},
	}
}

// ClientConfig returns the TLS configuration that connects to peers. With an id it accepts only that
// agent, and refuses another one with ErrWrongPeer. With "" it accepts any agent of the mesh.
func (i *Identity) ClientConfig(expect string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// Agents are known by id, not by host name: VerifyConnection checks the chain and the id instead.
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.agent.current() },
		VerifyConnection: func(state tls.ConnectionState) error {
			got, err := i.verify(state, x509.ExtKeyUsageServerAuth)
			if err != nil {
				return err
			}
			if expect != "" && got != expect {
				return fmt.Errorf("%w: %s answers where %s was expected", ErrWrongPeer, got, expect)
			}
			return nil
		},
	}
}

// HTTPSConfig returns the TLS configuration that serves the API with a certificate of the mesh's CA
// for host names and addresses. It is for agents whose operator has configured no certificate. It
// does not ask for a client certificate. Peers do not accept its certificate as an agent's.
func (i *Identity) HTTPSConfig(names []string) *tls.Config {
	l := i.newLeaf(func() *x509.Certificate {
		t := &x509.Certificate{
			Subject:     pkix.Name{CommonName: "Coopr API of agent " + i.id},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		for _, name := range names {
			if ip, err := netip.ParseAddr(name); err == nil {
				t.IPAddresses = append(t.IPAddresses, net.IP(ip.Unmap().AsSlice()))
			} else {
				t.DNSNames = append(t.DNSNames, name)
			}
		}
		return t
	})
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return l.current() },
	}
}

// The reasons to refuse a peer's certificate. Errors of the handshake wrap one of them.
var (
	ErrNotOfThisMesh = errors.New("the peer's certificate is not of this mesh")
	ErrNoAgent       = errors.New("the peer's certificate names no agent")
	ErrWrongPeer     = errors.New("another agent answered")
)

// verify checks the certificate of a conn's peer against the mesh's CA and returns the peer's agent id.
func (i *Identity) verify(state tls.ConnectionState, usage x509.ExtKeyUsage) (string, error) {
	if len(state.PeerCertificates) == 0 {
		return "", fmt.Errorf("%w: the peer presented none", ErrNotOfThisMesh)
	}
	cert := state.PeerCertificates[0]
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: i.ca.pool, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{usage},
		Intermediates: x509.NewCertPool(),
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotOfThisMesh, err)
	}
	return agentOf(cert)
}

func agentURI(id string) *url.URL { return &url.URL{Scheme: "coopr", Host: "agent", Path: "/" + id} }

func agentOf(cert *x509.Certificate) (string, error) {
	if len(cert.URIs) != 1 {
		return "", ErrNoAgent
	}
	uri := cert.URIs[0]
	id := strings.TrimPrefix(uri.Path, "/")
	if uri.Scheme != "coopr" || uri.Host != "agent" || !validID(id) {
		return "", ErrNoAgent
	}
	return id, nil
}

// PeerID returns the id of the agent at the other end of a conn whose handshake is done. It unwraps
// conns that have a NetConn method. It fails with ErrNoAgent on a conn without TLS, as in dev mode.
func PeerID(conn net.Conn) (string, error) {
	for conn != nil {
		if t, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
			state := t.ConnectionState()
			if !state.HandshakeComplete || len(state.PeerCertificates) == 0 {
				return "", fmt.Errorf("%w: the TLS handshake is not complete", ErrNoAgent)
			}
			return agentOf(state.PeerCertificates[0])
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	return "", fmt.Errorf("%w: the connection does not use TLS", ErrNoAgent)
}

// leaf is a certificate with its key. A use after two thirds of its lifetime issues it again.
// Renewal on use needs no goroutine, and a suspended process cannot miss it.
type leaf struct {
	ca       *authority
	lifetime time.Duration
	template func() *x509.Certificate

	mu      sync.Mutex
	cert    *tls.Certificate
	renewAt time.Time
}

func (i *Identity) newLeaf(template func() *x509.Certificate) *leaf {
	return &leaf{ca: i.ca, lifetime: i.lifetime, template: template}
}

func (l *leaf) current() (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.cert != nil && now.Before(l.renewAt) {
		return l.cert, nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	t := l.template()
	t.NotBefore, t.NotAfter = now.Add(-backdate), now.Add(l.lifetime)
	cert, err := l.ca.issue(t, public)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	l.cert = &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: private, Leaf: cert}
	l.renewAt = now.Add(l.lifetime * 2 / 3)
	return l.cert, nil
}
