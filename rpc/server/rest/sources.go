package rest

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/bounds"
)

// The pauses after tokens that nobody knows, and after wrong passwords. The first ones are mistakes; each further one doubles the pause.
// Passwords for other names of the same source count apart, so that whoever guesses that of one user does not slow others of the network.
const (
	freeGuesses  = 5  // tokens of a source, or passwords of a source for one name
	freeOfSource = 20 // passwords of a source for all names
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	forgetGuess  = 10 * time.Minute
	// familiarTime is how long a source is known to be where a user logs in: as long as a session can last.
	familiarTime = 7 * 24 * time.Hour
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
	tokens   guesses       // those from there that nobody knew
	secrets  guesses       // wrong passwords from there, for all names
}

// guesses counts what was wrong.
type guesses struct {
	wrong int
	last  time.Time // when the latest came
}

// pause returns how long it takes until the next guess is allowed.
func (g *guesses) pause(now time.Time, free int) time.Duration {
	if g.idle(now) {
		g.wrong = 0
	}
	return g.last.Add(pauseAfter(g.wrong - free)).Sub(now)
}

func (g *guesses) idle(now time.Time) bool { return g.wrong == 0 || now.Sub(g.last) > forgetGuess }

// count counts a guess before its answer is known. undo takes it back.
func (g *guesses) count(now time.Time) (undo func()) {
	before := g.last
	g.wrong++
	g.last = now
	return func() {
		g.wrong = max(g.wrong-1, 0)
		if g.last.Equal(now) { // no other came since
			g.last = before
		}
	}
}

// person is a user's name at a source.
type person struct {
	from netip.Prefix
	name [sha256.Size]byte // a hash, because strangers choose the names
}

// personal is what an agent knows of the passwords for a name that come from a source.
type personal struct {
	guesses
	right time.Time // when the latest right one came
}

// sources bounds the requests without a valid token.
type sources struct {
	rate  float64 // of requests, for each source; 0: no limits
	mu    sync.Mutex
	all   *bounds.Table[netip.Prefix, source]
	names *bounds.Table[person, personal]
	lines bounds.Bucket
	left  int // lines that were left out
}

func newSources(rate int) *sources {
	s := &sources{rate: float64(rate)}
	s.all = bounds.NewTable[netip.Prefix](mostSources, func(x *source, now time.Time) bool {
		return x.requests.Idle(now, s.rate) && x.public.Idle(now, s.rate) && x.tokens.idle(now) && x.secrets.idle(now)
	})
	s.names = bounds.NewTable[person](mostSources, func(x *personal, now time.Time) bool {
		return x.idle(now) && now.Sub(x.right) > familiarTime
	})
	return s
}

// request counts a request without a valid token.
func (s *sources) request(r *http.Request) error {
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

// guess counts an unknown token before somebody is asked about it, so that many at a time count as well. known takes it back.
func (s *sources) guess(r *http.Request) (known func(), err error) {
	if s.rate == 0 || ofAgent(r.Context()) {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, now := bounds.Source(r.RemoteAddr), time.Now()
	x := s.all.Of(from, now)
	if wait := x.tokens.pause(now, freeGuesses); wait > 0 {
		return nil, throttled(wait, "%d tokens that came from %s were wrong: check yours, and wait before the next", x.tokens.wrong, from)
	}
	undo := x.tokens.count(now)
	return s.locked(undo), nil
}

// password counts a password for a name before it is compared, as guess does. The name may be "" where none is given. right is called
// instead of known if it was right: the pauses that others of the same source cause do not hold for this name any more.
func (s *sources) password(r *http.Request, name string) (known, right func(), err error) {
	if s.rate == 0 || ofAgent(r.Context()) {
		return func() {}, func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from, now := bounds.Source(r.RemoteAddr), time.Now()
	x, free := s.all.Of(from, now), freeOfSource
	var of *personal // nil: only the source counts
	if name == "" {
		free = freeGuesses
	} else {
		of = s.names.Find(person{from, sha256.Sum256([]byte(strings.ToLower(name)))}, now)
	}
	undo := func() {}
	familiar := false
	if of != nil {
		if wait := of.pause(now, freeGuesses); wait > 0 {
			return nil, nil, throttled(wait, "%d passwords for this user that came from %s were wrong: check yours, and wait before the next",
				of.wrong, from)
		}
		familiar = !of.right.IsZero() && now.Sub(of.right) <= familiarTime
	}
	if wait := x.secrets.pause(now, free); wait > 0 && !familiar {
		return nil, nil, throttled(wait, "%d passwords that came from %s were wrong: check yours, and wait before the next", x.secrets.wrong, from)
	}
	all := x.secrets.count(now)
	if of != nil {
		undo = of.count(now)
	}
	known = s.locked(func() { all(); undo() })
	return known, s.locked(func() {
		all()
		if of != nil {
			of.wrong, of.right = 0, time.Now()
		}
	}), nil
}

// locked returns a function that calls f with the lock held.
func (s *sources) locked(f func()) func() {
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	}
}

// pauseAfter returns the pause after so many guesses beyond those that are free.
func pauseAfter(more int) time.Duration {
	if more < 0 {
		return 0
	}
	return min(firstPause<<min(more, 16), longestPause)
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
		if who, ok := s.callers.get(b); ok && !s.Router.Serves(false) {
			return who, nil
		}
		if !s.Router.Serves(false) && s.callers.familiar(b) { // the leader is asked again, whatever strangers of the same source do
			return s.identify(ctx, until, b)
		}
	}
	if err := s.sources.request(r); err != nil {
		return model.Caller{}, err
	}
	if b.Token == "" {
		return s.identify(ctx, until, b)
	}
	known, err := s.sources.guess(r)
	if err != nil {
		return model.Caller{}, err
	}
	who, err := s.identify(ctx, until, b)
	if !errors.Is(err, problem.Unauthorized) && ctx.Err() == nil {
		known()
	}
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
