package directory

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/testing/idp"
)

// openOIDC returns a provider with settings, which have no faults.
func openOIDC(t *testing.T, p config.IdentityProvider) *OIDC {
	t.Helper()
	p.Name = "sso"
	p.Rules = []config.DirectoryRule{{Group: "devs", Role: model.RoleUser, Groups: []string{"devs"}}, {Group: "ops", Role: model.RoleAdmin}}
	c := config.Default(true)
	c.Name, c.IdentityProviders = "a", []config.IdentityProvider{p}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return Open(c)[logins.Source{Tenant: model.FirstTenant, Method: "sso"}].(*OIDC)
}

// TestOIDC logs in at a real provider, in each way and in wrong ones.
func TestOIDC(t *testing.T) {
	server := idp.New(t)
	ctx := t.Context()
	came := make(chan url.Values, 1)
	page := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { came <- r.URL.Query() }))
	defer page.Close()
	back := page.URL + "/callback"

	native := openOIDC(t, config.IdentityProvider{Issuer: server.Issuer, ClientID: idp.Native})
	begin := func() (logins.Prompt, logins.Pending) {
		t.Helper()
		p, l, err := native.Begin(ctx, back)
		if err != nil || p.URL == "" || p.Code != "" {
			t.Fatalf("%+v, %v", p, err)
		}
		return p, l
	}
	browse := func(p logins.Prompt, name string) url.Values {
		t.Helper()
		at, shows, err := server.Browse(p.URL, name, "words of "+name)
		if err != nil || !strings.HasPrefix(at, back) {
			t.Fatalf("the browser is at %s: %s, %v", at, shows, err)
		}
		return <-came
	}
	p, l := begin()
	q := browse(p, "ann")
	if ann, err := native.Finish(ctx, l, q.Get("state"), q.Get("code")); err != nil || ann.Subject != server.Issuer+" ann" || ann.Name != "ann" ||
		ann.Role != model.RoleAdmin || !slices.Equal(ann.Groups, []string{"devs"}) {
		t.Errorf("ann: %+v, %v", ann, err)
	}
	refused := func(what string, l logins.Pending, state, code string) {
		t.Helper()
		if p, err := native.Finish(ctx, l, state, code); problem.CodeOf(err) != problem.Unauthorized {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
	refused("the same code again", l, q.Get("state"), q.Get("code"))
	p, l = begin()
	q = browse(p, "eve")
	refused("nobody's role", l, q.Get("state"), q.Get("code"))
	p, _ = begin()
	_, other := begin()
	q = browse(p, "bob")
	refused("another login's code", other, other.State, q.Get("code"))
	p, l = begin()
	q = browse(p, "bob")
	refused("another state", l, other.State, q.Get("code"))
	refused("no code", l, q.Get("state"), "")
	l.Nonce = other.Nonce
	refused("another nonce", l, q.Get("state"), q.Get("code"))
	p, _ = begin()
	if at, _, _ := server.Browse(p.URL, "ann", "words of bob"); strings.HasPrefix(at, back) {
		t.Error("the provider lets a wrong password in")
	}

	word := filepath.Join(t.TempDir(), "word")
	if err := os.WriteFile(word, []byte(idp.DeviceWord+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	device := openOIDC(t, config.IdentityProvider{Issuer: server.Issuer, ClientID: idp.Device, ClientSecretFile: word})
	p, l, err := device.Begin(ctx, "")
	if err != nil || p.URL == "" || p.Code == "" || p.Interval <= 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := device.Finish(ctx, l, "", ""); !errors.Is(err, logins.ErrPending) {
		t.Errorf("before somebody has logged in: %v", err)
	}
	if _, shows, err := server.Browse(p.URL, "bob", "words of bob"); err != nil || !strings.Contains(shows, "allowed") {
		t.Fatalf("the page shows %s, %v", shows, err)
	}
	if bob, err := device.Finish(ctx, l, "", ""); err != nil || bob.Name != "bob" || bob.Role != model.RoleUser {
		t.Errorf("bob: %+v, %v", bob, err)
	}
	if err := os.WriteFile(word, []byte("other words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, l, err = device.Begin(ctx, ""); err == nil {
		_, err = device.Finish(ctx, l, "", "")
	}
	if problem.CodeOf(err) != problem.Busy {
		t.Errorf("with a wrong secret of the mesh: %v", err)
	}
	for what, c := range map[string]config.IdentityProvider{
		"another issuer":  {Issuer: strings.TrimSuffix(server.Issuer, "/") + "/other/", ClientID: idp.Native},
		"no such port":    {Issuer: "http://127.0.0.1:1/", ClientID: idp.Native},
		"no file":         {Issuer: server.Issuer, ClientID: idp.Device, ClientSecretFile: "/nothing"},
		"no CA":           {Issuer: server.Issuer, ClientID: idp.Native, CACert: "/nothing"},
		"an unknown mesh": {Issuer: server.Issuer, ClientID: "nobody"},
	} {
		if p, _, err := openOIDC(t, c).Begin(ctx, ""); problem.CodeOf(err) != problem.Busy {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
}
