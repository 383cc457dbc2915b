package rest

import (
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/bounds"
)

// The log lines about requests without a valid token: so many a second on average, and at most linesAtOnce in a second.
const (
	linesRate   = 1
	linesAtOnce = 10
)

// source is what an agent knows of an address from which requests without a valid token come.
type source struct {
	requests bounds.Bucket
	public   bounds.Bucket // of requests for routes that need no token, so that others take nothing from health checks
}

// sources bounds the requests without a valid token.
type sources struct {
	rate float64 // of requests, for each source; 0: no limits
	mu   sync.Mutex
	all  *bounds.Table[netip.Prefix, source]
	// What was wrong of these.
	tokens, passwords *bounds.Guessers
	lines             bounds.Bucket
	left              int // lines that were left out
}

func newSources(rate int) *sources {
	s := &sources{rate: float64(rate), tokens: bounds.NewGuessers(mostSources), passwords: bounds.NewGuessers(mostSources)}
	s.all = bounds.NewTable[netip.Prefix](mostSources, func(x *source, now time.Time) bool {
		return x.requests.Idle(now, s.rate) && x.public.Idle(now, s.rate)
	})
	return s
}

// request counts a request without a valid token, once: a route of the console has one of the API answer.
func (s *sources) request(r *http.Request) error {
	n := noteOf(r.Context())
	if n.counted {
		return nil
	}
	n.counted = true
	return s.count(r, func(x *source) *bounds.Bucket { return &x.requests })
}

// open counts a request for a route that needs no token.
func (s *sources) open(r *http.Request) error {
	return s.count(r, func(x *source) *bounds.Bucket { return &x.public })
}

func (s *sources) count(r *http.Request, bucket func(*source) *bounds.Bucket) error {
	if s.rate == 0 || ofAgent(r.Context()) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, now := bounds.Source(r.RemoteAddr), time.Now()
	if wait := bucket(s.all.Of(from, now)).Take(now, s.rate, burst*s.rate); wait > 0 {
		return throttled(wait, "more than %.0f requests a second without a valid token come from %s: send fewer", s.rate, from)
	}
	return nil
}

// try counts a token or a password, which may be a wrong one, before somebody is asked about it (bounds.Guessers).
func (s *sources) try(r *http.Request, of *bounds.Guessers, what, name string) (answered func(right, wrong bool), err error) {
	if s.rate == 0 || ofAgent(r.Context()) {
		return func(bool, bool) {}, nil
	}
	from := bounds.Source(r.RemoteAddr)
	answered, wait, wrong := of.Try(from, name, time.Now())
	if wait > 0 {
		return nil, throttled(wait, "%d %s that came from %s were wrong: check yours, and wait before the next", wrong, what, from)
	}
	return answered, nil
}

// line reports whether a log line about a request without a valid token is written, and how many were left out before it.
func (s *sources) line() (left int, ok bool) {
	if s.rate == 0 {
		return 0, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines.Take(time.Now(), linesRate, linesAtOnce) > 0 {
		s.left++
		return 0, false
	}
	left, s.left = s.left, 0
	return left, true
}

// admit returns the caller of a request. A token that this agent knows costs nothing; others are bounded by their source.
func (s *Server) admit(r *http.Request, until time.Time, b Bearer) (model.Caller, error) {
	ctx := r.Context()
	if ofAgent(ctx) {
		return s.identify(ctx, until, b)
	}
	if b.Token != "" {
		who, err := s.Tokens.Authenticate(ctx, b)
		if err == nil {
			return who, nil
		}
		if who, ok := s.callers.get(b, 0); ok && !s.Router.Serves(false) {
			return who, nil
		}
		// The leader is asked again about a token that it knew lately, whatever strangers of the same source do.
		if _, ok := s.callers.get(b, asksAgain); ok && !s.Router.Serves(false) {
			return s.identify(ctx, until, b)
		}
	}
	if err := s.sources.request(r); err != nil {
		return model.Caller{}, err
	}
	if b.Token == "" {
		return s.identify(ctx, until, b)
	}
	answered, err := s.sources.try(r, s.sources.tokens, "tokens", "")
	if err != nil {
		return model.Caller{}, err
	}
	who, err := s.identify(ctx, until, b)
	answered(false, errors.Is(err, problem.Unauthorized) || ctx.Err() != nil)
	return who, err
}

// stranger reports whether a log line is about a request without a valid token.
func (n *note) stranger(status int) bool { return n.actor == "" && status >= http.StatusBadRequest }

// bounded serves what needs no token, within the bounds of its source.
func (s *Server) bounded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.sources.request(r); err != nil {
			noteOf(r.Context()).err = err
			writeProblem(w, ProblemOf(err))
			return
		}
		next(w, r)
	}
}
