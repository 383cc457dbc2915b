package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/coopr/coopr/rpc/api"
)

var (
	// ErrForwardBroken is wrapped by the error of a connection to a node that broke after it had begun.
	ErrForwardBroken = errors.New("the connection to the node broke")
	// ErrForwardLeft is wrapped by the error of a connection to a node that ended because the caller's reader or writer failed.
	ErrForwardLeft = errors.New("the local end of the connection broke")
)

// Forward connects to a TCP port of a node, by its id, sends what it reads from up and writes what the node sends to down, until the node
// has ended the connection. The connection ends with ctx. It is not opened again if it breaks.
func (c *Client) Forward(ctx context.Context, node string, port int, up io.Reader, down io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from := &reader{from: up}
	resp, err := c.do(ctx, request{method: http.MethodPost, path: "/v1/nodes/" + seg(node) + "/forward",
		query: url.Values{"port": {strconv.Itoa(port)}}, stream: from}) // an *os.File as the body would be closed at its end
	left := func() error {
		if failed := from.failed.Load(); failed != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", ErrForwardLeft, *failed)
		}
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusNotFound && e.Type == "" {
		return errors.New("the agent or the leader is of an older build and forwards no ports: upgrade all agents")
	}
	if err != nil {
		return cmp.Or(left(), err)
	}
	defer resp.Body.Close()
	to := &reader{from: resp.Body}
	_, err = io.Copy(down, to)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case to.failed.Load() != nil:
		return cmp.Or(left(), fmt.Errorf("%w: the node has reset it, it was idle for an hour, or the leader or agent %s was lost",
			ErrForwardBroken, resp.Header.Get(api.HeaderThrough)))
	case err != nil:
		return fmt.Errorf("%w: %w", ErrForwardLeft, err)
	}
	return nil
}

// reader keeps the error of a read that failed.
type reader struct {
	from   io.Reader
	failed atomic.Pointer[error]
}

// Read reads, and keeps an error other than io.EOF.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}
