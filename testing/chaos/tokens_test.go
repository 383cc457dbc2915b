package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// token is a token that the mesh has issued.
type token struct {
	id, secret string
	revoking   bool // a client has asked the mesh to revoke it
	revoked    bool // the mesh has answered that it did
}

// mostTokens is how many tokens there are at most at a time.
const mostTokens = 6

// issue issues tokens, lists them and revokes them until the load stops. The history of each token is that of a
// key: issued once, and there until it is revoked.
func (l *load) issue(ctx context.Context, id int, random *rand.Rand) {
	for !l.stopped() && ctx.Err() == nil {
		l.mu.Lock()
		valid := slices.DeleteFunc(slices.Clone(l.tokens), func(t *token) bool { return t.revoking })
		l.mu.Unlock()
		first := random.IntN(len(l.mesh.agents))
		switch roll := random.IntN(4); {
		case len(valid) == 0 || roll == 0 && len(valid) < mostTokens:
			l.issueOne(ctx, id, first)
		case roll == 1:
			l.revoke(ctx, id, first, valid[random.IntN(len(valid))])
		default:
			l.list(ctx, id, first)
		}
		l.pause(ctx, time.Duration(50+random.IntN(300))*time.Millisecond)
	}
}

func (t *token) key() string { return "token " + t.id }

// issueOne asks two agents with one request id to issue a token.
func (l *load) issueOne(ctx context.Context, id, first int) {
	ctx = client.WithRequestID(ctx, client.NewRequestID())
	call := l.history.now()
	var answers [2]api.IssuedToken
	var errs [2]error
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() {
			errs[i] = l.ask(ctx, first+i, false, func() {}, func(ctx context.Context, c *client.Client) (err error) {
				answers[i], _, err = c.CreateToken(ctx, api.NewToken{Actor: "chaos", Role: model.RoleRead})
				return err
			})
		})
	}
	both.Wait()
	var t *token
	for i, err := range errs {
		switch {
		case err == nil && t != nil:
			l.fail("one request id issued two tokens: %s and %s", t.id, answers[i].ID)
		case err == nil:
			t = &token{id: answers[i].ID, secret: answers[i].Secret}
		case final(err) && !errors.Is(err, client.ErrConflict): // a repeated request is told that the secret is not shown again
			l.fail("a token was refused: %w", err)
		}
	}
	if t == nil {
		return // there may be a token that nobody knows
	}
	l.history.add(op{client: id, key: t.key(), what: "put", value: t.id, call: call, end: l.history.now()})
	l.mu.Lock()
	l.tokens = append(l.tokens, t)
	l.mu.Unlock()
}

// revoke revokes a token.
func (l *load) revoke(ctx context.Context, id, first int, t *token) {
	l.mu.Lock()
	t.revoking = true
	l.mu.Unlock()
	ctx = client.WithRequestID(ctx, client.NewRequestID())
	o := op{client: id, key: t.key(), what: "delete", call: l.history.now()}
	err := l.ask(ctx, first, false, func() {}, func(ctx context.Context, c *client.Client) error {
		_, err := c.DeleteToken(ctx, t.id)
		return err
	})
	o.end, o.found = l.history.now(), err == nil
	if o.unknown = err != nil && !errors.Is(err, client.ErrNotFound); o.unknown && final(err) {
		l.fail("the revocation of a token was refused: %w", err)
	}
	l.history.add(o)
	l.mu.Lock()
	t.revoked = !o.unknown
	l.mu.Unlock()
}

// list reads which tokens there are.
func (l *load) list(ctx context.Context, id, first int) {
	l.mu.Lock()
	known := slices.Clone(l.tokens[max(0, len(l.tokens)-2*mostTokens):])
	l.mu.Unlock()
	var call time.Duration
	var got []model.Token
	if err := l.ask(ctx, first, true, func() { call = l.history.now() }, func(ctx context.Context, c *client.Client) (err error) {
		got, _, err = c.Tokens(ctx, fresh)
		return err
	}); err != nil {
		if final(err) {
			l.fail("a list of the tokens was refused: %w", err)
		}
		return
	}
	end := l.history.now()
	for _, t := range known {
		o := op{client: id, key: t.key(), what: "get", call: call, end: end}
		if o.found = slices.ContainsFunc(got, func(x model.Token) bool { return x.ID == t.id }); o.found {
			o.value = t.id
		}
		l.history.add(o)
	}
}

// checkTokens has every agent admit the tokens that are valid, and refuse those that were revoked. It ends at the first agent
// that does not.
func (l *load) checkTokens(ctx context.Context) error {
	for _, a := range l.mesh.agents {
		for _, t := range l.tokens {
			if t.revoking && !t.revoked {
				continue // whether it is valid is not known
			}
			c, err := client.New(client.Config{Addresses: []string{a.at(httpPort)}, Token: t.secret, CACert: l.mesh.born("ca.pem"),
				Patience: -1})
			if err != nil {
				return err
			}
			// An agent that is behind learns of the token, or of its end.
			err = await(ctx, fmt.Sprintf("agent %s to admit %s: %v", a.name, t.key(), !t.revoked), func() error {
				_, _, err := c.Definitions(ctx, model.KindHardwareType, client.Read{})
				refused := errors.Is(err, client.ErrUnauthorized)
				switch {
				case refused && t.revoked:
					return nil
				case err == nil && t.revoked:
					return errors.New("it admits a token that was revoked")
				}
				return err
			})
			c.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}
