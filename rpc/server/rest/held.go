package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// tokenTime is how often a request that waits checks that its token is still valid.
const tokenTime = time.Second

// waits reports whether a request may last long: as a stream, a followed log or a blocking read.
func waits(ru Rule, query url.Values) bool {
	follow, _ := strconv.ParseBool(query.Get("follow")) // huma refuses other values
	return ru.Watches || query.Get("index") != "" || follow
}

// blocks reports whether a request is a read that waits for a state and is then answered at once.
func blocks(ru Rule, query url.Values) bool {
	follow, _ := strconv.ParseBool(query.Get("follow"))
	return query.Get("index") != "" && !ru.Watches && !follow
}

// endedRight is the cause of the end of a context whose token was revoked, or whose caller may not go on.
type endedRight struct{ error }

func (e *endedRight) Unwrap() error { return e.error }

// Ended returns why a request ended before its reader left: its token is not valid any more, or its caller may not read on.
// It returns nil if the reader left, and while the request goes on.
func Ended(ctx context.Context) error {
	var e *endedRight
	if errors.As(context.Cause(ctx), &e) {
		return e.error
	}
	return nil
}

// CheckToken returns an error if the token of a call that waited was revoked meanwhile.
func (c *Call) CheckToken(ctx context.Context) error {
	if c.check == nil {
		return nil
	}
	return c.check(ctx)
}

// question asks whether a call may go on with what it has begun.
type question func(*Call, View) error

// repeat sets the question that is asked again and again while the call waits.
func (c *Call) repeat(q question) {
	if c.question != nil {
		c.question.Store(&q)
	}
}

// permits asks the question of a call by the present policies. Without a question, or a state, it returns nil.
func (s *Server) permits(ctx context.Context, c *Call) error {
	ask := c.question.Load()
	if ask == nil {
		return nil
	}
	v, err := s.State.View(ctx, api.Stale, 0)
	if err != nil {
		return nil
	}
	now := &Call{Who: c.Who, decider: decider{
		set: s.setOf(v, c.Who.Tenant), principal: c.principal, right: c.right, planned: c.planned,
		circumstances: access.Context{Now: s.Millis(), Method: c.circumstances.Method},
	}}
	return (*ask)(now, v)
}

// hold makes a request that waits end with its token and its caller's right. The returned context ends soon after these,
// until the caller calls release.
func (s *Server) hold(r *http.Request, c *Call) (held context.Context, release func()) {
	bearer := c.Bearer
	c.question = new(atomic.Pointer[question])
	var began atomic.Pointer[model.Caller] // nil as long as the copy of the state lacks the token
	if who, err := s.Tokens.Authenticate(r.Context(), bearer); err == nil {
		began.Store(&who)
	}
	c.check = func(ctx context.Context) error {
		now, err := s.Tokens.Authenticate(ctx, bearer)
		if err == nil {
			began.CompareAndSwap(nil, &now)
			if !now.SameRights(began.Load()) {
				return problem.New(problem.Unauthorized, "the rights of %s have changed: ask again", now.Actor)
			}
			return nil
		}
		if began.Load() == nil || !s.Router.Serves(true) {
			// The copy of the state did not have the token before. Only the leader's refusal ends the request.
			_, err = s.identify(ctx, time.Now().Add(tokenTime), bearer)
		}
		if !errors.Is(err, problem.Unauthorized) {
			return nil
		}
		return problem.New(problem.Unauthorized, "the token was revoked or has ended")
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(min(tokenTime, s.heartbeat))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			err := c.check(ctx)
			if err == nil {
				err = s.permits(ctx, c)
			}
			if err != nil {
				cancel(&endedRight{err})
				return
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
