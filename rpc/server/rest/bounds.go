package rest

import (
	"context"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/internal/bounds"
	"github.com/coopr/coopr/rpc/api"
)

// Bounds are the limits of what tenants and strangers make an agent do (docs/decisions/066). The zero value has none.
type Bounds struct {
	// Tenants lets the limits of tenants on requests and readers that wait hold.
	Tenants bool
	// Bodies bounds the bytes of bodies and of large answers that are in memory. A tenant may have a share of them.
	Bodies int64
	// Strangers bounds the requests a second of one source that have no valid token, and slows down the questions about
	// tokens that nobody knows.
	Strangers int
}

const (
	// bodyShare is the part of the bytes of bodies that one tenant may have: a quarter.
	bodyShare = 4
	// burst is how many seconds' requests may come at once.
	burst = 2
	// mostTenants and mostSources bound the memory for those who make requests.
	mostTenants = 10_000
	mostSources = 8_192
	// mostQueued is how many requests of a tenant wait until others of it are answered.
	mostQueued = 256
)

// places is how many requests of a tenant are worked on at a time. More would only make those of others
// slower, and each may need memory for all that the tenant stores.
func places() int { return max(4, 2*runtime.GOMAXPROCS(0)) }

type agentKey struct{}

// OfAgent returns what makes the context of a connection from another agent, which has identified itself. If serves reports that the
// agent may serve the API to others, it bounds its own clients and is believed who they are. Otherwise it is a client itself.
func OfAgent(serves func(net.Conn) bool) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, conn net.Conn) context.Context {
		if !serves(conn) {
			return ctx
		}
		return context.WithValue(ctx, agentKey{}, true)
	}
}

func ofAgent(ctx context.Context) bool { return ctx.Value(agentKey{}) != nil }

// load is what a tenant makes this agent do now.
type load struct {
	requests bounds.Bucket
	rate     float64 // of requests, when the latest began
	streams  int
	bodies   int64
	answers  map[string]int64 // the size of the latest answer of each route, if that is large
	working  int              // requests that have a place
	queue    []chan bool      // requests that wait for a place, in the order of their arrival
}

// loads has what all tenants make this agent do now.
type loads struct {
	Bounds
	share  int64 // of the bytes of bodies, for each tenant
	mu     sync.Mutex
	all    *bounds.Table[string, load]
	bodies int64
}

func newLoads(b Bounds, maxBody int64) *loads {
	return &loads{Bounds: b, share: max(b.Bodies/bodyShare, maxBody), all: bounds.NewTable[string](mostTenants, (*load).idle)}
}

func (l *load) idle(now time.Time) bool {
	return len(l.answers) == 0 && l.streams == 0 && l.bodies == 0 && l.working == 0 && len(l.queue) == 0 && l.requests.Idle(now, l.rate)
}

// throttled returns the problem of a request that came too soon.
func throttled(wait time.Duration, format string, args ...any) *api.Problem {
	p := NewProblem(problem.Throttled, fmt.Sprintf(format, args...))
	p.RetryAfter = max(int(math.Ceil(wait.Seconds())), 1)
	return p
}

// arrive counts a request of a tenant. A request that waits for something else takes one of the tenant's places for readers,
// until leave.
func (s *loads) arrive(t *model.Tenant, waits bool) (leave func(), err error) {
	now, rate := time.Now(), float64(model.LimitRequests.Of(t))
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.all.Of(t.Name, now)
	l.rate = rate
	if wait := l.requests.Take(now, rate, burst*rate); wait > 0 {
		return nil, throttled(wait, "tenant %s makes more than %.0f requests a second at this agent: send fewer, or %s", t.Name, rate,
			model.LimitRequests.Raise(t.Name))
	}
	if !waits {
		return func() {}, nil
	}
	if most := model.LimitStreams.Of(t); int64(l.streams) >= most {
		return nil, throttled(time.Second, "tenant %s has %d readers that wait at this agent: end some, ask another agent, or %s", t.Name,
			most, model.LimitStreams.Raise(t.Name))
	}
	l.streams++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.streams--
	}, nil
}

// turn is a request's place among those of its tenant that are worked on. A request has one once: from when its body is there, or
// what it waited for, until its answer begins. So nobody keeps a place by sending or reading slowly. The zero value needs none.
type turn struct {
	loads  *loads
	tenant string
	load   *load // of the tenant, once the request has a place or waits for one
	reader bool  // it is one of a bounded number of readers, so it may always wait for its place
	taken  bool
	over   bool
}

// begin waits for the place, unless the request has or had it.
func (t *turn) begin(ctx context.Context) error {
	if t.loads == nil {
		return nil
	}
	s := t.loads
	next, err := t.enqueue()
	if next == nil {
		return err
	}
	select {
	case <-next:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch i := slices.Index(t.load.queue, next); {
	case i >= 0:
		t.load.queue = slices.Delete(t.load.queue, i, i+1)
	case err != nil || t.over:
		t.load.leave() // it was its turn just now
	default:
		t.taken = true
	}
	return err
}

// enqueue takes the place, or else returns what receives a value when it is the request's turn.
func (t *turn) enqueue() (next chan bool, err error) {
	t.loads.mu.Lock()
	defer t.loads.mu.Unlock()
	if t.taken || t.over {
		return nil, nil
	}
	t.load = t.loads.all.Of(t.tenant, time.Now())
	switch l := t.load; {
	case l.working < places():
		l.working++
		t.taken = true
		return nil, nil
	case len(l.queue) >= mostQueued && !t.reader:
		return nil, throttled(time.Second, "%d requests of tenant %s wait for others of it at this agent: send fewer at a time", mostQueued,
			t.tenant)
	default:
		next = make(chan bool, 1)
		l.queue = append(l.queue, next)
		return next, nil
	}
}

// end passes the place on.
func (t *turn) end() {
	if t.loads == nil {
		return
	}
	t.loads.mu.Lock()
	defer t.loads.mu.Unlock()
	if t.over = true; t.taken {
		t.taken = false
		t.load.leave()
	}
}

// leave passes the place of a request on to the next one.
func (l *load) leave() {
	if len(l.queue) == 0 {
		l.working--
		return
	}
	l.queue[0] <- true
	l.queue = slices.Delete(l.queue, 0, 1)
}

// streams returns how many readers of a tenant wait at this agent.
func (s *loads) streams(tenant string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.all.Of(tenant, time.Now()).streams)
}

// errNoRoom is the error of reading a body for which there is no room now.
type errNoRoom struct{ why string }

func (e *errNoRoom) Error() string { return e.why }

// freeBody is how many bytes of each request are not counted, so that small ones have room next to a large one, and right after
// it: its client has the answer a moment before its bytes are given back.
const freeBody = 64 << 10

// body counts the bytes of a caller's body as they are read. release gives all of them back. All who have no token have the share
// of a tenant together, and the mesh's own administrator always has room.
func (s *loads) body(who model.Caller) (take func(n int) error, release func()) {
	tenant := who.Tenant
	if s.Bodies == 0 || who.Root {
		return func(int) error { return nil }, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.all.Of(tenant, time.Now())
	var read, taken int64
	return func(n int) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			read += int64(n)
			switch size := max(read-freeBody, 0) - taken; {
			case l.bodies+size > s.share:
				return &errNoRoom{fmt.Sprintf("the bodies and answers of tenant %s at this agent have more than %d bytes at a time", tenant, s.share)}
			case s.bodies+size > max(s.Bodies, s.share):
				return &errNoRoom{fmt.Sprintf("the bodies and answers at this agent have more than %d bytes at a time", s.Bodies)}
			default:
				l.bodies, s.bodies, taken = l.bodies+size, s.bodies+size, taken+size
			}
			return nil
		}, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			l.bodies, s.bodies, taken = l.bodies-taken, s.bodies-taken, 0
		}
}

// largeAnswer is the size in bytes from which on answers are bounded.
const largeAnswer = 64 << 10

// answer takes room for an answer that is as large as the latest one of its route, because an answer is whole in memory before
// it is sent. A single answer always has room. learn remembers the size of the answer.
func (s *loads) answer(who model.Caller, route string, take func(n int) error) (learn func(size int64), err error) {
	if s.Bodies == 0 || who.Root {
		return func(int64) {}, nil
	}
	s.mu.Lock()
	l := s.all.Of(who.Tenant, time.Now())
	size := l.answers[route]
	if l.bodies == 0 {
		size = min(size, s.share)
	}
	s.mu.Unlock()
	if size > 0 {
		if err := take(int(size)); err != nil {
			return nil, throttled(time.Second, "%v: ask for fewer large answers at a time", err)
		}
	}
	return func(size int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case size < largeAnswer:
			delete(l.answers, route)
		case l.answers == nil:
			l.answers = map[string]int64{route: size}
		default:
			l.answers[route] = size
		}
	}, nil
}

// tenant returns a tenant as this agent's copy of the state has it. An agent without one knows the default limits only.
func (s *Server) tenant(ctx context.Context, name string) model.Tenant {
	if v, err := s.State.View(ctx, api.Stale, 0); err == nil {
		if t, ok := v.Tenant(name); ok {
			return t
		}
	}
	return model.Tenant{Name: name}
}

// Streams returns how many readers of a tenant wait at this agent, which is unknown if nobody counts them.
func (s *Server) Streams(tenant string) (n int64, ok bool) {
	if !s.loads.Tenants {
		return 0, false
	}
	return s.loads.streams(tenant), true
}
