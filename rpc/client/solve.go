package client

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Lint checks definitions without writing them. The body is what Import takes.
func (c *Client) Lint(ctx context.Context, body any) (api.Linted, Meta, error) {
	var out api.Linted
	m, err := c.send(ctx, http.MethodPost, "/v1/lint", nil, body, &out)
	return out, m, err
}

// LintTemplate checks a cluster template that exists.
func (c *Client) LintTemplate(ctx context.Context, name string, read Read) (api.Linted, Meta, error) {
	var out api.Linted
	m, err := c.get(ctx, definitionPath(model.KindClusterTemplate, name, 0)+"/lint", read, nil, &out)
	return out, m, err
}

// Solve returns the layouts of clusters of several sizes.
func (c *Client) Solve(ctx context.Context, req api.SolveRequest) (api.Solved, Meta, error) {
	var out api.Solved
	m, err := c.send(ctx, http.MethodPost, "/v1/solve", nil, req, &out)
	return out, m, err
}
