package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// trusting returns a client of the API that trusts certificates in PEM and nothing else.
func trusting(t testing.TB, pem []byte) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatal("there is no certificate")
	}
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

// accepts returns the error of a client of an agent's API, and the chain that it has verified.
func accepts(t *testing.T, agent *Identity, client *tls.Config) (chain []*x509.Certificate, err error) {
	t.Helper()
	client = client.Clone()
	client.VerifyConnection = func(s tls.ConnectionState) error { chain = s.VerifiedChains[0]; return nil }
	if _, _, _, err = shake(t, agent.HTTPSConfig(nil), client); errors.Is(err, ErrNoAgent) {
		err = nil
	}
	return chain, err
}

// renewed renews the certificates of an agent at a voter. A voter of an older build does not see the request for the API.
func (f *founded) renewed(s *Store, id string, role Role, older bool, bundle Bundle) {
	f.t.Helper()
	r, err := s.Renewal()
	if err != nil {
		f.t.Fatal(err)
	}
	a := f.sign(id, role, r.Request)
	if !older {
		a.Certificates, err = f.ca.Issue(Subject{Mesh: f.mesh, Role: role, ID: id}, r.Request, r.API, time.Now(), Lifetime)
	}
	a.CAVersion, a.Bridges = bundle.Version, bundle.Bridges
	if err == nil {
		err = s.Renewed(a)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestBrowsers has two clients ask for the API, one that trusts the root for browsers only and one that trusts the CA of the mesh only. They
// ask the first agent, and a worker that voters of older and of this build admit and renew, also after a start from the disk.
func TestBrowsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		root, err := f.first.Store().Membership().BrowserRoot()
		if err != nil {
			t.Fatal(err)
		}
		browser, coopr := trusting(t, root), trusting(t, f.first.Store().Membership().Bundle())
		both := func(what string, agent *Identity) {
			t.Helper()
			chain, err := accepts(t, agent, browser)
			if err != nil {
				t.Errorf("a browser at %s: %v", what, err)
			}
			for _, c := range chain {
				if _, ok := c.PublicKey.(*ecdsa.PublicKey); !ok || c.SignatureAlgorithm != x509.ECDSAWithSHA256 {
					t.Errorf("a browser at %s: %T, signed with %s", what, c.PublicKey, c.SignatureAlgorithm)
				}
			}
			if _, err := accepts(t, agent, coopr); err != nil {
				t.Errorf("a client with the CA of the mesh at %s: %v", what, err)
			}
		}
		both("the first agent", f.first)

		dir := t.TempDir()
		worker := f.admit(dir, twoID, Worker) // by a voter of an older build
		store := worker.Store()
		if _, err := accepts(t, worker, browser); err == nil || store.ForBrowsers() {
			t.Error("a browser accepts a certificate with an Ed25519 key")
		}
		if _, err := store.Membership().BrowserRoot(); err == nil {
			t.Error("there is a root for browsers")
		}
		if _, err := accepts(t, worker, coopr); err != nil {
			t.Error("without a certificate for browsers:", err)
		}
		f.renewed(store, twoID, Worker, false, Bundle{})
		both("a worker", worker)
		if got, err := store.Membership().BrowserRoot(); err != nil || !bytes.Equal(got, root) {
			t.Error("the worker has another root:", err)
		}
		m, err := LoadMembership(dir)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Open(dir, twoID, nil, Lifetime, m)
		if err != nil {
			t.Fatal(err)
		}
		both("a worker that was started again", again)
		f.renewed(store, twoID, Worker, true, Bundle{})
		if _, err := accepts(t, worker, coopr); err != nil || store.ForBrowsers() {
			t.Error("after a renewal by an older voter:", err)
		}
		if _, err := accepts(t, f.first, &tls.Config{RootCAs: coopr.RootCAs, ServerName: "elsewhere.example.org"}); err == nil {
			t.Error("a certificate is good for another host")
		}
	})
}

// TestBrowserRotation replaces the CA of the mesh. Clients with the old file follow the bridge; browsers need the new root.
func TestBrowserRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		s := f.first.Store()
		coopr := trusting(t, s.Membership().Bundle())
		pem, err := s.Membership().BrowserRoot()
		if err != nil {
			t.Fatal(err)
		}
		browser := trusting(t, pem)
		old := f.ca
		if f.ca, err = NewAuthority(); err != nil {
			t.Fatal(err)
		}
		bridge, err := old.Bridge(f.ca, time.Now(), time.Now().Add(90*24*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		bundle := Bundle{Version: 1, CAs: [][]byte{f.ca.Certificate()}, Bridges: [][]byte{bridge, old.Certificate()}}
		if err := s.Change(func(m *Membership) { m.Trust(bundle) }); err != nil {
			t.Fatal(err)
		}
		for name, client := range map[string]*tls.Config{"a client with the old CA": coopr, "a browser with the old root": browser} {
			if _, err := accepts(t, f.first, client); err != nil {
				t.Errorf("%s, before the renewal: %v", name, err)
			}
		}
		f.renewed(s, oneID, Voter, false, bundle)
		m := s.Membership()
		if pem, err = m.BrowserRoot(); err != nil {
			t.Fatal(err)
		}
		for name, client := range map[string]*tls.Config{"a client with the old CA": coopr, "one with the new": trusting(t, m.Bundle()),
			"a browser with the new root": trusting(t, pem)} {
			if _, err := accepts(t, f.first, client); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := accepts(t, f.first, browser); err == nil {
			t.Error("a browser with the old root accepts the new certificate")
		}
	})
}

// TestBrowserRootIsTheSameEverywhere compares a fixed key's certificates with those of earlier builds: browsers keep them for years.
func TestBrowserRootIsTheSameEverywhere(t *testing.T) {
	a, err := newAuthority(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)), false)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ca, err := a.forBrowsers()
		if err != nil {
			t.Fatal(err)
		}
		for want, cert := range map[string]*x509.Certificate{
			"0320baf5d150ccfc": ca.root,
			"f916ff5f73544eb1": ca.bridge,
		} {
			if sum := sha256.Sum256(cert.Raw); hex.EncodeToString(sum[:8]) != want {
				t.Errorf("%s, signed by %s: %x instead of %s", cert.Subject, cert.Issuer, sum[:8], want)
			}
		}
	}
}

// TestBrowserCAMakesNoAgents has the CA for browsers sign certificates that name a voter. Nobody takes them for that of an agent, with the
// certificates that lead to the mesh's CA and without them, also not with a CA in between that has an Ed25519 key.
func TestBrowserCAMakesNoAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		ca, err := f.ca.forBrowsers()
		if err != nil {
			t.Fatal(err)
		}
		other := f.admit("", threeID, Worker)
		token, err := NewJoinToken(f.ca.Certificate(), []string{"10.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		seed := newKey()
		key := ed25519.NewKeyFromSeed(seed)
		sign := func(mesh string, parent *x509.Certificate, signer crypto.Signer) *x509.Certificate {
			t.Helper()
			template := peerTemplate(Subject{Mesh: mesh, Role: Voter, ID: twoID})
			template.NotBefore, template.NotAfter = time.Now().Add(-backdate), time.Now().Add(Lifetime)
			cert, err := issue(template, parent, key.Public(), signer)
			if err != nil {
				t.Fatal(err)
			}
			return cert
		}
		between, err := newAuthority(ed25519.NewKeyFromSeed(newKey()), false)
		if err != nil {
			t.Fatal(err)
		}
		template := *between.cert
		template.SignatureAlgorithm = x509.UnknownSignatureAlgorithm // that of the key
		sub, err := create(nil, &template, ca.root, between.cert.PublicKey, ca.key)
		if err != nil {
			t.Fatal(err)
		}
		direct, under := sign(f.mesh, ca.root, ca.key), sign(f.mesh, between.cert, between.key)
		ders := func(certs ...*x509.Certificate) (out [][]byte) {
			for _, c := range certs {
				out = append(out, c.Raw)
			}
			return out
		}
		for name, chain := range map[string][][]byte{
			"alone": ders(direct), "with the root": ders(direct, ca.root), "with the bridge": ders(direct, ca.bridge, f.ca.cert),
			"with a CA in between": ders(under, sub, ca.bridge, f.ca.cert),
			// The bridge's constraints name a domain.
			"of the domain":       ders(sign(noDomain, ca.root, ca.key), ca.bridge, f.ca.cert),
			"beneath the domain":  ders(sign("x."+noDomain, ca.root, ca.key), ca.bridge, f.ca.cert),
			"of no domain":        ders(sign("", ca.root, ca.key), ca.bridge, f.ca.cert),
			"of an address":       ders(sign("127.0.0.1", ca.root, ca.key), ca.bridge, f.ca.cert),
			"of a domain in caps": ders(sign("NONE.invalid", ca.root, ca.key), ca.bridge, f.ca.cert),
		} {
			shown := &tls.Certificate{Certificate: chain, PrivateKey: key}
			agent := &Identity{store: other.store, agent: func() (*tls.Certificate, error) { return shown, nil }}
			agent.roots.Store(other.roots.Load())
			if _, _, err, _ := shake(t, f.first.ServerConfig(), agent.ClientConfig("")); !errors.Is(err, ErrNotOfThisMesh) {
				t.Errorf("%s: a server: %v", name, err)
			}
			for who, client := range map[string]*tls.Config{"a client": f.first.ClientConfig(""), "one that expects it": f.first.ClientConfig(twoID),
				"a renewal": other.Store().DoorConfig(), "a newcomer": token.DoorConfig()} {
				if _, _, _, err := shake(t, agent.ServerConfig(), client); !errors.Is(err, ErrNotOfThisMesh) {
					t.Errorf("%s: %s: %v", name, who, err)
				}
			}
			request, err := Request(seed)
			if err != nil {
				t.Fatal(err)
			}
			r := Renewal{Certificate: chain[0], Request: request, Signature: ed25519.Sign(key, renewalText(request))}
			if _, err := r.Verify([][]byte{f.ca.Certificate(), ca.bridge.Raw, ca.root.Raw}, time.Now()); !errors.Is(err, ErrNotOfThisMesh) {
				t.Errorf("%s: a renewal: %v", name, err)
			}
			// The check of builds that do not know of the CA for browsers, at a voter's door.
			leaf, err := x509.ParseCertificate(chain[0])
			if err != nil {
				t.Fatal(err)
			}
			o := x509.VerifyOptions{Roots: other.roots.Load(), Intermediates: x509.NewCertPool(),
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
			for _, der := range chain[1:] {
				c, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				o.Intermediates.AddCert(c)
			}
			if _, err := leaf.Verify(o); err == nil {
				t.Errorf("%s: an older build accepts it", name)
			}
		}
		if other.Store().Outdated() || f.first.Store().Outdated() {
			t.Error("it makes an agent renew its certificate")
		}
		// Certificates of the API name no agent.
		api := &Identity{store: other.store, agent: func() (*tls.Certificate, error) { return f.first.api(nil)() }}
		api.roots.Store(other.roots.Load())
		if _, _, err, _ := shake(t, f.first.ServerConfig(), api.ClientConfig("")); !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("a server accepts the certificate of an API:", err)
		}
		for who, client := range map[string]*tls.Config{"a client": other.ClientConfig(""), "a renewal": other.Store().DoorConfig()} {
			if _, _, _, err := shake(t, api.ServerConfig(), client); !errors.Is(err, ErrNotOfThisMesh) {
				t.Errorf("%s accepts the certificate of an API: %v", who, err)
			}
		}
	})
}

// TestForgedBrowserCertificates has voters answer with certificates for browsers that are not whole, or not of this mesh.
func TestForgedBrowserCertificates(t *testing.T) {
	f, other := found(t), found(t)
	m := NewMembership()
	request, err := Request(m.Key)
	if err != nil {
		t.Fatal(err)
	}
	api, err := APIRequest(m.Key)
	if err != nil {
		t.Fatal(err)
	}
	s := Subject{Mesh: f.mesh, Role: Worker, ID: twoID}
	good, err := f.ca.Issue(s, request, api, time.Now(), Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	strange, err := other.ca.Issue(s, request, api, time.Now(), Lifetime)
	if err != nil {
		t.Fatal(err)
	}
	for name, chain := range map[string][][]byte{
		"of another mesh": strange.Browser, "one is missing": good.Browser[:2],
		"the bridge is another one's": {good.Browser[0], strange.Browser[1], good.Browser[2]},
		"the root is another one's":   {good.Browser[0], good.Browser[1], strange.Browser[2]},
		"damaged":                     {good.Browser[0], good.Browser[1], []byte("x")},
	} {
		a := f.sign(twoID, Worker, request)
		a.Certificates.Browser = chain
		if _, err := m.Admit(a); err == nil {
			t.Errorf("accepted: %s", name)
		}
	}
	foreign := f.sign(twoID, Worker, request)
	foreign.Certificates.Browser = slices.Clone(f.first.Store().Membership().Browser) // for the key of another agent
	if m, err := m.Admit(foreign); err == nil {
		if _, err = Open("", twoID, nil, Lifetime, m); err == nil {
			t.Error("accepted: for another key")
		}
	}
	for name, bad := range map[string][]byte{"no request": []byte("x"), "an Ed25519 key": request, "cut": api[:len(api)-1]} {
		if _, err := f.ca.Issue(s, request, bad, time.Now(), Lifetime); err == nil {
			t.Errorf("signed: %s", name)
		}
		if _, err := RequestedAPIKey(bad); err == nil {
			t.Errorf("accepted: %s", name)
		}
	}
	secret, err := selfSigned(mustSecret(t).caKey())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := secret.Issue(s, request, api, time.Now(), Lifetime); err != nil || len(out.Browser) > 0 || out.API == nil {
		t.Error("a CA that may sign no other one:", err)
	}
}

// TestBrowserNames renews with names as a configuration may have them. Once there are constraints of names, an empty label in one of them
// spoils a certificate.
func TestBrowserNames(t *testing.T) {
	f := found(t)
	s := f.first.Store()
	names := []string{"web.example.com.", "web_1", "host..1", ".x", "", "10.0.0.1", "fd00::1", "fe80::1%eth0", "::ffff:10.0.0.2"}
	r, err := s.Renewal()
	if err != nil {
		t.Fatal(err)
	}
	a := f.sign(oneID, Voter, r.Request)
	subject := Subject{Mesh: f.mesh, Role: Voter, ID: oneID, Names: names}
	if a.Certificates, err = f.ca.Issue(subject, r.Request, r.API, time.Now(), Lifetime); err != nil {
		t.Fatal(err)
	}
	if err := s.Renewed(a); err != nil {
		t.Fatal(err)
	}
	if !s.ForBrowsers() || !s.Names([]string{"web.example.com", "web.example.com.", "10.0.0.1", "fd00::1", "10.0.0.2"}) {
		t.Errorf("the certificate is for %v and %v", s.api.Leaf.DNSNames, s.api.Leaf.IPAddresses)
	}
}
