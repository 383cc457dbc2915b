package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// DoorConfig returns the TLS configuration with which an agent without a valid certificate asks a voter to be admitted. The CA is
// the one with the token's fingerprint.
func (t JoinToken) DoorConfig() *tls.Config {
	anybody := func(Peer) error { return nil } // a newcomer knows nothing of removals
	return doorConfig(anybody, func(state tls.ConnectionState) (*x509.CertPool, error) {
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
func (s *Store) DoorConfig() *tls.Config {
	return doorConfig(s.own.remains, func(tls.ConnectionState) (*x509.CertPool, error) { return s.own.roots.Load(), nil })
}

// doorConfig accepts voters whose certificates lead to one of the roots, unless accept returns an error.
func doorConfig(accept func(Peer) error, roots func(tls.ConnectionState) (*x509.CertPool, error)) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection checks the chain and the role instead
		VerifyConnection: func(state tls.ConnectionState) error {
			pool, err := roots(state)
			if err != nil {
				return err
			}
			p, err := verify(state, pool, x509.ExtKeyUsageServerAuth, bridges(state))
			if err != nil {
				return err
			}
			if p.Role != Voter {
				return fmt.Errorf("%w: agent %s is no voter", ErrWrongPeer, p.ID)
			}
			return accept(p)
		},
	}
}
