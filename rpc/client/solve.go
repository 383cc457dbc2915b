package client

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Lint says what would be wrong with definitions if they were imported. The
// body is what Import takes.
func (c *Client) Lint(ctx context.Context, body any) (api.Linted, Meta, error) {
	var out api.Linted
	m, err := c.send(ctx, http.MethodPost, "/v1/lint", nil, body, &out)
	return out, m, err
}

// LintTemplate says what is wrong with a cluster template that is there.
func (c *Client) LintTemplate(ctx context.Context, name string, read Read) (api.Linted, Meta, error) {
	var out api.Linted
	m, err := c.get(ctx, definitionPath(model.KindClusterTemplate, name, 0)+"/lint", read, nil, &out)
	return out, m, err
}

// Solve says what clusters of several sizes would look like.
func (c *Client) Solve(ctx context.Context, req api.SolveRequest) (api.Solved, Meta, error) {
	var out api.Solved
	m, err := c.send(ctx, http.MethodPost, "/v1/solve", nil, req, &out)
	return out, m, err
}
