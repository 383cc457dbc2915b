package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/sdklike"
)

// resendable is the size in bytes of the largest body that is kept, so that it can be sent again.
const resendable = 1 << 20

// hopByHop are the headers that concern one connection and are not forwarded.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// forward sends a request to the leader and copies the answer piece by piece, so that event
// streams, logs and blocking reads work as well. While there is no leader it tries again, for a
// limited time and as long as the body can be sent again. It returns false, and has answered
// nothing, if this agent can serve the request itself by now.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, stale bool, ru Rule) (answered bool) {
	ctx := r.Context()
	note := noteOf(ctx)
	note.forwarded = true
	body, err := outgoing(r)
	if err != nil {
		note.err = err
		writeProblem(w, bodyProblem(err))
		return true
	}
	header := r.Header.Clone()
	for _, h := range strings.Split(header.Get("Connection"), ",") {
		header.Del(strings.TrimSpace(h))
	}
	for _, h := range hopByHop {
		header.Del(h)
	}
	header.Set(api.HeaderForwarded, s.name)
	nameClient(header, clientOf(r))

	patience, cancel := context.WithDeadline(ctx, note.until)
	defer cancel()
	pause := 25 * time.Millisecond
	unsure := false // an earlier try may have carried the write out
	for {
		header.Set(api.HeaderHold, max(time.Until(note.until), 0).String())
		status, answer, stream, err := s.Router.RoundTripToLeader(ctx, note.until, r.Method, sdklike.URI(r), header, body.next())
		notLeader := err == nil && status == http.StatusServiceUnavailable && http.Header(answer).Get(api.HeaderNotLeader) != ""
		if err == nil && !notLeader {
			note.answered = status
			s.copyAnswer(w, status, answer, stream)
			return true
		}
		if stream != nil {
			stream.Close()
		}
		if notLeader {
			err = problem.NoLeader
		}
		if ctx.Err() != nil {
			return true // the client is gone
		}
		note.err = err
		again := errors.Is(err, problem.NoLeader) || r.Method == http.MethodGet || ru.Once && header.Get(api.HeaderRequest) != ""
		if !errors.Is(err, problem.NoLeader) && !errors.Is(err, problem.UnknownOutcome) && r.Method != http.MethodGet {
			err = problem.Wrap(problem.UnknownOutcome, err)
		}
		if errors.Is(err, problem.UnknownOutcome) {
			unsure = true
			header.Set(api.HeaderRetry, "true")
		}
		if note.body != nil {
			// The client's side failed, not the leader's.
			writeProblem(w, bodyProblem(note.body))
			return true
		}
		if again && body.fresh() {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
				pause = min(2*pause, 400*time.Millisecond)
				if s.Router.Serves(stale) {
					note.forwarded, note.err = false, nil
					r.Body = io.NopCloser(body.next())
					if unsure {
						r.Header.Set(api.HeaderRetry, "true")
					}
					return false
				}
				continue
			case <-patience.Done():
				timer.Stop()
			}
		}
		if stale && s.forwardStale(w, r, header) {
			return true
		}
		if unsure || errors.Is(err, problem.UnknownOutcome) {
			writeProblem(w, NewProblem(problem.UnknownOutcome, "the connection to the leader broke: "+unknownOutcomeAdvice))
		} else {
			writeProblem(w, s.noLeader(ctx, note.actor != ""))
		}
		return true
	}
}

// ByVoter has the leader answer a request about another agent, as only agents with a copy of the state may ask others. If there is no
// leader, any of those answers. It returns false, and has answered nothing, if this agent has a copy by now, or was asked by another.
func ByVoter(s *Server, w http.ResponseWriter, r *http.Request) (answered bool) {
	return r.Header.Get(api.HeaderForwarded) == "" && s.forward(w, r, true, Rule{Local: true})
}

// forwardStale has another agent's copy of the state answer a stale read, as this agent has none. It returns false, and has
// answered nothing, if there is no such agent.
func (s *Server) forwardStale(w http.ResponseWriter, r *http.Request, header http.Header) (answered bool) {
	status, answer, stream, err := s.Router.RoundTripToReplica(r.Context(), r.Method, sdklike.URI(r), header)
	if err != nil {
		return false
	}
	n := noteOf(r.Context())
	n.answered, n.err = status, nil
	s.copyAnswer(w, status, answer, stream)
	return true
}

func (s *Server) copyAnswer(w http.ResponseWriter, status int, header http.Header, body io.ReadCloser) {
	defer body.Close()
	h := w.Header()
	for name, values := range header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	for _, name := range hopByHop {
		h.Del(name)
	}
	w.WriteHeader(status)
	control := http.NewResponseController(w)
	_ = control.Flush()
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return // the client is gone
			}
			_ = control.Flush()
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			// The answer is incomplete; a clean end would hide that.
			panic(http.ErrAbortHandler)
		}
	}
}

// outbound is the body of a forwarded request. A small body is kept and can be sent any number of
// times. A large one can be sent only as long as nothing of it was read.
type outbound struct {
	kept    []byte
	stream  io.Reader
	touched bool
}

func outgoing(r *http.Request) (*outbound, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return &outbound{}, nil
	case r.ContentLength > 0 && r.ContentLength <= resendable:
		kept := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, kept); err != nil {
			return nil, err
		}
		// Reading the body to its end removes the read deadline.
		if _, err := r.Body.Read(make([]byte, 1)); err != nil && err != io.EOF {
			return nil, err
		}
		return &outbound{kept: kept}, nil
	}
	return &outbound{stream: r.Body}, nil
}

// next returns the body for one more attempt, or nil if the request has none.
func (o *outbound) next() io.Reader {
	switch {
	case o.stream != nil:
		return &touching{o}
	case o.kept != nil:
		return bytes.NewReader(o.kept)
	}
	return http.NoBody
}

func (o *outbound) fresh() bool { return !o.touched }

type touching struct{ o *outbound }

func (t *touching) Read(p []byte) (int, error) {
	t.o.touched = true
	return t.o.stream.Read(p)
}
