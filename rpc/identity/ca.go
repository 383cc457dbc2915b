package identity

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Lifetime is how long an agent's certificate is valid. It is renewed after two thirds of that time.
const Lifetime = 24 * time.Hour

// life returns for how long a certificate was issued.
func life(c *x509.Certificate) time.Duration { return c.NotAfter.Sub(c.NotBefore) - backdate }

// Authority is the CA of a mesh, with its key.
type Authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
}

// NewAuthority returns the CA of a new mesh.
func NewAuthority() (*Authority, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("mesh CA: %w", err)
	}
	return newAuthority(key, false)
}

// Bridge returns the certificate (in DER) of another CA as this one signs it: who trusts this one follows the other until a time.
func (a *Authority) Bridge(next *Authority, now, until time.Time) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("bridge between CAs: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: next.cert.Subject, NotBefore: now.Add(-backdate), NotAfter: until,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, SubjectKeyId: next.cert.SubjectKeyId,
	}, a.cert, next.cert.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("bridge between CAs: %w", err)
	}
	return der, nil
}

// LoadAuthority returns the CA with a key that Key has returned and a certificate that Certificate has returned.
func LoadAuthority(key, certificate []byte) (*Authority, error) {
	if len(key) != ed25519.SeedSize {
		return nil, fmt.Errorf("mesh CA: the key has %d bytes instead of %d", len(key), ed25519.SeedSize)
	}
	cert, err := x509.ParseCertificate(certificate)
	if err != nil {
		return nil, fmt.Errorf("mesh CA: %w", err)
	}
	a := &Authority{key: ed25519.NewKeyFromSeed(key), cert: cert}
	if !a.key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return nil, errors.New("mesh CA: the key is not the certificate's")
	}
	return a, nil
}

// selfSigned returns the CA with a key. Every field of the certificate is fixed, and ed25519 signs without
// randomness, so one key always makes the same certificate (TestCACertificateIsTheSameEverywhere).
func selfSigned(key ed25519.PrivateKey) (*Authority, error) { return newAuthority(key, true) }

// newAuthority is selfSigned. A CA that is last signs no bridge to another one.
func newAuthority(key ed25519.PrivateKey, last bool) (*Authority, error) {
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
		MaxPathLenZero:        last,
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
	return &Authority{key: key, cert: cert}, nil
}

// Key returns the secret key, as LoadAuthority takes it.
func (a *Authority) Key() []byte { return a.key.Seed() }

// Certificate returns the CA's certificate in DER.
func (a *Authority) Certificate() []byte { return a.cert.Raw }

// Subject is an agent as its certificates name it.
type Subject struct {
	Mesh string // the mesh's id
	Role Role
	ID   string
	// Names are the host names and addresses of the agent's API, without those of the loopback interface.
	Names []string
}

// Certificates are what an agent needs to be known as a subject.
type Certificates struct {
	Agent []byte // for other agents, in DER
	API   []byte // for clients of the API, in DER
	// Browser has what serves the API to all clients, in DER: a certificate with a P-256 key, that of the CA for browsers as the mesh's CA has
	// signed it, and the root for browsers, which signs itself. It is empty if the agent or the voter is of an older build.
	Browser [][]byte
}

// Issue signs the certificates of an agent, for a lifetime. The request (PKCS #10, in DER) names its public key, the API's request that
// for browsers, if there is one; everything else comes from the subject.
func (a *Authority) Issue(s Subject, request, api []byte, now time.Time, lifetime time.Duration) (out Certificates, err error) {
	public, err := RequestedKey(request)
	if err != nil {
		return out, err
	}
	browser, err := RequestedAPIKey(api)
	if err != nil {
		return out, err
	}
	if !validID(s.ID) || !s.Role.valid() || s.Mesh == "" {
		return out, fmt.Errorf("issue a certificate: %q is no %s of a mesh %q", s.ID, s.Role, s.Mesh)
	}
	names := append(loopbackNames(), s.Names...)
	for template, der := range map[*x509.Certificate]*[]byte{peerTemplate(s): &out.Agent, apiTemplate(s.ID, names): &out.API} {
		template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lifetime)
		cert, err := issue(template, a.cert, public, a.key)
		if err != nil {
			return out, fmt.Errorf("issue a certificate: %w", err)
		}
		*der = cert.Raw
	}
	if browser == nil || a.cert.MaxPathLenZero { // a CA that may sign no other one
		return out, nil
	}
	template := apiTemplate(s.ID, names)
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(lifetime)
	if out.Browser, err = a.issueForBrowsers(template, browser); err != nil {
		return out, fmt.Errorf("issue a certificate for browsers: %w", err)
	}
	return out, nil
}

// loopbackNames returns the names under which every agent may serve the API.
func loopbackNames() []string { return []string{"localhost", "127.0.0.1", "::1"} }

// RequestedKey returns the public key of a certificate request, whose owner has proved to have the private key.
func RequestedKey(request []byte) (ed25519.PublicKey, error) {
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	public, ok := r.PublicKey.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("certificate request: the key is a %T, not an ed25519 key", r.PublicKey)
	}
	return public, nil
}

// peerTemplate returns what a certificate for other agents says.
func peerTemplate(s Subject) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.ID},
		URIs:        []*url.URL{{Scheme: uriScheme, Host: s.Mesh, Path: "/" + string(s.Role) + "/" + s.ID}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// apiTemplate returns what a certificate for clients of an agent's API says.
func apiTemplate(id string, names []string) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "Coopr API of agent " + id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		// Clients accept no certificate with a name that has an empty label, not even for its other names.
		dns := strings.TrimSuffix(name, ".")
		if ip, err := netip.ParseAddr(name); err == nil {
			t.IPAddresses = append(t.IPAddresses, net.IP(ip.Unmap().AsSlice()))
		} else if !slices.Contains(strings.Split(dns, "."), "") {
			t.DNSNames = append(t.DNSNames, dns)
		}
	}
	return t
}

// CACertificate returns the CA certificate of a mesh in PEM, for clients that verify agents' HTTPS.
// It is the same on every agent.
func CACertificate(secret Secret) ([]byte, error) {
	a, err := selfSigned(secret.caKey())
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), nil
}
