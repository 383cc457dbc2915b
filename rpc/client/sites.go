package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/rpc/api"
)

func sitePath(name string) string { return "/v1/sites/" + seg(name) }

// Sites returns the sites of change objects.
func (c *Client) Sites(ctx context.Context) ([]site.Overview, error) {
	var out []site.Overview
	_, err := c.ask(ctx, "/v1/sites", nil, &out)
	return out, err
}

// SiteStatus returns the status of a site's objects. If after is not 0, SiteStatus waits for at
// most a minute until the revision differs from after.
func (c *Client) SiteStatus(ctx context.Context, name string, after uint64) (site.SiteStatus, error) {
	var out site.SiteStatus
	q := url.Values{}
	if after != 0 {
		q.Set("after", strconv.FormatUint(after, 10))
	}
	_, err := c.ask(ctx, sitePath(name)+"/status", q, &out)
	return out, err
}

// Site returns the document of a generation; 0 means the newest.
func (c *Client) Site(ctx context.Context, name string, generation uint64) (*site.Document, error) {
	q := url.Values{}
	if generation != 0 {
		q.Set("generation", strconv.FormatUint(generation, 10))
	}
	out := &site.Document{}
	_, err := c.ask(ctx, sitePath(name), q, out)
	return out, err
}

// SiteHistory returns the generations that are kept, the newest first.
func (c *Client) SiteHistory(ctx context.Context, name string) ([]site.PastGeneration, error) {
	var out []site.PastGeneration
	_, err := c.ask(ctx, sitePath(name)+"/history", nil, &out)
	return out, err
}

// SiteGraph returns a site's objects and their dependencies.
func (c *Client) SiteGraph(ctx context.Context, name string) (*site.Graph, error) {
	out := &site.Graph{}
	_, err := c.ask(ctx, sitePath(name)+"/graph", nil, out)
	return out, err
}

// ExplainObject returns what an object waits for, up to the root cause.
func (c *Client) ExplainObject(ctx context.Context, name, object string) ([]site.Reason, error) {
	var out []site.Reason
	_, err := c.ask(ctx, sitePath(name)+"/explain", url.Values{"object": {object}}, &out)
	return out, err
}

// CheckSite compares every object with the real thing and changes nothing.
func (c *Client) CheckSite(ctx context.Context, name string) ([]site.Finding, error) {
	var out []site.Finding
	_, err := c.sendSingle(ctx, http.MethodPost, sitePath(name)+"/check", nil, &out)
	return out, err
}

// PlanSite previews a document, which is JSON or YAML.
func (c *Client) PlanSite(ctx context.Context, document []byte) (site.ChangePreview, error) {
	var out site.ChangePreview
	_, err := c.json(ctx, request{method: http.MethodPost, path: "/v1/sites", body: document, header: yamlHeader(), single: true}, &out)
	return out, err
}

// ApplySite applies a document, which is JSON or YAML.
func (c *Client) ApplySite(ctx context.Context, name string, document []byte) (api.SiteApplied, Meta, error) {
	var out api.SiteApplied
	m, err := c.json(ctx, request{method: http.MethodPut, path: sitePath(name), body: document, header: yamlHeader()}, &out)
	return out, m, err
}

func yamlHeader() http.Header { return http.Header{"Content-Type": {"application/yaml"}} }

// RevertSite applies the content of an earlier generation again; 0 means the previous one.
func (c *Client) RevertSite(ctx context.Context, name string, generation uint64) (api.SiteApplied, Meta, error) {
	var out api.SiteApplied
	m, err := c.send(ctx, http.MethodPost, sitePath(name)+"/revert", nil, api.RevertBody{Generation: generation}, &out)
	return out, m, err
}

// DeleteSite takes all objects down in order and deletes the site.
func (c *Client) DeleteSite(ctx context.Context, name string) (api.SiteApplied, Meta, error) {
	var out api.SiteApplied
	m, err := c.send(ctx, http.MethodDelete, sitePath(name), nil, nil, &out)
	return out, m, err
}

// ReleaseObject records that an object on a lost host holds nothing.
func (c *Client) ReleaseObject(ctx context.Context, name, object, reason string) (Meta, error) {
	return c.send(ctx, http.MethodPost, sitePath(name)+"/release", nil, api.ReleaseBody{Object: object, Reason: reason}, nil)
}
