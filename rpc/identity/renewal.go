package identity

import (
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Renewal is an agent's request for new certificates. The key of the old certificate has signed it.
type Renewal struct {
	Certificate []byte // the old one, in DER
	Request     []byte // PKCS #10, for the new key
	Signature   []byte // by the old key, over the request
	API         []byte // the request for the API; see APIRequest
}

// Renewal returns a request for new certificates. The new key is on the disk before, so that a repeated request is the same. If it
// cannot be written, the request is for the present key.
func (s *Store) Renewal() (*Renewal, error) {
	if s.Membership().NextKey == nil && s.Change(func(m *Membership) { m.NextKey = newKey() }) != nil {
		_ = s.Change(func(m *Membership) { m.NextKey = m.Key })
	}
	m := s.Membership()
	request, err := Request(m.NextKey)
	if err != nil {
		return nil, err
	}
	api, err := APIRequest(m.NextKey)
	if err != nil {
		return nil, err
	}
	return &Renewal{Certificate: m.Certificate, Request: request, API: api,
		Signature: ed25519.Sign(ed25519.NewKeyFromSeed(m.Key), renewalText(request))}, nil
}

// renewalText is what the signature of a renewal is over: no other signature of an agent's key is.
func renewalText(request []byte) []byte { return append([]byte("coopr renewal 1\n"), request...) }

var (
	// ErrUnwritten means that a membership counts, and could not be written to the disk.
	ErrUnwritten = errors.New("the agent's identity could not be written")
	// ErrOldCA means that a voter has signed a certificate and does not know the CA that others have shown.
	ErrOldCA = errors.New("the voter does not know yet that the mesh has another CA")
)

// Renewed installs the answer to a renewal. If it returns another error than ErrUnwritten, nothing has changed. It fails with ErrOldCA for
// an answer that does not bring the CA that a bridge has led to, unless the present certificate ends soon: a voter that was away signs
// with the CA that it knows, and this agent may be such a voter.
func (s *Store) Renewed(a *Admission) error {
	s.changes.Lock()
	defer s.changes.Unlock()
	m := s.Membership()
	if m.NextKey == nil {
		return errors.New("identity: no renewal is under way")
	}
	if a.CAVersion <= m.CAVersion && s.bridged(m) && time.Now().Before(s.RenewAt(0)) {
		return fmt.Errorf("identity: %w", ErrOldCA)
	}
	next, err := m.with(a, m.NextKey)
	if err == nil {
		err = s.use(next)
	}
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	if err := s.write(next); err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	return nil
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
	if err := signedByMesh(cert); err != nil {
		return Asker{}, fmt.Errorf("renewal: %w", err)
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
