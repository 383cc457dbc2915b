package directory

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// deviceGrant is the type of grant with which a device asks for its token (RFC 8628, 3.4).
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// OIDC is a provider of OpenID Connect. It has people log in on its own pages.
type OIDC struct {
	cfg   config.IdentityProvider
	slots slots
}

// Begin starts a login. With a URL to which the browser comes back, it uses the authorization code flow with PKCE; without one
// the device flow.
func (o *OIDC) Begin(ctx context.Context, redirect string) (p logins.Prompt, pending logins.Pending, err error) {
	err = o.ask(ctx, func(ctx context.Context, _ *oidc.Provider, c *oauth2.Config) error {
		c.RedirectURL = redirect
		if redirect != "" {
			pending = logins.Pending{Redirect: redirect, Verifier: oauth2.GenerateVerifier(), State: rand.Text(), Nonce: rand.Text()}
			p.URL = c.AuthCodeURL(pending.State, oidc.Nonce(pending.Nonce), oauth2.S256ChallengeOption(pending.Verifier))
			return nil
		}
		d, err := c.DeviceAuth(ctx)
		if err != nil {
			return err
		}
		pending = logins.Pending{Device: d.DeviceCode}
		p = logins.Prompt{
			URL: cmp.Or(d.VerificationURIComplete, d.VerificationURI), Code: d.UserCode, Interval: time.Duration(max(d.Interval, 1)) * time.Second,
		}
		return nil
	})
	return p, pending, err
}

// Finish returns the person who has logged in. It fails with logins.ErrPending as long as nobody has in the device flow.
func (o *OIDC) Finish(ctx context.Context, l logins.Pending, state, code string) (p logins.Person, err error) {
	err = o.ask(ctx, func(ctx context.Context, provider *oidc.Provider, c *oauth2.Config) error {
		options := []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("grant_type", deviceGrant), oauth2.SetAuthURLParam("device_code", l.Device)}
		if l.Device == "" {
			if subtle.ConstantTimeCompare([]byte(state), []byte(l.State)) != 1 || code == "" {
				return denied("the browser came back from another login")
			}
			c.RedirectURL = l.Redirect
			options = []oauth2.AuthCodeOption{oauth2.VerifierOption(l.Verifier)}
		} else {
			code = ""
		}
		token, err := c.Exchange(ctx, code, options...)
		var refusal *oauth2.RetrieveError
		switch {
		case errors.As(err, &refusal) && slices.Contains([]string{"authorization_pending", "slow_down"}, refusal.ErrorCode):
			return logins.ErrPending
		case errors.As(err, &refusal) && slices.Contains([]string{"access_denied", "expired_token", "invalid_grant"}, refusal.ErrorCode):
			return denied("%s: %s", refusal.ErrorCode, refusal.ErrorDescription)
		case err != nil:
			return err
		}
		p, err = o.person(ctx, provider, token, l.Nonce)
		return err
	})
	return p, err
}

// ask calls fn with what the provider says of itself. All errors but those of people have the code problem.Busy.
func (o *OIDC) ask(ctx context.Context, fn func(context.Context, *oidc.Provider, *oauth2.Config) error) error {
	leave, err := o.slots.enter(o.cfg.Name)
	if err != nil {
		return err
	}
	defer leave()
	err = o.connect(ctx, fn)
	if err == nil || errors.Is(err, logins.ErrPending) || problem.CodeOf(err) == problem.Unauthorized {
		return err
	}
	return problem.New(problem.Busy, "the identity provider %s cannot be asked: %w", o.cfg.Name, err)
}

func (o *OIDC) connect(ctx context.Context, fn func(context.Context, *oidc.Provider, *oauth2.Config) error) error {
	secret := ""
	if o.cfg.ClientSecretFile != "" {
		text, err := os.ReadFile(o.cfg.ClientSecretFile)
		if err != nil {
			return err
		}
		secret = strings.TrimSpace(string(text))
	}
	roots, err := authorities(o.cfg.CACert)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	defer transport.CloseIdleConnections()
	ctx = oidc.ClientContext(ctx, &http.Client{Transport: transport, Timeout: 2 * patience})
	provider, err := oidc.NewProvider(ctx, o.cfg.Issuer)
	if err != nil {
		return err
	}
	// The library would try both ways to send the secret, and use up a code or an attempt.
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&says); err != nil {
		return fmt.Errorf("what %s says of itself: %w", o.cfg.Issuer, err)
	}
	at := provider.Endpoint()
	at.AuthStyle = oauth2.AuthStyleInParams
	if secret != "" && (len(says.Methods) == 0 || slices.Contains(says.Methods, "client_secret_basic")) {
		at.AuthStyle = oauth2.AuthStyleInHeader
	}
	return fn(ctx, provider, &oauth2.Config{
		ClientID: o.cfg.ClientID, ClientSecret: secret, Endpoint: at, Scopes: append([]string{oidc.ScopeOpenID}, o.cfg.Scopes...),
	})
}

// person returns whom a token is about. Claims that are not in the ID token are asked for at the provider.
func (o *OIDC) person(ctx context.Context, provider *oidc.Provider, token *oauth2.Token, nonce string) (p logins.Person, err error) {
	raw, _ := token.Extra("id_token").(string)
	id, err := provider.VerifierContext(ctx, &oidc.Config{ClientID: o.cfg.ClientID}).Verify(ctx, raw)
	switch {
	case err != nil:
		return p, fmt.Errorf("the ID token: %w", err)
	case id.Nonce != nonce:
		return p, denied("the ID token belongs to another login")
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return p, fmt.Errorf("the ID token: %w", err)
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
	p = logins.Person{Subject: id.Issuer + " " + id.Subject, Name: name}
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

// enroll gives a person the role and the groups of all rules that fit. It fails for a person without a role.
func enroll(p *logins.Person, role model.Role, rules []config.DirectoryRule, fits func(config.DirectoryRule) bool) error {
	p.Role = role
	for _, r := range rules {
		if !fits(r) {
			continue
		}
		p.Groups = append(p.Groups, r.Groups...)
		if r.Role.AtLeast(cmp.Or(p.Role, model.RoleRead)) {
			p.Role = r.Role
		}
	}
	slices.Sort(p.Groups)
	p.Groups = slices.Compact(p.Groups)
	if p.Role == "" {
		return denied("%s is in no group that has a role", p.Name)
	}
	return nil
}
