package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// authority is the mesh's CA, which is derived from the secret.
type authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

// newAuthority derives the CA. Every field of the certificate is fixed, and ed25519 signs without
// randomness, so every agent of a mesh creates the same bytes (TestCACertificateIsTheSameEverywhere).
func newAuthority(secret Secret) (*authority, error) {
	key := secret.caKey()
	public := key.Public().(ed25519.PublicKey)
	keyID := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: fmt.Sprintf("Coopr mesh %x", keyID[:6])},
		NotBefore:             time.Unix(0, 0).UTC(), // always valid: narrower dates would only break agents with wrong clocks
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		SubjectKeyId:          keyID[:20], // set, because Go's default differs between versions of Go
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, fmt.Errorf("mesh CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("mesh CA: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{key: key, cert: cert, pool: pool}, nil
}

// issue signs a leaf certificate with a random serial number.
func (a *authority) issue(template *x509.Certificate, public ed25519.PublicKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// CACertificate returns the CA certificate of a mesh in PEM, for clients that verify agents' HTTPS.
// It is the same on every agent.
func CACertificate(secret Secret) ([]byte, error) {
	a, err := newAuthority(secret)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), nil
}
