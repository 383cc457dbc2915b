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

// The limits on what a request may send, and on how long it may take to.
const (
	// MaxBody bounds a body in bytes, unless Config says otherwise.
	MaxBody = 16 << 20
	// MaxHeader bounds all headers of a request together.
	MaxHeader = 64 << 10
	// bodyTime is how long a whole body may take, or one piece of a body that
	// is streamed.
	bodyTime   = time.Minute
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
)

// NewServer gives an http.Server with the limits that the API counts on: slow
// headers and idle connections are cut. Bodies are limited by the handler
// itself, because an answer may rightly last for hours.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    MaxHeader,
	}
}

// errTooLarge is what reading a body ends with that is larger than allowed.
type errTooLarge struct{ limit int64 }

func (e *errTooLarge) Error() string {
	return fmt.Sprintf("the body is larger than the %d bytes that are allowed", e.limit)
}

// bodyProblem says what to answer where a body could not be read to its end.
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

// limitedBody bounds a request's body in size and in time. The deadline is
// taken away at the end of the body: one left behind would end the answer.
type limitedBody struct {
	io.ReadCloser
	control     *http.ResponseController
	limit, left int64
	// failed is told what the reading ended with, if not with the end.
	failed func(error)
	// streamed bodies have no limit in size, and the time is for each piece.
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
		// Not every writer has deadlines (tests' recorders): then there is none.
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
