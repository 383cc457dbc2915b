package identity

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Store keeps an agent's membership in memory and on the disk. It is safe for concurrent use.
type Store struct {
	dir string // "" for tests: nothing is written
	id  string
	own *Identity

	changes sync.Mutex // one at a time
	mu      sync.Mutex
	now     *Membership
	agent   *tls.Certificate
	api     *tls.Certificate
}

// Open returns the identity of an agent whose membership is in a data directory, or only in memory if dir is "". The first agent
// of a mesh makes its certificates: for a lifetime, and with the host names and addresses of its API.
func Open(dir, agentID string, names []string, lifetime time.Duration, m *Membership) (*Identity, error) {
	if !validID(agentID) {
		return nil, fmt.Errorf("identity: %q is not an agent id", agentID)
	}
	if m.Mesh == "" {
		return nil, errors.New("identity: no mesh has admitted this agent yet")
	}
	complete, err := m.Complete(agentID, names, time.Now(), lifetime)
	if err != nil {
		return nil, err
	}
	k := &Store{dir: dir, id: agentID}
	i := &Identity{id: agentID, store: k}
	i.agent = func() (*tls.Certificate, error) { k.mu.Lock(); defer k.mu.Unlock(); return k.agent, nil }
	i.api = func([]string) func() (*tls.Certificate, error) {
		return func() (*tls.Certificate, error) { k.mu.Lock(); defer k.mu.Unlock(); return k.api, nil }
	}
	k.own = i
	i.Refuse(func(id string) bool { return k.Membership().hasRemoved(id) })
	if complete == m {
		err = k.use(m)
	} else {
		err = k.put(complete)
	}
	if err != nil {
		return nil, err
	}
	if p, err := agentOf(k.agent.Leaf); err != nil || p.ID != agentID {
		return nil, fmt.Errorf("identity: the certificate is for agent %q, and this is agent %s: restore the whole data directory", p.ID, agentID)
	}
	return i, nil
}

// use makes a membership the present one. The caller holds no lock.
func (k *Store) use(m *Membership) error {
	pool, err := m.roots()
	if err != nil {
		return err
	}
	key := ed25519.NewKeyFromSeed(m.Key)
	agent, err := pair(m.Certificate, key)
	if err != nil {
		return err
	}
	// A newcomer knows the CA by its fingerprint only, so it is sent, too.
	agent.Certificate = append(agent.Certificate, m.CAs[0])
	api, err := pair(m.APICertificate, key)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.now, k.agent, k.api = m, agent, api
	k.mu.Unlock()
	k.own.roots.Store(pool)
	return nil
}

func pair(der []byte, key ed25519.PrivateKey) (*tls.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errors.New("identity: a certificate is damaged")
	}
	if !key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return nil, errors.New("identity: a certificate is for another key")
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}, nil
}

// put makes a membership the present one and writes it. It counts even if it cannot be written: a disk may be full or read-only.
func (k *Store) put(m *Membership) error {
	if err := k.use(m); err != nil {
		return err
	}
	if k.dir == "" {
		return nil
	}
	return m.Save(k.dir)
}

// Membership returns the present membership. The caller does not change it.
func (k *Store) Membership() *Membership {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now
}

// Change changes the membership, in memory even if it returns an error.
func (k *Store) Change(change func(*Membership)) error {
	k.changes.Lock()
	defer k.changes.Unlock()
	next := *k.Membership()
	change(&next)
	return k.put(&next)
}

// Names reports whether the certificate of the API has all these host names and addresses.
func (k *Store) Names(names []string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range names {
		if k.api.Leaf.VerifyHostname(n) != nil {
			return false
		}
	}
	return true
}

// RenewAt returns when the agent's certificates are to be renewed: when two thirds of their life are over, or earlier by a part of
// Lifetime.
func (k *Store) RenewAt(early time.Duration) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.agent.Leaf
	return c.NotAfter.Add(-life(c)/3 - time.Duration(float64(early)*float64(life(c))/float64(Lifetime)))
}

// Expires returns when the agent's certificate ends.
func (k *Store) Expires() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.agent.Leaf.NotAfter
}

// Renewal is an agent's request for new certificates. The key of the old certificate has signed it.
type Renewal struct {
	Certificate []byte // the old one, in DER
	Request     []byte // PKCS #10, for the new key
	Signature   []byte // by the old key, over the request
}

// Renewal returns a request for new certificates. The new key is on the disk before, so that a repeated request is the same. If it
// cannot be written, the request is for the present key.
func (k *Store) Renewal() (*Renewal, error) {
	if k.Membership().NextKey == nil && k.Change(func(m *Membership) { m.NextKey = newKey() }) != nil {
		_ = k.Change(func(m *Membership) { m.NextKey = m.Key })
	}
	m := k.Membership()
	request, err := Request(m.NextKey)
	if err != nil {
		return nil, err
	}
	return &Renewal{Certificate: m.Certificate, Request: request,
		Signature: ed25519.Sign(ed25519.NewKeyFromSeed(m.Key), renewalText(request))}, nil
}

// renewalText is what the signature of a renewal is over: no other signature of an agent's key is.
func renewalText(request []byte) []byte { return append([]byte("coopr renewal 1\n"), request...) }

// Renewed installs the answer to a renewal.
func (k *Store) Renewed(a *Admission) error {
	k.changes.Lock()
	defer k.changes.Unlock()
	m := k.Membership()
	if m.NextKey == nil {
		return errors.New("identity: no renewal is under way")
	}
	next, err := m.with(a, m.NextKey)
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return k.put(next)
}

// late is how long after its end a certificate can still be renewed, in lifetimes: 90 days.
const late = 90

// Asker is an agent that asks for a renewal.
type Asker struct {
	Peer
	Key    string    // the id of its old key
	Issued time.Time // when that was certified
}

// Verify returns the agent that asks for a renewal. cas are the mesh's CAs in DER.
func (r *Renewal) Verify(cas [][]byte, now time.Time) (Asker, error) {
	pool, err := (&Membership{CAs: cas}).roots()
	if err != nil {
		return Asker{}, err
	}
	cert, err := x509.ParseCertificate(r.Certificate)
	if err != nil {
		return Asker{}, fmt.Errorf("renewal: the old certificate: %w", err)
	}
	at := now
	if at.After(cert.NotAfter) {
		if at = cert.NotAfter; now.Sub(at) > late*life(cert) {
			return Asker{}, fmt.Errorf("renewal: the certificate has ended on %s: join again with a token", at.UTC().Format(time.DateOnly))
		}
	}
	_, err = cert.Verify(x509.VerifyOptions{
		Roots: pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return Asker{}, fmt.Errorf("renewal: %w: %w", ErrNotOfThisMesh, err)
	}
	p, err := agentOf(cert)
	if err != nil {
		return Asker{}, fmt.Errorf("renewal: %w", err)
	}
	public, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok || !ed25519.Verify(public, renewalText(r.Request), r.Signature) {
		return Asker{}, errors.New("renewal: the request is not signed by the key of the old certificate")
	}
	return Asker{Peer: p, Key: KeyID(public), Issued: cert.NotBefore.Add(backdate)}, nil
}

// DoorConfig returns the TLS configuration with which an agent without a valid certificate asks a voter to be admitted. The CA is
// the one with the token's fingerprint.
func (t JoinToken) DoorConfig() *tls.Config {
	return doorConfig(func(state tls.ConnectionState) (*x509.CertPool, error) {
		for _, c := range state.PeerCertificates {
			if sum := sha256.Sum256(c.Raw); subtle.ConstantTimeCompare(sum[:], t.fingerprint) == 1 {
				pool := x509.NewCertPool()
				pool.AddCert(c)
				return pool, nil
			}
		}
		return nil, fmt.Errorf("%w: its CA is not the one that the join token names", ErrNotOfThisMesh)
	})
}

// DoorConfig returns the TLS configuration with which the agent asks a voter for new certificates: its own may have ended.
func (k *Store) DoorConfig() *tls.Config {
	return doorConfig(func(tls.ConnectionState) (*x509.CertPool, error) { return k.own.roots.Load(), nil })
}

func doorConfig(roots func(tls.ConnectionState) (*x509.CertPool, error)) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection checks the chain and the role instead
		VerifyConnection: func(state tls.ConnectionState) error {
			pool, err := roots(state)
			if err != nil {
				return err
			}
			p, err := verify(state, pool, x509.ExtKeyUsageServerAuth)
			if err == nil && p.Role != Voter {
				err = fmt.Errorf("%w: agent %s is no voter", ErrWrongPeer, p.ID)
			}
			return err
		},
	}
}
