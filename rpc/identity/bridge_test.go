package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestBridge replaces the CA twice. Who knows the first one only follows the bridges for ninety days: an agent that was away to renew its
// certificate and for nothing else, a newcomer with a join token, and a client of the API. Certificates of the first CA are refused.
func TestBridge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		first := f.ca
		away := f.admit("", twoID, Worker)
		token, err := NewJoinToken(first.Certificate(), []string{"10.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		clients := x509.NewCertPool()
		clients.AddCert(first.cert)
		voter := f.first.Store()
		bundle := Bundle{CAs: [][]byte{first.Certificate()}}
		const bridged = 90 * 24 * time.Hour
		renew := func(s *Store, id string, role Role) {
			t.Helper()
			r, err := s.Renewal()
			if err != nil {
				t.Fatal(err)
			}
			a := f.sign(id, role, r.Request)
			a.CAs, a.CAVersion, a.Bridges = bundle.CAs, bundle.Version, bundle.Bridges
			if err := s.Renewed(a); err != nil {
				t.Fatal(err)
			}
		}
		api := &tls.Config{RootCAs: clients, ServerName: "localhost"}
		for range 2 {
			old, next := f.ca, Authority{}
			if made, err := NewAuthority(); err != nil {
				t.Fatal(err)
			} else {
				next = *made
			}
			bridge, err := old.Bridge(&next, time.Now(), time.Now().Add(bridged))
			if err != nil {
				t.Fatal(err)
			}
			f.ca = &next
			bundle = Bundle{Version: bundle.Version + 1, CAs: [][]byte{next.Certificate()}, Bridges: append(slices.Clone(bundle.Bridges), bridge, old.Certificate())}
			if err := voter.Change(func(m *Membership) { m.Trust(bundle) }); err != nil {
				t.Fatal(err)
			}
			if !voter.Outdated() {
				t.Error("the voter keeps its certificate")
			}
			renew(voter, oneID, Voter)
			if voter.Outdated() || voter.Trusts(Peer{CA: old.cert.Subject.CommonName}) || !voter.Trusts(Peer{CA: next.cert.Subject.CommonName}) {
				t.Error("the voter trusts the old CA, or not the new one")
			}
			if _, _, _, err := shake(t, f.first.ServerConfig(), away.Store().DoorConfig()); err != nil {
				t.Error("the agent that was away cannot renew its certificate:", err)
			}
			if _, _, _, err := shake(t, f.first.ServerConfig(), token.DoorConfig()); err != nil {
				t.Error("a newcomer cannot join with its token:", err)
			}
			if _, _, _, err := shake(t, f.first.HTTPSConfig(nil), api); !errors.Is(err, ErrNoAgent) {
				t.Error("a client of the API:", err)
			}
			if _, _, _, err := shake(t, away.ServerConfig(), f.first.ClientConfig("")); !errors.Is(err, ErrNotOfThisMesh) {
				t.Error("the certificate of the old CA:", err)
			}
			if _, _, err, _ := shake(t, f.first.ServerConfig(), away.ClientConfig("")); err == nil {
				t.Error("the certificate of the old CA is accepted")
			}
		}
		if _, _, _, err := shake(t, f.first.ServerConfig(), away.ClientConfig("")); !errors.Is(err, ErrNotOfThisMesh) || !away.Store().Outdated() {
			t.Error("the agent that was away does not know that there is another CA:", err)
		}
		r, err := away.Store().Renewal()
		if err != nil {
			t.Fatal(err)
		}
		outdated := founded{t: t, ca: first, mesh: f.mesh} // a voter that was away, too
		answer := outdated.sign(twoID, Worker, r.Request)
		if err := away.Store().Renewed(answer); !errors.Is(err, ErrOldCA) || !away.Store().Outdated() {
			t.Error("a certificate of the old CA is taken for one of the new CA:", err)
		}
		if _, err := r.Verify(bundle.CAs, time.Now()); !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("a renewal without a bridge:", err)
		}
		if a, err := r.Verify(append(slices.Clone(bundle.CAs), first.Certificate()), time.Now()); err != nil || a.ID != twoID {
			t.Error("a renewal over the bridge:", a, err)
		}
		late := f.admit("", threeID, Worker)
		if err := late.Store().Change(func(m *Membership) { m.CAs = [][]byte{first.Certificate()} }); err != nil {
			t.Fatal(err)
		}
		renew(away.Store(), twoID, Worker)
		if away.Store().Outdated() {
			t.Error("the agent that was away renews its certificate again")
		}
		if s, c, err1, err2 := shake(t, f.first.ServerConfig(), away.ClientConfig(oneID)); err1 != nil || err2 != nil || s != twoID || c != oneID {
			t.Error(s, c, err1, err2)
		}
		away.Store().Membership().Trust(Bundle{Version: 1, CAs: [][]byte{first.Certificate()}})
		if slices.Equal(away.Store().Membership().CAs[0], first.Certificate()) {
			t.Error("an older bundle replaces a newer one")
		}
		// A certificate that ends soon is renewed by whoever can, and the agent still looks for the new CA.
		if _, _, _, err := shake(t, f.first.ServerConfig(), late.ClientConfig("")); !errors.Is(err, ErrNotOfThisMesh) {
			t.Error(err)
		}
		time.Sleep(Lifetime * 5 / 6)
		renew(voter, oneID, Voter)
		if r, err = late.Store().Renewal(); err != nil {
			t.Fatal(err)
		}
		if err := late.Store().Renewed(outdated.sign(threeID, Worker, r.Request)); err != nil || !late.Store().Outdated() {
			t.Error("a voter that was away does not keep an agent's certificate from its end:", err)
		}
		time.Sleep(bridged + time.Minute)
		renew(voter, oneID, Voter)
		for what, config := range map[string]*tls.Config{"an agent": late.Store().DoorConfig(), "a newcomer": token.DoorConfig()} {
			if _, _, _, err := shake(t, f.first.ServerConfig(), config); !errors.Is(err, ErrNotOfThisMesh) {
				t.Errorf("%s follows the bridge for too long: %v", what, err)
			}
		}
		var wrong *tls.CertificateVerificationError
		if _, _, _, err := shake(t, f.first.HTTPSConfig(nil), api); !errors.As(err, &wrong) {
			t.Error("a client follows the bridge for too long:", err)
		}
	})
}

// TestRemovedVoter has a voter answer that was removed, and whose certificate has not ended. It is no voter for those who know of it, also
// not at the door, and it does not make them renew their certificates.
func TestRemovedVoter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := found(t)
		removed, agent := f.admit("", twoID, Voter), f.admit("", threeID, Worker)
		if _, _, _, err := shake(t, removed.ServerConfig(), agent.Store().DoorConfig()); err != nil {
			t.Fatal(err)
		}
		if err := agent.Store().Change(func(m *Membership) { m.Removed = []string{twoID} }); err != nil {
			t.Fatal(err)
		}
		for what, config := range map[string]*tls.Config{"others": agent.ClientConfig(""), "the door": agent.Store().DoorConfig()} {
			if _, _, _, err := shake(t, removed.ServerConfig(), config); !errors.Is(err, ErrRemoved) {
				t.Errorf("it answers %s: %v", what, err)
			}
		}
		if agent.Store().Outdated() {
			t.Error("it makes an agent renew its certificate")
		}
	})
}
