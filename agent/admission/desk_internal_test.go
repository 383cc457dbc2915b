package admission

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/identity"
)

// TestSeeds checks the gossip addresses that newcomers get, also from an agent of which there is no record yet.
func TestSeeds(t *testing.T) {
	var many []model.Agent
	for i := range 2 * maxPlaces {
		many = append(many, model.Agent{ID: fmt.Sprint(i), Alive: true, GossipAddr: fmt.Sprintf("10.0.1.%d:55056", i)})
	}
	const own = "10.0.0.1:55056"
	for _, c := range []struct {
		agents []model.Agent
		want   []string
	}{
		{nil, []string{own}},
		{[]model.Agent{{ID: "a", Alive: true, GossipAddr: own}}, []string{own}},
		{[]model.Agent{
			{ID: "a", Alive: true, GossipAddr: own},
			{ID: "b", Alive: true, GossipAddr: "10.0.0.2:55056"},
			{ID: "c", GossipAddr: "10.0.0.3:55056"},
			{ID: "d", Alive: true},
		}, []string{own, "10.0.0.2:55056"}},
	} {
		if got := seeds(own, c.agents); !slices.Equal(got, c.want) {
			t.Errorf("%v, not %v", got, c.want)
		}
	}
	if got := seeds(own, many); len(got) != maxPlaces || got[0] != own {
		t.Errorf("%d addresses, the first is %s", len(got), got[0])
	}
}

// quiet is a part in gossip that does nothing.
type quiet struct{ Mesh }

func (quiet) SetKeys([][]byte) error { return nil }

// TestRenewalHangsUp renews certificates after a rotation of the CA that the agent has missed. Connections from before, with certificates of
// the old CA, are closed at once: the leader has no news that would close them later.
func TestRenewalHangsUp(t *testing.T) {
	const id = "00000000-0000-4000-8000-000000000001"
	m, _, err := identity.Found()
	if err != nil {
		t.Fatal(err)
	}
	i, err := identity.Open("", id, nil, identity.Lifetime, m)
	if err != nil {
		t.Fatal(err)
	}
	next, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	name := func(der []byte) string {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c.Subject.CommonName
	}
	over := func(identity.Peer) bool { return false }
	d := New(Config{
		ID: id, Store: i.Store(), Mesh: quiet{}, Registry: member.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Hang: func(now func(identity.Peer) bool) { over = now },
	})
	own, err := i.Store().Renewal()
	if err != nil {
		t.Fatal(err)
	}
	certs, err := next.Issue(identity.Subject{Mesh: m.Mesh, Role: identity.Voter, ID: id}, own.Request, own.API, time.Now(), identity.Lifetime)
	if err == nil {
		err = d.renewer.install(&identity.Admission{
			Mesh: m.Mesh, Role: identity.Voter, Certificates: certs, CAs: [][]byte{next.Certificate()}, CAVersion: 1,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if !over(identity.Peer{ID: "other", CA: name(m.CAs[0])}) {
		t.Error("a connection with a certificate of the old CA goes on")
	}
	if over(identity.Peer{ID: "other", CA: name(next.Certificate())}) {
		t.Error("a connection with a certificate of the new CA is closed")
	}
}
