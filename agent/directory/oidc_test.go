package directory

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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
	own := openOIDC(t, config.IdentityProvider{Issuer: server.Issuer, ClientID: idp.Native, ConsoleURL: "https://coopr.example.com"})
	const console = "https://coopr.example.com/console/callback"
	if at, kept, err := own.Begin(ctx, console); err != nil || kept.Redirect != console || !strings.Contains(at.URL, url.QueryEscape(console)) {
		t.Errorf("from the console: %+v, %v", at, err)
	}
	p, l := begin()
	q := browse(p, "ann")
	if ann, _, err := native.Finish(ctx, l, q.Get("state"), q.Get("code")); err != nil || ann.Subject != server.Issuer+" ann" || ann.Name != "ann" ||
		ann.Role != model.RoleAdmin || !slices.Equal(ann.Groups, []string{"devs"}) {
		t.Errorf("ann: %+v, %v", ann, err)
	}
	refused := func(what string, l logins.Pending, state, code string) {
		t.Helper()
		if p, _, err := native.Finish(ctx, l, state, code); problem.CodeOf(err) != problem.Unauthorized {
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
	// Of a login that is good otherwise, one part belongs to another.
	for what, alter := range map[string]func(l *logins.Pending, q url.Values){
		"state":    func(_ *logins.Pending, q url.Values) { q.Set("state", other.State) },
		"no state": func(_ *logins.Pending, q url.Values) { q.Del("state") },
		"no code":  func(_ *logins.Pending, q url.Values) { q.Del("code") },
		"nonce":    func(l *logins.Pending, _ url.Values) { l.Nonce = other.Nonce },
		"verifier": func(l *logins.Pending, _ url.Values) { l.Verifier = other.Verifier },
		"redirect": func(l *logins.Pending, _ url.Values) { l.Redirect = "http://127.0.0.1:1/console/callback" },
	} {
		p, l = begin()
		q = browse(p, "bob")
		alter(&l, q)
		refused(what, l, q.Get("state"), q.Get("code"))
	}
	p, _ = begin()
	if at, _, _ := server.Browse(p.URL, "ann", "words of bob"); strings.HasPrefix(at, back) {
		t.Error("the provider lets a wrong password in")
	}

	word := filepath.Join(t.TempDir(), "word")
	if err := os.WriteFile(word, []byte(idp.DeviceWord+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	device := openOIDC(t, config.IdentityProvider{Issuer: server.Issuer, ClientID: idp.Device, ClientSecretFile: word, Device: true})
	p, l, err := device.Begin(ctx, "")
	if err != nil || p.URL == "" || p.Code == "" || p.Interval <= 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, _, err := device.Finish(ctx, l, "", ""); !errors.Is(err, logins.ErrPending) {
		t.Errorf("before somebody has logged in: %v", err)
	}
	if _, shows, err := server.Browse(p.URL, "bob", "words of bob"); err != nil || !strings.Contains(shows, "allowed") {
		t.Fatalf("the page shows %s, %v", shows, err)
	}
	if bob, _, err := device.Finish(ctx, l, "", ""); err != nil || bob.Name != "bob" || bob.Role != model.RoleUser {
		t.Errorf("bob: %+v, %v", bob, err)
	}
	if err := os.WriteFile(word, []byte("other words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, l, err = device.Begin(ctx, ""); err == nil {
		_, _, err = device.Finish(ctx, l, "", "")
	}
	if problem.CodeOf(err) != problem.Internal {
		t.Errorf("with a wrong secret of the mesh: %v", err)
	}
	if p, _, err := native.Begin(ctx, ""); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a device that is not allowed: %+v, %v", p, err)
	}
	for what, c := range map[string]config.IdentityProvider{
		"another issuer": {Issuer: strings.TrimSuffix(server.Issuer, "/") + "/other/", ClientID: idp.Native},
		"no such port":   {Issuer: "http://127.0.0.1:1/", ClientID: idp.Native},
		"no file":        {Issuer: server.Issuer, ClientID: idp.Device, ClientSecretFile: "/nothing"},
		"no CA":          {Issuer: server.Issuer, ClientID: idp.Native, CACert: "/nothing"},
	} {
		if p, _, err := openOIDC(t, c).Begin(ctx, back); problem.CodeOf(err) != problem.Internal {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}

	// The provider's description of itself is remembered, so that logins begin while it is away.
	server.Stop()
	if p, _, err := native.Begin(ctx, back); err != nil || p.URL == "" {
		t.Errorf("without the provider: %+v, %v", p, err)
	}
	if _, _, err := native.Finish(ctx, other, other.State, "code"); problem.CodeOf(err) != problem.Internal {
		t.Errorf("without the provider: %v", err)
	}
}

// TestOIDCRenewal asks a real provider again about somebody who has logged in: it says who the person is now, and refuses one who is gone.
func TestOIDCRenewal(t *testing.T) {
	server := idp.New(t)
	ctx := t.Context()
	came := make(chan url.Values, 1)
	page := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { came <- r.URL.Query() }))
	defer page.Close()
	open := func(scopes ...string) *OIDC {
		return openOIDC(t, config.IdentityProvider{Issuer: server.Issuer, ClientID: idp.Native, Scopes: scopes})
	}
	login := func(o *OIDC, name string) (subject, refresh string) {
		t.Helper()
		p, l, err := o.Begin(ctx, page.URL+"/callback")
		if err != nil {
			t.Fatal(err)
		}
		if at, shows, err := server.Browse(p.URL, name, "words of "+name); err != nil || !strings.HasPrefix(at, page.URL) {
			t.Fatalf("the browser is at %s: %s, %v", at, shows, err)
		}
		q := <-came
		who, refresh, err := o.Finish(ctx, l, q.Get("state"), q.Get("code"))
		if err != nil {
			t.Fatal(err)
		}
		return who.Subject, refresh
	}
	if _, refresh := login(open(), "ann"); refresh != "" {
		t.Error("there is a refresh token without its scope")
	}
	o := open("profile", "offline_access")
	ann, refresh := login(o, "ann")
	bob, bobs := login(o, "bob")
	server.Knows(t, map[string][]string{"ann": {"devs"}, "bob": {"others"}})
	who, next, err := o.Renew(ctx, ann, refresh)
	if err != nil || who.Subject != ann || who.Name != "ann" || who.Role != model.RoleUser || !slices.Equal(who.Groups, []string{"devs"}) ||
		next == "" || next == refresh {
		t.Fatalf("ann with other groups: %+v, %q, %v", who, next, err)
	}
	if _, next, err := o.Renew(ctx, ann, refresh); !errors.Is(err, logins.ErrEnded) || next != "" {
		t.Errorf("with the refresh token of before: %q, %v", next, err)
	}
	if _, _, err := o.Renew(ctx, bob, next); !errors.Is(err, logins.ErrEnded) {
		t.Errorf("with the refresh token of somebody else: %v", err)
	}
	if who, next, err := o.Renew(ctx, bob, bobs); problem.CodeOf(err) != problem.Unauthorized || next == "" {
		t.Errorf("bob without a group that has a role: %+v, %q, %v", who, next, err)
	}
	ann, refresh = login(o, "ann")
	server.Knows(t, map[string][]string{"bob": {"devs"}})
	if who, _, err := o.Renew(ctx, ann, refresh); !errors.Is(err, logins.ErrEnded) || strings.Contains(err.Error(), refresh) {
		t.Errorf("ann, who is gone: %+v, %v", who, err)
	}
	server.Stop()
	if _, next, err := o.Renew(ctx, bob, bobs); err == nil || errors.Is(err, logins.ErrEnded) || problem.CodeOf(err) != problem.Internal ||
		next != "" || strings.Contains(err.Error(), bobs) {
		t.Errorf("without the provider: %q, %v", next, err)
	}
}

// TestHostileProvider has a provider send people elsewhere without TLS, answer without end, and ask for credentials by a redirect.
func TestHostileProvider(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request without TLS was sent") }))
	defer plain.Close()
	answers := map[string]http.HandlerFunc{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := answers[r.URL.Path]; h != nil {
			h(w, r)
		}
	}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	discovery := func(token string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": server.URL, "authorization_endpoint": server.URL + "/auth",
				"token_endpoint": token, "jwks_uri": server.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}})
		}
	}
	provider := func() *OIDC {
		return openOIDC(t, config.IdentityProvider{Issuer: server.URL, ClientID: "c", CACert: ca})
	}
	const at = "/.well-known/openid-configuration"
	finish := func(what string) {
		t.Helper()
		o := provider()
		_, l, err := o.Begin(t.Context(), "http://127.0.0.1:1/")
		if err != nil {
			t.Fatal(err)
		}
		if p, _, err := o.Finish(t.Context(), l, l.State, "code"); err == nil {
			t.Errorf("%s: %+v", what, p)
		}
	}
	answers[at] = discovery(plain.URL)
	finish("an address without TLS")
	answers[at] = discovery(server.URL + "/token")
	for _, text := range []string{"%s", `{"error":"invalid_grant","error_description":"%s"}`, `{"error":"busy","error_description":"%s"}`} {
		answers["/token"] = func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, text, r.FormValue("refresh_token")+r.FormValue("code"))
		}
		o := provider()
		if _, _, err := o.Renew(t.Context(), server.URL+" ann", "canary"); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("an answer that repeats the refresh token, in %s: %v", text, err)
		}
		_, l, err := o.Begin(t.Context(), "http://127.0.0.1:1/")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := o.Finish(t.Context(), l, l.State, "canary"); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("an answer that repeats the code, in %s: %v", text, err)
		}
	}
	answers["/token"] = http.RedirectHandler(plain.URL, http.StatusTemporaryRedirect).ServeHTTP
	finish("a redirect to an address without TLS")
	var sent atomic.Int64
	answers["/token"] = func(w http.ResponseWriter, _ *http.Request) {
		for err := error(nil); err == nil; {
			var n int
			n, err = w.Write(make([]byte, 1<<16))
			sent.Add(int64(n))
		}
	}
	finish("an answer without end")
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("%d bytes of an answer without end were taken", n)
	}
	answers[at] = answers["/token"]
	if p, _, err := provider().Begin(t.Context(), "http://127.0.0.1:1/"); problem.CodeOf(err) != problem.Internal {
		t.Errorf("a description without end: %+v, %v", p, err)
	}
}

// A browser comes back to no console but the configured one.
func TestConsoleAddress(t *testing.T) {
	const issuer, console = "https://login.example.com/", "https://coopr.example.com:55054"
	with := openOIDC(t, config.IdentityProvider{Issuer: issuer, ClientID: "a", ConsoleURL: console})
	without := openOIDC(t, config.IdentityProvider{Issuer: issuer, ClientID: "a"})
	for redirect, o := range map[string]*OIDC{
		"https://coopr.example.com/console/callback": with, console + "/": with, console + ".example.org/console/callback": with,
		console + "/console/callback": without,
	} {
		if _, _, err := o.Begin(t.Context(), redirect); problem.CodeOf(err) != problem.Conflict {
			t.Errorf("%s: %v", redirect, err)
		}
	}
}
