package directory

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/engine/problem"
)

// deviceGrant is the type of grant with which a device asks for its token (RFC 8628, 3.4).
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// consoleCallback is the path of the console's page to which a browser comes back.
const consoleCallback = "/console/callback"

// OIDC is a provider of OpenID Connect. It has people log in on its own pages.
type OIDC struct {
	cfg config.IdentityProvider
	// For logins of each flow and for renewals, so that strangers who begin one kind stop nothing else.
	codes, devices, renewals slots

	mu    sync.Mutex // also while the provider is asked about itself, once for all who wait
	known *known
}

// known is what a provider says of itself.
type known struct {
	*oidc.Provider
	style oauth2.AuthStyle
	http  *http.Client
	err   error // why it could not be asked
	until time.Time
}

// remember is how long a provider is not asked again about itself. So a login by the code flow begins without a request.
// That it did not answer is remembered for a few seconds only.
const (
	remember = 10 * time.Minute
	silent   = 5 * time.Second
)

// Begin starts a login. With a URL to which the browser comes back, it uses the authorization code flow with PKCE; without one
// the device flow.
func (o *OIDC) Begin(ctx context.Context, redirect string) (p logins.Prompt, l logins.Pending, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if redirect == "" {
		return o.beginDevice(ctx)
	}
	if strings.HasPrefix(redirect, "https:") && redirect != o.cfg.ConsoleURL+consoleCallback {
		if o.cfg.ConsoleURL == "" {
			return p, l, problem.New(problem.Conflict, "%s does not allow logins from the console: set console_url in the agents' "+
				"configuration, or use coopr login", o.cfg.Name)
		}
		return p, l, problem.New(problem.Conflict, "%s allows logins from the console at %s only: open that page", o.cfg.Name, o.cfg.ConsoleURL)
	}
	_, c, err := o.client(&ctx)
	if err != nil {
		return p, l, err
	}
	c.RedirectURL = redirect
	l = logins.Pending{Redirect: redirect, Verifier: oauth2.GenerateVerifier(), State: rand.Text(), Nonce: rand.Text()}
	p.URL = c.AuthCodeURL(l.State, oidc.Nonce(l.Nonce), oauth2.S256ChallengeOption(l.Verifier))
	return p, l, nil
}

func (o *OIDC) beginDevice(ctx context.Context) (p logins.Prompt, l logins.Pending, err error) {
	if !o.cfg.Device {
		return p, l, problem.New(problem.Conflict, "%s does not allow a login on another device: leave out --device", o.cfg.Name)
	}
	leave, err := o.devices.enter(o.cfg.Name)
	if err != nil {
		return p, l, err
	}
	defer leave()
	_, c, err := o.client(&ctx)
	if err != nil {
		return p, l, err
	}
	d, err := c.DeviceAuth(ctx)
	if err != nil {
		return p, l, err
	}
	p = logins.Prompt{
		URL: cmp.Or(d.VerificationURIComplete, d.VerificationURI), Code: d.UserCode, Ends: d.Expiry,
		Interval: time.Duration(cmp.Or(d.Interval, 5)) * time.Second, // RFC 8628, 3.2
	}
	if p.URL == "" || p.Code == "" {
		return p, l, fmt.Errorf("%s has sent no page or no code for the device flow", o.cfg.Issuer)
	}
	return p, logins.Pending{Device: d.DeviceCode}, nil
}

// Finish returns the person who has logged in, and the refresh token if the scopes of the settings ask for one. It fails with
// logins.ErrPending or ErrSlowDown as long as nobody has in the device flow.
func (o *OIDC) Finish(ctx context.Context, l logins.Pending, state, code string) (p logins.Person, refresh string, err error) {
	places, options := o.codes, []oauth2.AuthCodeOption{oauth2.VerifierOption(l.Verifier)}
	if l.Device != "" {
		places, code = o.devices, ""
		options = []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("grant_type", deviceGrant), oauth2.SetAuthURLParam("device_code", l.Device)}
	} else if subtle.ConstantTimeCompare([]byte(state), []byte(l.State)) != 1 || code == "" {
		return p, "", denied("the browser came back from another login")
	}
	leave, err := places.enter(o.cfg.Name)
	if err != nil {
		return p, "", err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	provider, c, err := o.client(&ctx)
	if err != nil {
		return p, "", err
	}
	c.RedirectURL = l.Redirect
	token, err := c.Exchange(ctx, code, options...)
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		switch refusal.ErrorCode {
		case "authorization_pending":
			return p, "", logins.ErrPending
		case "slow_down":
			return p, "", logins.ErrSlowDown
		case "access_denied", "expired_token", "invalid_grant":
			return p, "", denied("%v", o.brief(err))
		}
	}
	if err != nil {
		return p, "", o.brief(err)
	}
	id, err := o.verify(ctx, provider, token)
	switch {
	case err != nil:
		return p, "", err
	case id.Nonce != l.Nonce:
		return p, "", denied("the ID token belongs to another login")
	}
	if slices.Contains(o.cfg.Scopes, oidc.ScopeOfflineAccess) {
		refresh = token.RefreshToken // others may end long before the session
	}
	p, err = o.person(ctx, provider, token, id)
	return p, refresh, err
}

// Renew asks the provider about a person with a refresh token. Many providers replace it each time.
func (o *OIDC) Renew(ctx context.Context, subject, refresh string) (p logins.Person, next string, err error) {
	leave, err := o.renewals.enter(o.cfg.Name)
	if err != nil {
		return p, "", err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	provider, c, err := o.client(&ctx)
	if err != nil {
		return p, "", err
	}
	token, err := c.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token()
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refusal.ErrorCode == "invalid_grant" {
		return p, "", fmt.Errorf("%w: %w", logins.ErrEnded, o.brief(err))
	}
	if err != nil {
		return p, "", o.brief(err)
	}
	next = token.RefreshToken
	var id *oidc.IDToken
	switch { // a provider need not send an ID token again
	case token.Extra("id_token") != nil:
		if id, err = o.verify(ctx, provider, token); err != nil {
			return p, next, err
		}
	case provider.UserInfoEndpoint() == "":
		return p, next, fmt.Errorf("%s has neither an ID token nor claims for a refresh token", o.cfg.Issuer)
	default:
		issuer, name, _ := strings.Cut(subject, " ")
		id = &oidc.IDToken{Issuer: issuer, Subject: name}
	}
	if subjectOf(id) != subject {
		return p, next, fmt.Errorf("%w: the refresh token of %s is of %s now", logins.ErrEnded, subject, subjectOf(id))
	}
	p, err = o.person(ctx, provider, token, id)
	return p, next, err
}

// brief returns the error of a request for a token without the texts of the answer, which may repeat secrets of the request.
func (o *OIDC) brief(err error) error {
	if r, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return fmt.Errorf("%s answers %d %q", o.cfg.Issuer, r.Response.StatusCode, r.ErrorCode)
	}
	return err
}

// subjectOf returns the id that never becomes another person's.
func subjectOf(id *oidc.IDToken) string { return id.Issuer + " " + id.Subject }

// client returns the provider and the mesh as its client, and puts the connection to it into a context.
func (o *OIDC) client(ctx *context.Context) (*known, *oauth2.Config, error) {
	k, err := o.ask(*ctx)
	if err != nil {
		return nil, nil, err
	}
	secret := ""
	if o.cfg.ClientSecretFile != "" {
		text, err := os.ReadFile(o.cfg.ClientSecretFile)
		if err != nil {
			return nil, nil, err
		}
		secret = strings.TrimSpace(string(text))
	}
	at := k.Endpoint()
	at.AuthStyle = k.style
	if secret == "" {
		at.AuthStyle = oauth2.AuthStyleInParams
	}
	*ctx = oidc.ClientContext(*ctx, k.http)
	return k, &oauth2.Config{
		ClientID: o.cfg.ClientID, ClientSecret: secret, Endpoint: at, Scopes: append([]string{oidc.ScopeOpenID}, o.cfg.Scopes...),
	}, nil
}

// ask returns what the provider says of itself.
func (o *OIDC) ask(ctx context.Context) (*known, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.known; k != nil && time.Now().Before(k.until) {
		return k, k.err
	}
	k, err := o.describe(context.WithoutCancel(ctx)) // a caller who gives up ends it for nobody else
	if err != nil {
		k = &known{err: err, until: time.Now().Add(silent)}
	}
	o.known = k
	return k, err
}

func (o *OIDC) describe(ctx context.Context) (*known, error) {
	roots, err := authorities(o.cfg.CACert)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	transport.DisableKeepAlives = true
	k := &known{style: oauth2.AuthStyleInParams, until: time.Now().Add(remember), http: &http.Client{
		Transport: careful{transport, strings.HasPrefix(o.cfg.Issuer, "http:")}, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if k.Provider, err = oidc.NewProvider(oidc.ClientContext(ctx, k.http), o.cfg.Issuer); err != nil {
		return nil, err
	}
	// The library would try both ways to send the secret, and use up a code or an attempt.
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := k.Claims(&says); err != nil {
		return nil, fmt.Errorf("what %s says of itself: %w", o.cfg.Issuer, err)
	}
	if len(says.Methods) == 0 || slices.Contains(says.Methods, "client_secret_basic") {
		k.style = oauth2.AuthStyleInHeader
	}
	return k, nil
}

// careful sends requests over TLS only, unless plain is set, and reads a bounded number of bytes of an answer.
type careful struct {
	http.RoundTripper
	plain bool
}

// RoundTrip sends a request.
func (c careful) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !c.plain {
		return nil, fmt.Errorf("%s is not encrypted", r.URL.Redacted())
	}
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, mostBytes), resp.Body}
	}
	return resp, err
}

// verify returns the ID token of an answer.
func (o *OIDC) verify(ctx context.Context, provider *known, token *oauth2.Token) (*oidc.IDToken, error) {
	raw, _ := token.Extra("id_token").(string)
	id, err := provider.VerifierContext(ctx, &oidc.Config{ClientID: o.cfg.ClientID}).Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the ID token: %w", err)
	}
	return id, nil
}

// person returns whom a token is about. Claims that are not in the ID token are asked for at the provider.
func (o *OIDC) person(ctx context.Context, provider *known, token *oauth2.Token, id *oidc.IDToken) (p logins.Person, err error) {
	claims := map[string]any{}
	if token.Extra("id_token") != nil {
		if err := id.Claims(&claims); err != nil {
			return p, fmt.Errorf("the ID token: %w", err)
		}
	}
	_, named := claims[o.cfg.NameClaim]
	_, grouped := claims[o.cfg.GroupsClaim]
	if (!named || !grouped && len(o.cfg.Rules) > 0) && provider.UserInfoEndpoint() != "" {
		info, err := provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
		if err != nil {
			return p, err
		}
		more := map[string]any{}
		if err := info.Claims(&more); err != nil {
			return p, fmt.Errorf("the claims of %s: %w", id.Subject, err)
		}
		if info.Subject != id.Subject {
			return p, denied("the claims of %s are those of another subject", id.Subject)
		}
		for name, value := range more {
			if _, ok := claims[name]; !ok {
				claims[name] = value
			}
		}
	}
	name, _ := claims[o.cfg.NameClaim].(string)
	if name == "" {
		return p, denied("%s has no claim %s", id.Subject, o.cfg.NameClaim)
	}
	in := map[string]bool{}
	for _, g := range texts(claims[o.cfg.GroupsClaim]) {
		in[g] = true
	}
	p = logins.Person{Subject: subjectOf(id), Name: name}
	return p, enroll(&p, o.cfg.Role, o.cfg.Rules, func(r config.DirectoryRule) bool { return in[r.Group] })
}

// texts returns a claim that is a text or a list of texts.
func texts(claim any) (out []string) {
	switch v := claim.(type) {
	case string:
		out = append(out, v)
	case []any:
		for _, x := range v {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}
