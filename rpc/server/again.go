package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// again lets a request that found this agent's leadership at its end be
// answered by whoever leads next, so that a client notices nothing but a short
// wait. What may have been done already is asked for under the same request
// id, and is done once; a request that brings none is given one. A body that
// is too large to keep is sent once.
func (s *server) again(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 || r.ContentLength > resendable {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Header.Get(api.HeaderRequest) == "" {
			r.Header.Set(api.HeaderRequest, rand.Text())
		}
		n := noteOf(r.Context())
		body := r.Body
		var kept bytes.Buffer
		patience, cancel := context.WithTimeout(r.Context(), s.patience)
		defer cancel()
		for pause := 10 * time.Millisecond; ; pause = min(2*pause, 400*time.Millisecond) {
			if body != nil && body != http.NoBody {
				r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(bytes.Clone(kept.Bytes())), io.TeeReader(body, &kept)))
			}
			n.again, n.forwarded, n.err = false, false, nil
			held := &heldWriter{w: w, note: n, header: w.Header().Clone()}
			next.ServeHTTP(held, r)
			if !held.held {
				held.begin(http.StatusOK) // of an answer without a body
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

// mayPass says whether the next leader may be asked what this one could not do.
func (ru rule) mayPass(err error) bool {
	return !ru.local && errors.Is(err, problem.NoLeader) || ru.once && errors.Is(err, problem.UnknownOutcome)
}

// heldWriter holds an answer back that need not be the last word (note.again),
// and passes any other on as it comes.
type heldWriter struct {
	w      http.ResponseWriter
	note   *note
	header http.Header
	status int
	held   bool
	body   bytes.Buffer // of what is held: a problem document
}

// Header gives the headers, which are the client's once the status is.
func (h *heldWriter) Header() http.Header { return h.header }

// WriteHeader decides: hold, or pass on.
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

// Unwrap lets http.ResponseController reach flushing and deadlines.
func (h *heldWriter) Unwrap() http.ResponseWriter { return h.w }

// give sends what was held after all.
func (h *heldWriter) give() {
	maps.Copy(h.w.Header(), h.header)
	h.w.WriteHeader(h.status)
	_, _ = h.w.Write(h.body.Bytes()) // a client that is gone needs no answer
}
