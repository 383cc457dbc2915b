package rest

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

// The limits on the size and the duration of a body.
const (
	// MaxBody bounds a body in bytes, unless Config has another limit.
	MaxBody = 16 << 20
	// BodyTime is how long a whole body may take, or one piece of a body that is streamed.
	BodyTime = time.Minute
)

// errTooLarge is the error of reading a body that is larger than allowed.
type errTooLarge struct{ limit int64 }

func (e *errTooLarge) Error() string {
	return fmt.Sprintf("the body is larger than the %d bytes that are allowed", e.limit)
}

// bodyProblem returns the problem document for a body that could not be read to its end.
func bodyProblem(err error) *api.Problem {
	var large *errTooLarge
	var slow net.Error
	var full *errNoRoom
	var known *api.Problem
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &full):
		return throttled(time.Second, "%s: send it again, and fewer at a time", full.why)
	case errors.As(err, &large):
		return NewProblem(problem.TooLarge, large.Error()+": send it in several requests")
	case errors.As(err, &slow) && slow.Timeout():
		p := NewProblem(problem.Timeout, "the body did not arrive in time: send it faster or in pieces")
		p.Status = http.StatusRequestTimeout
		return p
	}
	return NewProblem(problem.Malformed, "the body ended early: send the request again")
}

// limitedBody bounds a request's body in size and in time. It removes the deadline at the end of
// the body, as the deadline would otherwise cut off the answer.
type limitedBody struct {
	io.ReadCloser
	control     *http.ResponseController
	limit, left int64
	// take counts bytes of a body that is kept in memory. It fails if there is no room for them.
	take func(n int) error
	// whole is called at the end of the body, which comes when it returns. It may be nil.
	whole func() error
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
		_ = b.control.SetReadDeadline(time.Now().Add(BodyTime))
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 && !b.streamed {
		err = &errTooLarge{b.limit}
	}
	if !b.streamed && (err == nil || errors.Is(err, io.EOF)) {
		if full := b.take(n); full != nil {
			n, err = 0, full
		}
	}
	if errors.Is(err, io.EOF) && b.whole != nil {
		b.end()
		if refused := b.whole(); refused != nil {
			n, err = 0, refused
		}
	}
	if err != nil {
		b.end()
		if !errors.Is(err, io.EOF) {
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
