package client

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Orphans returns the machines that belong to no node, as the leader's last search found them.
// With search it makes the leader search now.
func (c *Client) Orphans(ctx context.Context, search bool) (model.OrphanReport, error) {
	var out model.OrphanReport
	if search {
		_, err := c.sendSingle(ctx, http.MethodPost, "/v1/orphans/search", nil, &out)
		return out, err
	}
	_, err := c.ask(ctx, "/v1/orphans", nil, &out)
	return out, err
}

// RemoveOrphan removes a machine that the last search found.
func (c *Client) RemoveOrphan(ctx context.Context, id string) error {
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/orphans/remove", api.RemoveOrphanBody{ID: id}, nil)
	return err
}
