package server_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// limit changes limits of the tenant "acme".
func (w *world) limit(fields string) {
	w.t.Helper()
	w.must(200, apitest.Super, "PUT", "/v1/tenants/acme", `{"name":"acme","maxNodes":12000,`+fields+`}`)
}

// throttled checks that an answer says when to ask again.
func (a answer) throttled(t testing.TB, texts ...string) {
	t.Helper()
	p := a.problem(t)
	after, err := strconv.Atoi(a.header.Get("Retry-After"))
	if a.status != http.StatusTooManyRequests || p.Type != api.ProblemThrottled || err != nil || after < 1 {
		t.Errorf("%d %s, Retry-After %q: %s", a.status, p.Type, a.header.Get("Retry-After"), p.Detail)
	}
	for _, text := range texts {
		if !strings.Contains(p.Detail, text) {
			t.Errorf("%q is not in: %s", text, p.Detail)
		}
	}
}

// A tenant that makes too many requests is told so, and others are answered.
func TestRequestsOfATenant(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Tenants: true}, nil)
	w.limit(`"maxRequests":1`)
	for range 2 {
		w.must(200, apitest.User, "GET", "/v1/clusters", "")
	}
	// A request may have taken a second, so that one more is allowed.
	var last answer
	for range 1000 {
		if last = w.ask(apitest.Admin, "GET", "/v1/clusters", ""); last.status != http.StatusOK {
			break
		}
	}
	last.throttled(t, "tenant acme", "1 requests a second", "coopr tenant put acme --max-requests N")
	for range 10 {
		w.must(200, apitest.Super, "GET", "/v1/clusters", "")
		w.must(200, apitest.Root, "GET", "/v1/clusters?tenant=acme", "")
	}
}

// Readers that wait are counted for each tenant, and no longer than they wait.
func TestStreamsOfATenant(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Tenants: true}, nil)
	w.limit(`"maxStreams":2`)
	one, two := w.events(apitest.User, ""), w.events(apitest.Admin, "")
	w.ask(apitest.User, "GET", "/v1/clusters?index=99999&wait=1ms", "").throttled(t, "2 readers", "maxStreams")
	w.events(apitest.Super, "").close()
	var tenant api.TenantUse
	w.must(200, apitest.Root, "GET", "/v1/tenants/acme", "").into(t, &tenant)
	for _, u := range tenant.Use {
		if u.Limit == model.LimitStreams.Name && (u.Used == nil || *u.Used != 2 || u.Max != 2 || !u.Near) {
			t.Errorf("%+v", u)
		}
	}
	one.close()
	two.close()
	for w.ask(apitest.User, "GET", "/v1/clusters?index=99999&wait=1ms", "").status != http.StatusOK {
		// The agent notices a moment later that a reader is gone.
	}
}

// A tenant has a share of the bytes of bodies that an agent reads at a time.
func TestBodiesInFlight(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Bodies: 4 * rest.MaxBody}, nil)
	// Two bodies of the tenant arrive slowly, and each has more than half of its share. So the agent refuses at least the one of which
	// it reads the excess.
	first, second := w.slowBody(apitest.User), w.slowBody(apitest.Admin)
	kept, refused := first, answer{}
	select {
	case refused = <-second.done:
		close(second.rest)
	case refused = <-first.done:
		close(first.rest)
		kept = second
	}
	refused.throttled(t, "tenant acme", "send it again")
	w.must(422, apitest.Admin, "POST", "/v1/clusters", `{"nome":"x"}`) // a small one has room
	other := w.slowBody(apitest.Super)
	if a := other.end(); a.status != http.StatusBadRequest && a.status != http.StatusUnprocessableEntity {
		t.Errorf("the body of another tenant: %d %s", a.status, a.body)
	}
	kept.end() // it may be refused, too: the room of the first is released after the answer
	eventually(t, "the room of a body is released after its answer", func() bool {
		return w.slowBody(apitest.Admin).end().status != http.StatusTooManyRequests
	})
}

// slowBody is a request of whose body more than half of a tenant's share is sent, and the rest at the end.
type slowBody struct {
	done chan answer
	rest chan bool
}

func (w *world) slowBody(token string) slowBody {
	r, pipe := io.Pipe()
	b := slowBody{make(chan answer, 1), make(chan bool)}
	go func() { b.done <- w.send(context.Background(), token, "POST", "/v1/clusters", r) }()
	go func() {
		_, _ = io.CopyN(pipe, zeros{}, int64(rest.MaxBody/2+1<<20)) // it fails for a request that is refused
		<-b.rest
		_ = pipe.Close()
	}()
	return b
}

// end ends the body and returns the answer.
func (b slowBody) end() answer {
	close(b.rest)
	return <-b.done
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// from returns a client whose connections come from an address of this machine.
func (w *world) from(address string) *world {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	t := &http.Transport{DialContext: d.DialContext}
	w.t.Cleanup(t.CloseIdleConnections)
	other := *w
	other.http = &http.Client{Transport: t}
	return &other
}

// Requests without a valid token are bounded for each source, and those with one are not.
func TestStrangers(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Strangers: 1}, nil)
	for _, path := range []string{"/v1/healthz", "/v1/readyz", "/v1/clusters", "/v1/openapi.json", "/v1/nothing", "/v1/jwks",
		"/.well-known/openid-configuration"} {
		stranger := w.from(fmt.Sprint("127.0.0.", 2+len(path)))
		var last answer
		for range 1000 {
			if last = stranger.ask("", "GET", path, ""); last.status == http.StatusTooManyRequests {
				break
			}
		}
		last.throttled(t, "without a valid token")
		stranger.must(200, apitest.User, "GET", "/v1/clusters", "")
	}
	w.must(200, "", "GET", "/v1/healthz", "")
	if n := strings.Count(w.log.String(), "without a valid token"); n > 10 {
		t.Errorf("%d lines of the log are about strangers", n)
	}
}

// Guesses of tokens become slower and slower, at an agent without a copy of the state as well: the leader is asked about a few
// of them only, also if they come at the same time.
func TestUnknownTokens(t *testing.T) {
	leader, _ := pair(t)
	a := apitest.NewAgent(leader.Store, "worker")
	counted := &countingTransport{}
	t.Cleanup(counted.CloseIdleConnections)
	a.Follow(leader.url, false, counted)
	w := serveWithin(t, a, rest.Bounds{Strangers: 1000}, nil)
	guesser, neighbour := w.from("127.0.0.2"), w.from("127.0.0.3")
	var unknown, throttled atomic.Int64
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			for j := range 10 {
				switch got := guesser.ask(fmt.Sprint("guess-", i, "-", j), "GET", "/v1/members", ""); got.status {
				case http.StatusUnauthorized:
					unknown.Add(1)
				case http.StatusTooManyRequests:
					got.throttled(t, "were wrong", "127.0.0.2")
					throttled.Add(1)
				default:
					t.Errorf("%d %s", got.status, got.body)
				}
			}
		})
	}
	all.Wait()
	// Each further guess needs twice the time of the one before, so that 200 requests have room for a few only.
	if n := unknown.Load(); n < 5 || n > 15 || counted.n.Load() != n {
		t.Errorf("%d guesses were answered, %d throttled, and the leader was asked %d times", n, throttled.Load(), counted.n.Load())
	}
	neighbour.must(401, "guess", "GET", "/v1/members", "")
	neighbour.must(200, apitest.User, "GET", "/v1/members", "")
	guesser.must(200, apitest.User, "GET", "/v1/members", "") // the agent remembers whom this token belongs to
}

// Wrong passwords become slower as unknown tokens do, at every agent, and right ones do not count.
func TestWrongPasswords(t *testing.T) {
	leader, _ := pair(t)
	leader.user(apitest.Admin, `{"name":"ann","password":"`+password+`"}`)
	for _, voter := range []bool{true, false} {
		a := apitest.NewAgent(leader.Store, "asked")
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		a.Follow(leader.url, voter, transport)
		w := serveWithin(t, a, rest.Bounds{Strangers: 1000}, nil)
		guesser, neighbour := w.from("127.0.0.2"), w.from("127.0.0.3")
		for range 8 {
			guesser.login("ann", password)
		}
		body := `{"tenant":"acme","user":"ann","password":"wrong words"}`
		statuses := map[int]int{}
		for range 30 {
			statuses[guesser.ask("", "POST", "/v1/login", body).status]++
		}
		if statuses[401] < 5 || statuses[429] < 10 || statuses[401]+statuses[429] != 30 {
			t.Errorf("statuses: %v", statuses)
		}
		session := neighbour.login("ann", password)
		statuses = map[int]int{}
		for range 30 {
			statuses[neighbour.ask(session.Secret, "PUT", "/v1/self/password", `{"old":"wrong words","new":"`+password+`!"}`).status]++
		}
		if statuses[403] < 5 || statuses[429] < 10 || statuses[403]+statuses[429] != 30 {
			t.Errorf("statuses of the change: %v", statuses)
		}
	}
}

// Whoever guesses a user's password slows neither others of the same network nor that user elsewhere, at every agent. Whoever tries many
// names slows newcomers of the network, and not those who have logged in from there.
func TestGuessesOfOneName(t *testing.T) {
	leader, _ := pair(t)
	for _, name := range []string{"ann", "bob2", "dan"} {
		leader.user(apitest.Admin, `{"name":"`+name+`","password":"`+password+`"}`)
	}
	for _, voter := range []bool{true, false} {
		a := apitest.NewAgent(leader.Store, "asked")
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		a.Follow(leader.url, voter, transport)
		w := serveWithin(t, a, rest.Bounds{Strangers: 1000}, nil)
		office, elsewhere := w.from("127.0.0.2"), w.from("127.0.0.3")
		guess := func(name string) answer {
			return office.ask("", "POST", "/v1/login", `{"tenant":"acme","user":"`+name+`","password":"wrong words"}`)
		}
		slowed := func(name func(i int) string) answer {
			t.Helper()
			for i := range 300 {
				if a := guess(name(i)); a.status == http.StatusTooManyRequests {
					return a
				}
			}
			t.Fatal("guesses are not slowed")
			return answer{}
		}
		slowed(func(int) string { return "bob2" }).throttled(t, "passwords that came from 127.0.0.2")
		slowed(func(i int) string { return []string{"bob2", "Bob2", "BOB2"}[i%3] }).throttled(t, "were wrong")
		office.login("ann", password)
		elsewhere.login("bob2", password)
		slowed(func(i int) string { return fmt.Sprint("name", i) }).throttled(t, "passwords that came from 127.0.0.2")
		for range 3 {
			office.login("ann", password) // she is known here
		}
		elsewhere.login("dan", password)
		// The change of a password counts for its user.
		session := office.login("ann", password)
		var last answer
		for range 300 {
			if last = office.ask(session.Secret, "PUT", "/v1/self/password", `{"old":"wrong words","new":"`+password+`!"}`); last.status != 403 {
				break
			}
		}
		last.throttled(t, "were wrong")
	}
}

// countingTransport counts requests.
type countingTransport struct {
	http.Transport
	n atomic.Int64
}

func (c *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.Transport.RoundTrip(r)
}

// Requests whose bodies do not come keep no place from others of their tenant.
func TestBodiesThatDoNotCome(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Tenants: true, Bodies: 4 * rest.MaxBody}, nil)
	var pipes []*io.PipeWriter
	var answered sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range 300 {
		r, p := io.Pipe()
		pipes = append(pipes, p)
		answered.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "POST", w.url+"/v1/clusters", r)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+apitest.User)
			if resp, err := w.http.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
		if _, err := p.Write([]byte(" ")); err != nil { // the request was sent
			t.Fatal(err)
		}
	}
	w.must(200, apitest.User, "GET", "/v1/clusters", "")
	cancel()
	for _, p := range pipes {
		_ = p.CloseWithError(io.ErrUnexpectedEOF)
	}
	answered.Wait()
}

// heldState is a state whose consistent reads wait.
type heldState struct {
	rest.State
	free chan struct{}
}

func (s *heldState) View(ctx context.Context, c api.Consistency, after uint64) (rest.View, error) {
	if c == api.Consistent {
		<-s.free
	}
	return s.State.View(ctx, c, after)
}

// A blocking read needs a place for its answer, as other requests do.
func TestBlockingReadsTakePlaces(t *testing.T) {
	held := &heldState{free: make(chan struct{})}
	free := sync.OnceFunc(func() { close(held.free) })
	defer free()
	w := serveWithin(t, newAgent(t), rest.Bounds{Tenants: true}, func(s *rest.Services) {
		held.State = s.State
		s.State = held
	})
	w.limit(`"maxRequests":10000`)
	full := make(chan bool)
	var all sync.WaitGroup
	var once sync.Once
	for range 300 + 2*runtime.GOMAXPROCS(0) { // more than have a place or may wait for one
		all.Go(func() {
			if w.ask(apitest.User, "GET", "/v1/clusters?consistency=consistent", "").status == http.StatusTooManyRequests {
				once.Do(func() { close(full) })
			}
		})
	}
	<-full
	var answered atomic.Int64
	for _, index := range []string{"0", "1"} {
		all.Go(func() {
			w.ask(apitest.User, "GET", "/v1/clusters?index="+index, "")
			answered.Add(1)
		})
	}
	for range 50 {
		w.must(200, apitest.Super, "GET", "/v1/clusters?index=1", "")
	}
	if n := answered.Load(); n > 0 {
		t.Errorf("%d blocking reads took no place", n)
	}
	free()
	all.Wait()
	w.must(200, apitest.User, "GET", "/v1/clusters?index=1", "")
}

// unread is the answer of a client that does not read it.
type unread struct {
	http.ResponseWriter
	begun chan bool
	free  chan struct{}
}

func (u *unread) Write(p []byte) (int, error) {
	u.begun <- true
	<-u.free
	return u.ResponseWriter.Write(p)
}

// Answers that nobody reads keep no place from others of their tenant.
func TestAnswersThatNobodyReads(t *testing.T) {
	w := serveWithin(t, newAgent(t), rest.Bounds{Tenants: true}, nil)
	begun, free := make(chan bool, 1000), make(chan struct{})
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			r := httptest.NewRequest("GET", "/v1/clusters", nil)
			r.Header.Set("Authorization", "Bearer "+apitest.User)
			w.handler.ServeHTTP(&unread{httptest.NewRecorder(), begun, free}, r)
		})
		<-begun
	}
	w.must(200, apitest.User, "GET", "/v1/clusters", "")
	close(free)
	all.Wait()
}
