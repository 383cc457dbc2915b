package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// The limits on the size and the duration of a request.
const (
	// MaxBody bounds a body in bytes, unless Config has another limit.
	MaxBody = 16 << 20
	// MaxHeader bounds all headers of a request together, in bytes.
	MaxHeader = 64 << 10
	// bodyTime is how long a whole body may take, or one piece of a body that is streamed.
	bodyTime   = time.Minute
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
)

// NewServer returns an http.Server with the limits that the API relies on: it closes connections
// with slow headers and idle connections. The handler limits bodies itself, as an answer may take
// hours.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    MaxHeader,
	}
}

// errTooLarge is the error of reading a body that is larger than allowed.
type errTooLarge struct{ limit int64 }

func (e *errTooLarge) Error() string {
	return fmt.Sprintf("the body is larger than the %d bytes that are allowed", e.limit)
}

// bodyProblem returns the problem document for a body that could not be read to its end.
func bodyProblem(err error) *api.Problem {
	var large *errTooLarge
	var slow net.Error
	switch {
	case errors.As(err, &large):
		return newProblem(problem.TooLarge, large.Error()+": send it in several requests")
	case errors.As(err, &slow) && slow.Timeout():
		p := newProblem(problem.Timeout, "the body did not arrive in time: send it faster or in pieces")
		p.Status = http.StatusRequestTimeout
		return p
	}
	return newProblem(problem.Malformed, "the body ended early: send the request again")
}

// limitedBody bounds a request's body in size and in time. It removes the deadline at the end of
// the body, as the deadline would otherwise cut off the answer.
type limitedBody struct {
	io.ReadCloser
	control     *http.ResponseController
	limit, left int64
	// failed receives the error of a read, except io.EOF.
	failed func(error)
	// A streamed body has no size limit, and the time limit is for each piece.
	streamed bool
	begun    bool
	ended    bool
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	if !b.begun || b.streamed {
		b.begun = true
		// A writer without deadlines, such as a test's recorder, has no time limit.
		_ = b.control.SetReadDeadline(time.Now().Add(bodyTime))
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 && !b.streamed {
		err = &errTooLarge{b.limit}
	}
	if err != nil {
		b.end()
		if err != io.EOF {
			b.failed(err)
		}
	}
	return n, err
}

func (b *limitedBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *limitedBody) end() {
	if !b.ended {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
}
