package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/coopr/coopr/rpc/api"
)

// ErrBroken is returned if the mesh did not send the end of a command that it has begun.
var ErrBroken = errors.New("the connection broke while the command ran, so it is unknown what it has done")

// RunCommand runs a command on a node, by its id, and calls fn with each line of its output. It returns the end of the command. The command
// ends with ctx. If the answer breaks off, the error is ErrBroken; the command is not run again.
func (c *Client) RunCommand(ctx context.Context, node string, command api.NodeCommand, fn func(api.CommandLine) error) (
	api.CommandLine, error) {
	body, err := json.Marshal(command)
	if err != nil {
		return api.CommandLine{}, err
	}
	resp, err := c.do(ctx, request{method: http.MethodPost, path: "/v1/nodes/" + seg(node) + "/exec", body: body, single: true,
		header: http.Header{"Content-Type": {"application/json"}}})
	if err != nil {
		return api.CommandLine{}, err
	}
	defer resp.Body.Close()
	for in := json.NewDecoder(bufio.NewReader(resp.Body)); ; {
		var l api.CommandLine
		switch err := in.Decode(&l); {
		case err != nil && ctx.Err() != nil:
			return l, context.Cause(ctx)
		case err != nil:
			return l, ErrBroken
		case l.End:
			return l, nil
		case l.Begun:
			continue
		}
		if err := fn(l); err != nil {
			return l, err
		}
	}
}
