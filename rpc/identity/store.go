package identity

import (
	"crypto"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Store keeps an agent's membership in memory and on the disk. It is safe for concurrent use.
type Store struct {
	dir string // "" for tests: nothing is written
	own *Identity

	changes sync.Mutex // one at a time
	with    []Sealer   // the keys for which secrets are encrypted on the disk
	mu      sync.Mutex
	now     *Membership
	agent   *tls.Certificate
	api     *tls.Certificate
	cas     []*x509.Certificate // of now
	// outdated is set while the certificates are not of the CA that signs now.
	outdated bool
	// unwritten is set while the present membership is not on the disk.
	unwritten bool
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
	if len(m.Sealed) > 0 {
		return nil, fmt.Errorf("identity: %w", ErrSealed)
	}
	complete, err := m.Complete(agentID, names, time.Now(), lifetime)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	i := &Identity{store: s}
	i.agent = func() (*tls.Certificate, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.agent, nil }
	i.api = func([]string) func() (*tls.Certificate, error) {
		return func() (*tls.Certificate, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.api, nil }
	}
	s.own = i
	i.Refuse(func(id string) bool { return s.Membership().hasRemoved(id) })
	if complete == m {
		err = s.use(m)
	} else {
		err = s.put(complete)
	}
	if err != nil {
		return nil, err
	}
	if p, err := agentOf(s.agent.Leaf); err != nil || p.ID != agentID {
		return nil, fmt.Errorf("identity: the certificate is for agent %q, and this is agent %s: restore the whole data directory", p.ID, agentID)
	}
	return i, nil
}

// use makes a membership the present one. The caller holds no lock.
func (s *Store) use(m *Membership) error {
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
	agent.Certificate = slices.Concat(agent.Certificate, m.CAs[:1], m.Bridges)
	api, err := m.apiPair(key)
	if err != nil {
		return err
	}
	if len(m.Bridges) > 0 {
		api.Certificate = append(api.Certificate, m.Bridges...)
	}
	var cas []*x509.Certificate
	for _, der := range m.CAs {
		ca, err := x509.ParseCertificate(der)
		if err != nil {
			return errors.New("identity: the certificate of a CA is damaged")
		}
		cas = append(cas, ca)
	}
	s.own.roots.Store(pool) // before their version is known, see caVersion
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.agent, s.api, s.cas, s.outdated = m, agent, api, cas, agent.Leaf.CheckSignatureFrom(cas[0]) != nil
	return nil
}

// apiPair returns the certificate that serves the API: the one for browsers, with what leads to it from the mesh's CA, or that of an
// older build.
func (m *Membership) apiPair(key ed25519.PrivateKey) (*tls.Certificate, error) {
	if len(m.Browser) != browserChain {
		return pair(m.APICertificate, key)
	}
	p256, err := browserKey(m.Key)
	if err != nil {
		return nil, err
	}
	api, err := pair(m.Browser[0], p256)
	if err == nil {
		api.Certificate = append(api.Certificate, m.Browser[1])
	}
	return api, err
}

func pair(der []byte, key crypto.Signer) (*tls.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errors.New("identity: a certificate is damaged")
	}
	if public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(cert.PublicKey) {
		return nil, errors.New("identity: a certificate is for another key")
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}, nil
}

// put makes a membership the present one and writes it. It counts even if it cannot be written: a disk may be full or read-only.
func (s *Store) put(m *Membership) error {
	if err := s.use(m); err != nil {
		return err
	}
	return s.write(m)
}

// write writes the present membership. The caller holds changes, or is the only one that has s.
func (s *Store) write(m *Membership) error {
	if s.dir == "" {
		return nil
	}
	err := m.Save(s.dir, s.with...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwritten = err != nil
	return err
}

// SealWith writes the membership with its secrets encrypted for each of these keys, if it is a voter's, and does so from now on. A
// keyring that has one of the keys opens it.
func (s *Store) SealWith(with ...Sealer) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	had := len(s.with)
	if s.with = with; had+len(with) == 0 {
		return nil // a worker, or a voter before it has keys
	}
	return s.write(s.Membership())
}

// Retry writes the membership if the last write has failed. It reports whether it has written.
func (s *Store) Retry() (bool, error) {
	s.changes.Lock()
	defer s.changes.Unlock()
	s.mu.Lock()
	m, due := s.now, s.unwritten
	s.mu.Unlock()
	if !due {
		return false, nil
	}
	err := s.write(m)
	return err == nil, err
}

// Membership returns the present membership. The caller does not change it.
func (s *Store) Membership() *Membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Change changes the membership, in memory even if it returns an error.
func (s *Store) Change(change func(*Membership)) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	next := *s.Membership()
	change(&next)
	return s.put(&next)
}

// Outdated reports whether another CA than the one that signs now has signed the agent's certificates, or a voter has shown a bridge to a
// CA that the agent does not know yet.
func (s *Store) Outdated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outdated || s.bridged(s.now)
}

// bridged reports whether a voter has shown a bridge to a CA that the agent does not know with its present membership.
func (s *Store) bridged(now *Membership) bool { return s.own.bridged.Load() == now.CAVersion+1 }

// Trusts reports whether the agent still trusts the CA that has signed a peer's certificate.
func (s *Store) Trusts(p Peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.cas, func(ca *x509.Certificate) bool { return ca.Subject.CommonName == p.CA })
}

// Names reports whether the certificate of the API has all these host names and addresses.
func (s *Store) Names(names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range names {
		if s.api.Leaf.VerifyHostname(n) != nil {
			return false
		}
	}
	return true
}

// RenewAt returns when the agent's certificates are to be renewed: when two thirds of their life are over, or earlier by a part of
// Lifetime.
func (s *Store) RenewAt(early time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.agent.Leaf
	return c.NotAfter.Add(-life(c)/3 - time.Duration(float64(early)*float64(life(c))/float64(Lifetime)))
}

// Expires returns when the agent's certificate ends.
func (s *Store) Expires() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agent.Leaf.NotAfter
}
