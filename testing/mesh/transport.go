package mesh

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
)

// Transport carries the requests of a client to the agents of a mesh, which it calls agent-0, agent-1 and so
// on. It reaches every agent that runs, also those that are cut off from the others. A killed agent refuses
// connections, and a frozen one does not answer.
type Transport struct{ Mesh *Mesh }

// RoundTrip sends a request to an agent.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Hostname(), "agent-"))
	if err != nil {
		return nil, err
	}
	a := t.Mesh.agents[n]
	if !a.Running() {
		return nil, syscall.ECONNREFUSED
	}
	life, handler := a.life, a.agent.Handler()
	if life.frozen() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	answered := make(chan *http.Response, 1)
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		defer cancel()
		in := r.Clone(ctx)
		in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "192.0.2.1:1234"
		if in.Body == nil {
			in.Body = http.NoBody
		}
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, in)
		if life.moving() == nil { // a frozen agent answers when it thaws
			answered <- rec.Result()
		}
	}()
	select {
	case res := <-answered:
		res.Request = r
		return res, nil
	case <-life.dead:
		cancel()
		return nil, errors.New("connection reset by the killed agent")
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
