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
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultLifetime is how long the certificate of an agent that issues it to itself is valid. The certificate is renewed after
// two thirds of that time, so that a day remains for an agent that hangs or a clock that is ahead.
const DefaultLifetime = 72 * time.Hour

// backdate lets an agent whose clock is behind accept a certificate that was just issued.
const backdate = time.Hour

// Identity is the identity of one agent. It is safe for concurrent use.
type Identity struct {
	roots atomic.Pointer[x509.CertPool]
	// agent returns the certificate for other agents, api a source of certificates for an API with host names and addresses.
	agent func() (*tls.Certificate, error)
	api   func(names []string) func() (*tls.Certificate, error)
	// refused reports whether an agent was removed from the mesh.
	refused atomic.Pointer[func(id string) bool]
	// bridged is one more than the version of the CAs with which the agent needed a bridge to verify a voter, or 0.
	bridged atomic.Uint64
	store   *Store // nil if the identity is made from the mesh's secret
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
	ca, err := selfSigned(secret.caKey())
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	agent := &leaf{ca: ca, lifetime: lifetime, template: func() *x509.Certificate {
		return &x509.Certificate{
			Subject:     pkix.Name{CommonName: agentID},
			URIs:        []*url.URL{{Scheme: uriScheme, Host: "agent", Path: "/" + agentID}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}}
	i := &Identity{agent: agent.current}
	i.roots.Store(pool)
	i.api = func(names []string) func() (*tls.Certificate, error) {
		l := &leaf{ca: ca, lifetime: lifetime, template: func() *x509.Certificate { return apiTemplate(agentID, names) }}
		return l.current
	}
	if _, err := i.agent(); err != nil {
		return nil, err
	}
	return i, nil
}

// Store returns what keeps the agent's membership, or nil if the identity is nil or made from the mesh's secret.
func (i *Identity) Store() *Store {
	if i == nil {
		return nil
	}
	return i.store
}

// Refuse sets the function that reports whether an agent was removed from the mesh. Connections of such an agent are refused.
func (i *Identity) Refuse(removed func(id string) bool) { i.refused.Store(&removed) }

// ServerConfig returns the TLS configuration that answers peers: TLS 1.3 with this agent's
// certificate. The peer's certificate must be of the mesh's CA. A peer without a certificate is accepted if agents join by
// being admitted: it may ask for that and for nothing else.
func (i *Identity) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequestClientCert, // verified below
		SessionTicketsDisabled: true,                  // every conn authenticates again
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.agent() },
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 && i.store != nil {
				return nil
			}
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
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.agent() },
		VerifyConnection: func(state tls.ConnectionState) error {
			version := i.caVersion()
			got, err := i.verify(state, x509.ExtKeyUsageServerAuth)
			if err != nil {
				if errors.Is(err, ErrNotOfThisMesh) && i.follows(state) {
					i.bridged.Store(version + 1) // the agent needs a certificate under the new CA before others answer it
				}
				return err
			}
			if expect != "" && got.ID != expect {
				return fmt.Errorf("%w: %s answers where %s was expected", ErrWrongPeer, got.ID, expect)
			}
			return nil
		},
	}
}

// HTTPSConfig returns the TLS configuration that serves the API with a certificate of the mesh's CA
// for host names and addresses. It is for agents whose operator has configured no certificate. It
// does not ask for a client certificate. Peers do not accept its certificate as an agent's.
func (i *Identity) HTTPSConfig(names []string) *tls.Config {
	current := i.api(names)
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current() },
	}
}

// The reasons to refuse a peer's certificate. Errors of the handshake wrap one of them.
var (
	ErrNotOfThisMesh = errors.New("the peer's certificate is not of this mesh")
	ErrNoAgent       = errors.New("the peer's certificate names no agent")
	ErrWrongPeer     = errors.New("another agent answered")
	ErrRemoved       = errors.New("the agent was removed from the mesh")
)

// Peer is the agent at the other end of a conn.
type Peer struct {
	ID   string
	Role Role
	// CA is the name of the CA that has signed its certificate.
	CA string
}

// verify checks the certificate of a conn's peer against the mesh's CAs and returns the peer.
func (i *Identity) verify(state tls.ConnectionState, usage x509.ExtKeyUsage) (Peer, error) {
	p, err := verify(state, i.roots.Load(), usage, x509.NewCertPool())
	if err == nil {
		err = i.remains(p)
	}
	if err != nil {
		return Peer{}, err
	}
	return p, nil
}

// remains returns ErrRemoved for an agent that was removed from the mesh.
func (i *Identity) remains(p Peer) error {
	if refused := i.refused.Load(); refused != nil && (*refused)(p.ID) {
		return fmt.Errorf("%w: %s", ErrRemoved, p.ID)
	}
	return nil
}

// follows reports whether bridges lead from the CAs that the agent trusts to the certificate of a voter at the other end of a conn.
func (i *Identity) follows(state tls.ConnectionState) bool {
	p, err := verify(state, i.roots.Load(), x509.ExtKeyUsageServerAuth, bridges(state))
	return err == nil && p.Role == Voter && i.remains(p) == nil
}

// caVersion returns the version of the CAs that the agent trusts, at least: they are replaced before their version is.
func (i *Identity) caVersion() uint64 {
	if i.store == nil {
		return 0
	}
	return i.store.Membership().CAVersion
}

// bridges returns the other certificates that a peer has presented, which may lead from a CA to the one that has replaced it.
func bridges(state tls.ConnectionState) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range state.PeerCertificates[min(1, len(state.PeerCertificates)):] {
		pool.AddCert(c)
	}
	return pool
}

func verify(state tls.ConnectionState, roots *x509.CertPool, usage x509.ExtKeyUsage, bridges *x509.CertPool) (Peer, error) {
	if len(state.PeerCertificates) == 0 {
		return Peer{}, fmt.Errorf("%w: the peer presented none", ErrNotOfThisMesh)
	}
	cert := state.PeerCertificates[0]
	_, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{usage},
		Intermediates: bridges,
	})
	if err != nil {
		return Peer{}, fmt.Errorf("%w: %w", ErrNotOfThisMesh, err)
	}
	if err := signedByMesh(cert); err != nil {
		return Peer{}, err
	}
	return agentOf(cert)
}

const uriScheme = "coopr"

// agentOf returns the agent that a certificate names: coopr://MESH/ROLE/ID. A certificate that an agent has issued to itself
// names no role, coopr://agent/ID: every agent of such a mesh may do everything.
func agentOf(cert *x509.Certificate) (Peer, error) {
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != uriScheme {
		return Peer{}, ErrNoAgent
	}
	uri := cert.URIs[0]
	role, id, ok := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	if !ok && uri.Host == "agent" {
		role, id = string(Voter), role
	}
	if p := (Peer{ID: id, Role: Role(role), CA: cert.Issuer.CommonName}); validID(id) && p.Role.valid() {
		return p, nil
	}
	return Peer{}, ErrNoAgent
}

// ErrNoCertificate is the error of PeerOf for a conn whose other end has presented no certificate.
var ErrNoCertificate = fmt.Errorf("%w: it has presented no certificate", ErrNoAgent)

// PeerOf returns the agent at the other end of a conn whose handshake is done. It unwraps
// conns that have a NetConn method. It fails with ErrNoAgent on a conn without TLS, as in dev mode.
func PeerOf(conn net.Conn) (Peer, error) {
	for conn != nil {
		if t, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok {
			state := t.ConnectionState()
			switch {
			case !state.HandshakeComplete:
				return Peer{}, fmt.Errorf("%w: the TLS handshake is not complete", ErrNoAgent)
			case len(state.PeerCertificates) == 0:
				return Peer{}, ErrNoCertificate
			}
			return agentOf(state.PeerCertificates[0])
		}
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	return Peer{}, fmt.Errorf("%w: the connection does not use TLS", ErrNoAgent)
}

// Expiry returns when the certificate at the other end of a conn ends; ok is false if there is none. The handshake is done.
func Expiry(conn net.Conn) (end time.Time, ok bool) {
	if t, isTLS := conn.(interface{ ConnectionState() tls.ConnectionState }); isTLS {
		if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
			return certs[0].NotAfter, true
		}
	}
	return end, false
}

// leaf is a certificate with its key. A use after two thirds of its lifetime issues it again.
// Renewal on use needs no goroutine, and a suspended process cannot miss it.
type leaf struct {
	ca       *Authority
	lifetime time.Duration
	template func() *x509.Certificate

	mu      sync.Mutex
	cert    *tls.Certificate
	renewAt time.Time
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
	cert, err := issue(t, l.ca.cert, public, l.ca.key)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate: %w", err)
	}
	l.cert = &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: private, Leaf: cert}
	l.renewAt = now.Add(l.lifetime * 2 / 3)
	return l.cert, nil
}
