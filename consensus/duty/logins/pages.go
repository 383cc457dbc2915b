package logins

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// loginTime is how long a login on a provider's pages may take.
const loginTime = 10 * time.Minute

// The errors of a login that nobody has finished yet.
var (
	ErrPending  = errors.New("nobody has logged in yet")
	ErrSlowDown = fmt.Errorf("%w, and the directory is asked too often: wait five seconds longer from now on", ErrPending)
)

// ErrEnded means that a directory with pages does not let a login of the past be renewed.
var ErrEnded = errors.New("the login has ended at the directory")

// Pages is a directory that has people log in on pages of its own.
type Pages interface {
	// Begin starts a login. The browser comes back to a URL, or nowhere if that is "".
	Begin(ctx context.Context, redirect string) (Prompt, Pending, error)
	// Finish returns the person who has logged in, and a secret for Renew, or "" if the directory is not asked again. state and code
	// are what the browser came back with. It fails with ErrPending, or as the methods of Directory do.
	Finish(ctx context.Context, l Pending, state, code string) (p Person, secret string, err error)
	// Renew returns the person who is a subject as the directory has it now. secret is what Finish or Renew returned last about that
	// person; next is in its place from now on unless it is "", also if there is an error. Renew fails with ErrEnded if the secret does
	// not count any more, or as the methods of Directory do.
	Renew(ctx context.Context, subject, secret string) (p Person, next string, err error)
}

// Prompt is what somebody needs who is to log in.
type Prompt struct {
	// URL is of the page, and Code is what to type there if the URL has no code.
	URL, Code string
	// Interval is the time between two attempts to finish the login.
	Interval time.Duration
	// Ends is when the login ends, if that is sooner than loginTime.
	Ends time.Time
}

// Pending is a login that has begun. Nobody but the leader reads it.
type Pending struct {
	Source
	Ends int64 // in Unix milliseconds
	// Redirect, Verifier, State and Nonce belong to a login whose browser comes back, Device to another.
	Redirect, Verifier, State, Nonce, Device string
}

// seal encrypts a pending login, which the caller keeps meanwhile. So strangers who begin logins fill no memory. Every leader of the mesh
// has the key.
func (c *Controller) seal(l Pending) (string, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	cipher, err := c.cipher(c.cfg.Ring.Set().Active)
	if errors.Is(err, keyring.ErrNoKey) {
		return "", problem.New(problem.NoMajority, "the mesh has no keys yet: try again in a moment")
	}
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(cipher.Seal(c.place(), text)), nil
}

// cipher returns the cipher of pending logins. Its key is derived from the mesh key with a number, so that it opens nothing else.
func (c *Controller) cipher(number uint32) (*keyring.Cipher, error) {
	k, err := c.cfg.Ring.Key(number)
	if err != nil {
		return nil, err
	}
	return keyring.NewCipher(k.For("logins")), nil
}

func (c *Controller) open(text string) (l Pending, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	var number uint32
	if err == nil {
		number, err = keyring.NumberOf(sealed)
	}
	var cipher *keyring.Cipher
	if err == nil {
		cipher, err = c.cipher(number)
	}
	if err == nil {
		sealed, err = cipher.Open(c.place(), sealed)
	}
	if err == nil {
		err = json.Unmarshal(sealed, &l)
	}
	if err != nil {
		return l, problem.New(problem.Unauthorized, "this login has ended, or the mesh has other keys now: begin again")
	}
	return l, nil
}

// place returns the additional data of a pending login.
func (c *Controller) place() []byte { return keyring.Bind("login", c.cfg.Machine.View().Mesh()) }

// Begin starts a login with a directory. A prompt without a URL asks for a name and a password. id is needed to finish the
// login before its end.
func (c *Controller) Begin(ctx context.Context, at Source, redirect string) (p Prompt, id string, err error) {
	d := c.cfg.Directories[at]
	if d == nil {
		return p, "", refused()
	}
	pages, ok := d.(Pages)
	if !ok {
		return p, "", nil
	}
	p, l, err := pages.Begin(ctx, redirect)
	if err != nil {
		return p, "", c.explain(at, err)
	}
	if end := time.Now().Add(loginTime); p.Ends.IsZero() || p.Ends.After(end) {
		p.Ends = end
	}
	l.Source, l.Ends = at, p.Ends.UnixMilli()
	id, err = c.seal(l)
	return p, id, err
}

// Finish returns the user who has logged in, as Login does, or fails with ErrPending.
func (c *Controller) Finish(ctx context.Context, id, state, code string) (u model.User, err error) {
	l, err := c.open(id)
	if err != nil {
		return u, err
	}
	pages, ok := c.cfg.Directories[l.Source].(Pages)
	if !ok || time.Now().UnixMilli() > l.Ends {
		return u, problem.New(problem.Unauthorized, "this login has ended: begin again")
	}
	p, secret, err := pages.Finish(ctx, l, state, code)
	switch {
	case errors.Is(err, ErrPending):
		return u, err
	case err != nil:
		return u, c.explain(l.Source, err)
	}
	if u, err = c.admit(ctx, l.Source, p, c.cfg.Machine.View()); err != nil {
		return u, err
	}
	if err := c.begin(ctx, u, secret); err != nil {
		c.cfg.Logger.Warn("the sessions of a user cannot be renewed", "directory", u.Method, "tenant", u.Tenant, "user", u.Name, "error", err)
	}
	return u, nil
}
