package rest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coopr/coopr/engine/problem"
)

// tokenTime is how often a request that waits checks that its token is still valid.
const tokenTime = time.Second

// waits reports whether a request may last long: as a stream, a followed log or a blocking read.
func waits(ru Rule, query url.Values) bool {
	follow, _ := strconv.ParseBool(query.Get("follow")) // huma refuses other values
	return ru.Watches || query.Get("index") != "" || follow
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

// hold makes a request that waits end with its token and its caller's right. The returned context ends soon after these,
// until the caller calls release.
func (s *Server) hold(r *http.Request, c *Call) (held context.Context, release func()) {
	token := c.Token
	c.again = &atomic.Pointer[func(*Call, View) error]{}
	_, err := s.Tokens.Authenticate(r.Context(), token)
	known := err == nil
	c.check = func(ctx context.Context) error {
		_, err := s.Tokens.Authenticate(ctx, token)
		if err != nil && !(known && s.Router.Serves(true)) {
			// The copy of the state did not have the token before. Only the leader's refusal ends the request.
			_, err = s.identify(ctx, time.Now().Add(tokenTime), token)
		}
		if !errors.Is(err, problem.Unauthorized) {
			return nil
		}
		return problem.New(problem.Unauthorized, "the token was revoked")
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
				err = s.stands(ctx, c)
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
