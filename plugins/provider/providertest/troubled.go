package providertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Troubled stands before a cloud's API and makes trouble with the requests that
// create machines, once for each order.
type Troubled struct {
	URL string
	// Creates says whether a request, with its body, is one that creates.
	Creates func(r *http.Request, body string) bool

	server *httptest.Server
	to     http.Handler
	mu     sync.Mutex
	orders []Trouble
	work   sync.WaitGroup
	gate   chan struct{} // what is Late goes on when it is closed
}

// Trouble is what happens to one request.
type Trouble func(s *Troubled, w http.ResponseWriter, r *http.Request)

// NewTroubled stands before a handler.
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

// Next makes this trouble with the next requests that create, in order.
func (s *Troubled) Next(orders ...Trouble) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders = append(s.orders, orders...)
}

// ServeHTTP passes on, or makes trouble.
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

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

// Lost carries the request out and loses the answer.
func Lost(s *Troubled, w http.ResponseWriter, r *http.Request) {
	s.to.ServeHTTP(httptest.NewRecorder(), r)
	hangUp(w)
}

// Late loses the connection and carries the request out when Release is called.
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

// Release carries out what is Late, and waits for it.
func (s *Troubled) Release() {
	s.mu.Lock()
	close(s.gate)
	s.gate = make(chan struct{})
	s.mu.Unlock()
	s.work.Wait()
}

// Says answers with a status, a header line and a body and does nothing.
func Says(status int, header, body string) Trouble {
	return func(_ *Troubled, w http.ResponseWriter, _ *http.Request) {
		if k, v, ok := strings.Cut(header, ": "); ok {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}
