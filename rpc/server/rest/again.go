package rest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// again sends a request that this agent could not answer, because its leadership ended, to the next
// leader, so that the client only waits a little longer. The request may have been
// carried out already, so it is repeated with the same request id, which again adds if there is
// none. A request whose body is too large to keep is not repeated.
func (s *Server) again(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := noteOf(r.Context())
		hold, err := s.holdOf(r)
		if err != nil {
			n.err = err
			writeProblem(w, ProblemOf(err))
			return
		}
		n.until = time.Now().Add(hold)
		if r.ContentLength < 0 || r.ContentLength > resendable {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Header.Get(api.HeaderRequest) == "" {
			r.Header.Set(api.HeaderRequest, rand.Text())
		}
		body := r.Body
		var kept bytes.Buffer
		patience, cancel := context.WithDeadline(r.Context(), n.until)
		defer cancel()
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, 400*time.Millisecond) {
			if body != nil && body != http.NoBody {
				r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(bytes.Clone(kept.Bytes())), io.TeeReader(body, &kept)))
			}
			if errors.Is(n.err, problem.UnknownOutcome) {
				r.Header.Set(api.HeaderRetry, "true")
			}
			n.again, n.forwarded, n.err = false, false, nil
			held := &heldWriter{w: w, note: n, header: w.Header().Clone()}
			next.ServeHTTP(held, r)
			if !held.held {
				held.begin(http.StatusOK) // the answer has no body
				return
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-patience.Done():
				timer.Stop()
				held.give()
				return
			}
		}
	})
}

// maxHold bounds how long a request may wait for a leader.
const maxHold = time.Minute

// holdOf returns how long a request waits for a leader.
func (s *Server) holdOf(r *http.Request) (time.Duration, error) {
	asked := r.Header.Get(api.HeaderHold)
	if asked == "" {
		return s.patience, nil
	}
	d, err := time.ParseDuration(asked)
	if err != nil || d < 0 {
		what := fmt.Sprintf("must be a duration such as 5s, but is %q", asked)
		return 0, Malformed(model.Faults{{Path: "header." + api.HeaderHold, Message: what}})
	}
	return min(d, maxHold), nil
}

// mayPass reports whether the next leader may be able to answer a request that failed with err.
func (ru Rule) mayPass(err error) bool {
	return !ru.Local && errors.Is(err, problem.NoLeader) || ru.Once && errors.Is(err, problem.UnknownOutcome)
}

// heldWriter holds back an error after which the request may be repeated (note.again), and passes
// on any other answer.
type heldWriter struct {
	w      http.ResponseWriter
	note   *note
	header http.Header
	status int
	held   bool
	body   bytes.Buffer // of an answer that is held: a problem document
}

// Header returns the headers. They become the client's with the status.
func (h *heldWriter) Header() http.Header { return h.header }

// WriteHeader decides whether the answer is held or passed on.
func (h *heldWriter) WriteHeader(status int) {
	switch {
	case h.status != 0:
	case h.note.again && status == http.StatusServiceUnavailable:
		h.status, h.held = status, true
	default:
		h.begin(status)
	}
}

func (h *heldWriter) begin(status int) {
	if h.status != 0 {
		return
	}
	maps.Copy(h.w.Header(), h.header)
	if status >= http.StatusOK {
		h.status, h.header = status, h.w.Header()
	}
	h.w.WriteHeader(status)
}

func (h *heldWriter) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.held {
		return h.body.Write(p)
	}
	return h.w.Write(p)
}

// Unwrap returns the wrapped writer, on which http.ResponseController flushes and sets deadlines.
func (h *heldWriter) Unwrap() http.ResponseWriter { return h.w }

// give sends the held answer.
func (h *heldWriter) give() {
	maps.Copy(h.w.Header(), h.header)
	h.w.WriteHeader(h.status)
	_, _ = h.w.Write(h.body.Bytes()) // fails if the client is gone
}
