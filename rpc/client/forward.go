package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coopr/coopr/rpc/api"
)

// ErrForwardBroken is wrapped by the error of a connection to a node that broke after it had begun.
var ErrForwardBroken = errors.New("the connection to the node broke")

// Forward connects to a TCP port of a node, by its id, sends what it reads from up and writes what the node sends to down, until the node
// has ended the connection. The connection ends with ctx. It is not opened again if it breaks.
func (c *Client) Forward(ctx context.Context, node string, port int, up io.Reader, down io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.do(ctx, request{method: http.MethodPost, path: "/v1/nodes/" + seg(node) + "/forward",
		query:  url.Values{"port": {strconv.Itoa(port)}},
		stream: struct{ io.Reader }{up}}) // the transport would close up at its end, and so the other direction
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(down, &reader{resp.Body})
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errRead):
		return fmt.Errorf("%w: the node has reset it, or agent %s, through which it went, or the leader was lost, or ended it",
			ErrForwardBroken, resp.Header.Get(api.HeaderThrough))
	}
	return err
}

// errRead tells failed reads from failed writes.
var errRead = errors.New("read")

// reader marks the errors of its reads, except io.EOF.
type reader struct{ from io.Reader }

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = errors.Join(errRead, err)
	}
	return n, err
}
