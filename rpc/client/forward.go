package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// ErrForwardBroken is returned if a connection to a node broke, as its agent did.
var ErrForwardBroken = errors.New("the connection to the node broke: the node, its agent or the leader has ended it")

// Forward connects to a TCP port of a node, by its id, sends what it reads from up and writes what the node sends to down, until the node
// has ended the connection. The connection ends with ctx.
func (c *Client) Forward(ctx context.Context, node string, port int, up io.Reader, down io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.do(ctx, request{method: http.MethodPost, path: "/v1/nodes/" + seg(node) + "/forward",
		query: url.Values{"port": {strconv.Itoa(port)}}, stream: up})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	broken := reader{resp.Body}
	_, err = io.Copy(down, &broken)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errRead):
		return ErrForwardBroken
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
