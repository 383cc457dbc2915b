package client

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Orphans gives the machines that are no node's, as the leader found them last;
// with look the providers are asked now.
func (c *Client) Orphans(ctx context.Context, look bool) (model.OrphanReport, error) {
	var out model.OrphanReport
	if look {
		_, err := c.send(ctx, http.MethodPost, "/v1/orphans/look", nil, nil, &out)
		return out, err
	}
	_, err := c.get(ctx, "/v1/orphans", Read{}, nil, &out)
	return out, err
}

// RemoveOrphan removes a machine that was found to be no node's.
func (c *Client) RemoveOrphan(ctx context.Context, id string) error {
	_, err := c.send(ctx, http.MethodPost, "/v1/orphans/remove", nil, api.RemoveOrphanBody{ID: id}, nil)
	return err
}
