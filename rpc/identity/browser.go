package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
)

// Browsers refuse Ed25519, so certificates of the API exist a second time with P-256 keys. A voter derives the P-256 CA from the key of the
// mesh's CA, and each agent derives its P-256 key from its own key, so nothing secret has to be kept or sent besides. Labels never change.
const (
	browserCALabel  = "coopr mesh 1 ca key for browsers"
	browserKeyLabel = "coopr agent 1 api key for browsers"
)

// noDomain is a domain that never exists (RFC 2606).
const noDomain = "none.invalid"

// deriveP256 returns the P-256 key that follows from a secret, by the method with extra random bits of FIPS 186-5, A.2.1.
func deriveP256(secret []byte, label string) (*ecdsa.PrivateKey, error) {
	n := new(big.Int).Sub(elliptic.P256().Params().N, big.NewInt(1))
	d := new(big.Int).SetBytes(derive(secret, label, 48))
	d.Mod(d, n).Add(d, big.NewInt(1))
	return ecdsa.ParseRawPrivateKey(elliptic.P256(), d.FillBytes(make([]byte, 32)))
}

// browserCA is the CA that signs certificates of the API for browsers. Its key signs nothing that agents take for a peer's certificate.
type browserCA struct {
	key *ecdsa.PrivateKey
	// root is what a user imports into a browser. bridge is the same CA as the mesh's CA signs it, for clients that know only that one.
	root, bridge *x509.Certificate
}

// forBrowsers returns the CA for browsers. All fields of its certificates are fixed, and both signatures are made without randomness, so
// one key always makes the same certificates. A browser would take different ones with one serial number for a forgery.
func (a *Authority) forBrowsers() (*browserCA, error) {
	key, err := deriveP256(a.key.Seed(), browserCALabel)
	if err != nil {
		return nil, fmt.Errorf("CA for browsers: %w", err)
	}
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("CA for browsers: %w", err)
	}
	keyID := sha256.Sum256(spki)
	template := func(serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber:          big.NewInt(serial),
			Subject:               pkix.Name{CommonName: a.cert.Subject.CommonName + " for browsers"},
			NotBefore:             a.cert.NotBefore,
			NotAfter:              a.cert.NotAfter,
			KeyUsage:              x509.KeyUsageCertSign,
			ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			BasicConstraintsValid: true,
			IsCA:                  true,
			MaxPathLenZero:        true,
			SubjectKeyId:          keyID[:20],
		}
	}
	root, bridge := template(1), template(2) // the mesh's CA has given 1 to itself
	// Agents are named by URIs. Builds that do not look at the kind of key refuse such a name for this: only URIs of one domain are permitted,
	// and those are excluded. To exclude the empty domain would do the same, but Java takes a certificate with it for damaged.
	bridge.PermittedURIDomains, bridge.ExcludedURIDomains = []string{noDomain}, []string{noDomain, "." + noDomain}
	bridge.PermittedDNSDomainsCritical = true
	ca := &browserCA{key: key}
	if ca.root, err = create(nil, root, root, key.Public(), key); err == nil {
		ca.bridge, err = create(nil, bridge, a.cert, key.Public(), a.key)
	}
	if err != nil {
		return nil, fmt.Errorf("CA for browsers: %w", err)
	}
	return ca, nil
}

// issueForBrowsers returns a certificate of the API, and those of the CA for browsers; see Certificates.
func (a *Authority) issueForBrowsers(template *x509.Certificate, public *ecdsa.PublicKey) ([][]byte, error) {
	ca, err := a.forBrowsers()
	if err != nil {
		return nil, err
	}
	cert, err := issue(template, ca.root, public, ca.key)
	if err != nil {
		return nil, err
	}
	return [][]byte{cert.Raw, ca.bridge.Raw, ca.root.Raw}, nil
}

// browserKey returns the P-256 key of an agent with a seed.
func browserKey(seed []byte) (*ecdsa.PrivateKey, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, errors.New("identity: the agent has no key yet")
	}
	return deriveP256(seed, browserKeyLabel)
}

// APIRequest returns a request (PKCS #10, in DER) for a certificate of the API that browsers accept. The key follows from the agent's own.
func APIRequest(seed []byte) ([]byte, error) {
	key, err := browserKey(seed)
	var der []byte
	if err == nil {
		der, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate request for the API: %w", err)
	}
	return der, nil
}

// RequestedAPIKey returns the public key of a request that APIRequest has made. It is nil if there is no request, as agents of older
// builds make none.
func RequestedAPIKey(request []byte) (*ecdsa.PublicKey, error) {
	if len(request) == 0 {
		return nil, nil
	}
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate request for the API: %w", err)
	}
	public, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, fmt.Errorf("certificate request for the API: the key is a %T, not a P-256 key", r.PublicKey)
	}
	return public, nil
}

// ForBrowsers reports whether the agent has a certificate of the API that browsers accept.
func (s *Store) ForBrowsers() bool { return len(s.Membership().Browser) > 0 }

// BrowserRoot returns the certificate (in PEM) that a user imports into a browser. It fails if no voter has sent it yet.
func (m *Membership) BrowserRoot() ([]byte, error) {
	var root []byte
	switch {
	case len(m.Browser) == browserChain:
		root = m.Browser[2]
	case m.Birth != nil:
		a, err := LoadAuthority(m.Birth.CAKey, m.CAs[0])
		if err != nil {
			return nil, err
		}
		ca, err := a.forBrowsers()
		if err != nil {
			return nil, err
		}
		root = ca.root.Raw
	default:
		return nil, errors.New("this agent has no certificate for browsers yet: it asks for one when it starts and each time it renews its " +
			"certificates, once the voters run this version of coopr-agent, too")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), nil
}

// browserChain is the number of certificates in Membership.Browser, if it has any.
const browserChain = 3

// checkBrowser returns an error unless the certificate for browsers, if there is one, leads both to its own root and to the mesh's CAs.
func (m *Membership) checkBrowser(cas *x509.CertPool) error {
	if len(m.Browser) == 0 {
		return nil
	}
	var certs []*x509.Certificate
	for _, der := range m.Browser {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return errors.New("a certificate for browsers is damaged")
		}
		certs = append(certs, cert)
	}
	if len(certs) != browserChain {
		return errors.New("the certificates for browsers are not whole")
	}
	root, bridge := x509.NewCertPool(), x509.NewCertPool()
	root.AddCert(certs[2])
	bridge.AddCert(certs[1])
	for _, o := range []x509.VerifyOptions{{Roots: root}, {Roots: cas, Intermediates: bridge}} {
		o.CurrentTime, o.KeyUsages = certs[0].NotAfter, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if _, err := certs[0].Verify(o); err != nil {
			return fmt.Errorf("the certificate for browsers: %w", err)
		}
	}
	return nil
}

// signedByMesh returns an error for a certificate that the CA for browsers has signed: it makes nobody an agent.
func signedByMesh(cert *x509.Certificate) error {
	if cert.SignatureAlgorithm != x509.PureEd25519 {
		return fmt.Errorf("%w: it is signed with %s, as certificates of the API are", ErrNotOfThisMesh, cert.SignatureAlgorithm)
	}
	return nil
}

// create signs a certificate. Without random, an ECDSA signature follows from the key and what is signed.
func create(random io.Reader, template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(random, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// issue signs a leaf certificate with a random serial number.
func issue(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	return create(rand.Reader, template, parent, public, key)
}
