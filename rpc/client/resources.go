package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

func resourcePath(k model.ResourceKey) string {
	path := "/v1/plugins"
	for _, part := range []string{string(k.Kind), k.Plugin, k.Type, k.Name} {
		path += "/" + url.PathEscape(part)
	}
	return path
}

func versionPath(k model.ResourceKey, version int) string {
	return resourcePath(k) + "/versions/" + strconv.Itoa(version)
}

// Resources returns every version of every plugin resource that has a status, or all versions if
// status is "".
func (c *Client) Resources(ctx context.Context, status model.ResourceStatus) ([]model.ResourceVersion, error) {
	q := url.Values{}
	if status != "" {
		q.Set("status", string(status))
	}
	var out []model.ResourceVersion
	_, err := c.ask(ctx, "/v1/plugins/resources", q, &out)
	return out, err
}

// UploadResource uploads the next version. then is model.StageResource, model.ActivateResource or
// ""; sum is the SHA-256 of the content, or "". The content has size bytes and may be read several
// times.
func (c *Client) UploadResource(
	ctx context.Context,
	k model.ResourceKey,
	content io.ReaderAt,
	size int64,
	sum, then string,
) (model.ResourceVersion, error) {
	q := url.Values{}
	if sum != "" {
		q.Set("sha256", sum)
	}
	if then != "" {
		q.Set("then", then)
	}
	var out model.ResourceVersion
	_, err := c.json(
		ctx,
		request{method: http.MethodPost, path: resourcePath(k), query: q, again: io.NewSectionReader(content, 0, size)},
		&out,
	)
	return out, err
}

// OrderResource stages, recalls or activates a version.
func (c *Client) OrderResource(ctx context.Context, order string, k model.ResourceKey, version int) (model.ResourceVersion, error) {
	var out model.ResourceVersion
	_, err := c.send(ctx, http.MethodPost, versionPath(k, version)+"/"+order, nil, nil, &out)
	return out, err
}

// SyncResources activates the staged versions and deactivates the recalled ones.
func (c *Client) SyncResources(ctx context.Context) (api.Synced, error) {
	var out api.Synced
	_, err := c.send(ctx, http.MethodPost, "/v1/plugins/sync", nil, nil, &out)
	return out, err
}

// DeleteResource deletes a version; version 0 means all.
func (c *Client) DeleteResource(ctx context.Context, k model.ResourceKey, version int) error {
	path := resourcePath(k)
	if version != 0 {
		path = versionPath(k, version)
	}
	_, err := c.send(ctx, http.MethodDelete, path, nil, nil, nil)
	return err
}

// Resource returns the record of a version.
func (c *Client) Resource(ctx context.Context, k model.ResourceKey, version int) (model.ResourceVersion, error) {
	var out model.ResourceVersion
	_, err := c.ask(ctx, versionPath(k, version), nil, &out)
	return out, err
}

// ResourceContent copies the content of a version to w.
func (c *Client) ResourceContent(ctx context.Context, k model.ResourceKey, version int, w io.Writer) error {
	resp, err := c.do(ctx, request{method: http.MethodGet, path: versionPath(k, version) + "/content"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return err
}
