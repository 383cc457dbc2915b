package providertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Troubled is a proxy in front of a cloud's API. It causes failures of requests that create
// machines, one failure per order.
type Troubled struct {
	URL string
	// Creates reports whether a request, with its body, creates a machine.
	Creates func(r *http.Request, body string) bool

	server *httptest.Server
	to     http.Handler
	mu     sync.Mutex
	orders []Trouble
	work   sync.WaitGroup
	gate   chan struct{} // closed to carry out the requests of Late
}

// Trouble is a failure of one request.
type Trouble func(s *Troubled, w http.ResponseWriter, r *http.Request)

// NewTroubled returns a proxy in front of a handler.
func NewTroubled(t testing.TB, to http.Handler, creates func(*http.Request, string) bool) *Troubled {
	s := &Troubled{to: to, Creates: creates, gate: make(chan struct{})}
	s.server = httptest.NewServer(s)
	s.URL = s.server.URL
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
		s.Release()
	})
	return s
}

// Next orders failures of the next requests that create, in order.
func (s *Troubled) Next(orders ...Trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, orders...)
}

// ServeHTTP passes the request on, or makes it fail.
func (s *Troubled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(b)))
	var order Trouble
	s.mu.Lock()
	if len(s.orders) > 0 && s.Creates(r, string(b)) {
		order, s.orders = s.orders[0], s.orders[1:]
	}
	s.mu.Unlock()
	if order == nil {
		s.to.ServeHTTP(w, r)
		return
	}
	order(s, w, r)
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

// Lost carries the request out and drops the answer.
func Lost(s *Troubled, w http.ResponseWriter, r *http.Request) {
	s.to.ServeHTTP(httptest.NewRecorder(), r)
	hangUp(w)
}

// Late closes the connection and carries the request out when Release is called.
func Late(s *Troubled, w http.ResponseWriter, r *http.Request) {
	late := r.Clone(r.Context())
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	s.work.Go(func() {
		<-gate
		late.Body = io.NopCloser(strings.NewReader(string(b)))
		s.to.ServeHTTP(httptest.NewRecorder(), late)
	})
	hangUp(w)
}

// Release carries out the requests of Late and waits for their end.
func (s *Troubled) Release() {
	s.mu.Lock()
	close(s.gate)
	s.gate = make(chan struct{})
	s.mu.Unlock()
	s.work.Wait()
}

// Says returns a Trouble that answers with a status, a header line and a body, and does nothing
// else.
func Says(status int, header, body string) Trouble {
	return func(_ *Troubled, w http.ResponseWriter, _ *http.Request) {
		if k, v, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}
