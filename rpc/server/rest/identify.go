package rest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// SelfPath is the path of the route getSelf, which returns the caller that a token belongs to.
const SelfPath = "/v1/self"

// identify returns the caller that a token belongs to. An agent that has no state asks the leader, and so
// does one whose copy of the state lacks the token, which may be new. It waits for a leader until the
// given time.
func (s *Server) identify(ctx context.Context, until time.Time, b Bearer) (model.Caller, error) {
	if b.Token == "" {
		return model.Caller{}, problem.New(problem.Unauthorized, "send a token, as \"Authorization: Bearer TOKEN\"")
	}
	leads := s.Router.Serves(false) // asked first: the leader's copy has every token
	who, err := s.Tokens.Authenticate(ctx, b)
	if err == nil || !errors.Is(err, problem.Unauthorized) || leads {
		return who, err
	}
	if who, ok := s.callers.get(b, 0); ok {
		return who, nil
	}
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, 400*time.Millisecond) {
		if who, err = s.askLeader(ctx, until, b); err == nil {
			s.callers.put(b.Token, who)
			return who, nil
		}
		if errors.Is(err, problem.Unauthorized) {
			s.callers.forget(b.Token)
			return model.Caller{}, err
		}
		if time.Until(until) < pause || ctx.Err() != nil {
			// The cause names addresses, which are not for everybody.
			s.log.Debug("no leader has checked a token", "error", err)
			return model.Caller{}, s.noLeader(ctx, false)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if s.Router.Serves(false) {
			return s.Tokens.Authenticate(ctx, b)
		}
	}
}

// askLeader asks the leader whom a token belongs to. It fails with problem.Unauthorized if the leader does
// not know the token, and with problem.NoLeader if no leader answers.
func (s *Server) askLeader(ctx context.Context, until time.Time, b Bearer) (model.Caller, error) {
	header := b.Header()
	header.Set(api.HeaderForwarded, s.name)
	status, _, body, err := s.Router.RoundTripToLeader(ctx, until, http.MethodGet, SelfPath, header, http.NoBody)
	if err != nil {
		return model.Caller{}, problem.Wrap(problem.NoLeader, err)
	}
	defer func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(body, 4096)) // so that the connection is used again
		body.Close()
	}()
	var self api.Self
	switch {
	case status == http.StatusUnauthorized:
		return model.Caller{}, problem.Unauthorized
	case status != http.StatusOK:
		return model.Caller{}, problem.New(problem.NoLeader, "the leader could not check the token (status %d)", status)
	}
	if err := json.NewDecoder(body).Decode(&self); err != nil {
		return model.Caller{}, problem.Wrap(problem.NoLeader, fmt.Errorf("the leader's answer about the token: %w", err))
	}
	return model.Caller{
		Tenant: self.Tenant, Actor: self.Actor, Role: self.Role, Root: self.Root, Groups: self.Groups, Account: self.Account,
		Session: self.Session, Expires: self.Expires, Sources: self.Sources,
	}, nil
}

// SelfOf describes a caller.
func SelfOf(who model.Caller) api.Self {
	return api.Self{
		Actor: who.Actor, Tenant: who.Tenant, Role: who.Role, Root: who.Root, Groups: who.Groups, Account: who.Account, Session: who.Session,
		Expires: who.Expires, Sources: who.Sources,
	}
}

// How long, and for how many tokens, an agent remembers what the leader answered about a token, and that there is this token.
const (
	callerTime = 10 * time.Second
	asksAgain  = time.Hour
	maxCallers = 10_000
)

// callers holds the leader's recent answers about tokens, by the hashes of these.
type callers struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]knownCaller
}

type knownCaller struct {
	who   model.Caller
	until time.Time
}

// get returns whom a token belongs to by an answer that is not older than callerTime and a further time.
func (c *callers) get(b Bearer, late time.Duration) (model.Caller, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[sha256.Sum256([]byte(b.Token))]
	return k.who, ok && time.Since(k.until) < late && model.AdmittedFrom(b.From, k.who.Sources)
}

// forget forgets a token that the leader does not know any more.
func (c *callers) forget(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, sha256.Sum256([]byte(token)))
}

func (c *callers) put(token string, who model.Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCallers {
		c.known = map[[sha256.Size]byte]knownCaller{}
	}
	c.known[sha256.Sum256([]byte(token))] = knownCaller{who, time.Now().Add(callerTime)}
}
