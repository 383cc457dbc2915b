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

// Sites lists the sites of change objects.
func (c *Client) Sites(ctx context.Context) ([]site.Overview, error) {
	var out []site.Overview
	_, err := c.get(ctx, "/v1/sites", Read{}, nil, &out)
	return out, err
}

// SiteStatus tells how a site's objects are; with another after than 0 it waits
// for another revision, a minute at most.
func (c *Client) SiteStatus(ctx context.Context, name string, after uint64) (site.SiteStatus, error) {
	var out site.SiteStatus
	q := url.Values{}
	if after != 0 {
		q.Set("after", strconv.FormatUint(after, 10))
	}
	_, err := c.get(ctx, sitePath(name)+"/status", Read{}, q, &out)
	return out, err
}

// Site gets the document of a generation; 0 means the newest.
func (c *Client) Site(ctx context.Context, name string, generation uint64) (*site.Document, error) {
	q := url.Values{}
	if generation != 0 {
		q.Set("generation", strconv.FormatUint(generation, 10))
	}
	out := &site.Document{}
	_, err := c.get(ctx, sitePath(name), Read{}, q, out)
	return out, err
}

// SiteHistory lists the generations that are kept, the newest first.
func (c *Client) SiteHistory(ctx context.Context, name string) ([]site.PastGeneration, error) {
	var out []site.PastGeneration
	_, err := c.get(ctx, sitePath(name)+"/history", Read{}, nil, &out)
	return out, err
}

// SiteGraph gets a site's objects and dependencies.
func (c *Client) SiteGraph(ctx context.Context, name string) (*site.Graph, error) {
	out := &site.Graph{}
	_, err := c.get(ctx, sitePath(name)+"/graph", Read{}, nil, out)
	return out, err
}

// ExplainObject follows what an object waits for to the root.
func (c *Client) ExplainObject(ctx context.Context, name, object string) ([]site.Reason, error) {
	var out []site.Reason
	_, err := c.get(ctx, sitePath(name)+"/explain", Read{}, url.Values{"object": {object}}, &out)
	return out, err
}

// CheckSite checks every object, changing nothing.
func (c *Client) CheckSite(ctx context.Context, name string) ([]site.Finding, error) {
	var out []site.Finding
	_, err := c.send(ctx, http.MethodPost, sitePath(name)+"/check", nil, nil, &out)
	return out, err
}

// PlanSite says what applying a document, JSON or YAML, would do.
func (c *Client) PlanSite(ctx context.Context, document []byte) (site.ChangePreview, error) {
	var out site.ChangePreview
	_, err := c.json(ctx, request{method: http.MethodPost, path: "/v1/sites", body: document, header: yamlHeader()}, &out)
	return out, err
}

// ApplySite puts a document, JSON or YAML, into force.
func (c *Client) ApplySite(ctx context.Context, name string, document []byte) (api.SiteApplied, Meta, error) {
	var out api.SiteApplied
	m, err := c.json(ctx, request{method: http.MethodPut, path: sitePath(name), body: document, header: yamlHeader()}, &out)
	return out, m, err
}

func yamlHeader() http.Header { return http.Header{"Content-Type": {"application/yaml"}} }

// RevertSite puts the content of an earlier generation into force again; 0 means
// the one before.
func (c *Client) RevertSite(ctx context.Context, name string, generation uint64) (api.SiteApplied, Meta, error) {
	var out api.SiteApplied
	m, err := c.send(ctx, http.MethodPost, sitePath(name)+"/revert", nil, api.RevertBody{Generation: generation}, &out)
	return out, m, err
}

// DeleteSite brings all objects down in order, and forgets the site.
func (c *Client) DeleteSite(ctx context.Context, name string) (api.SiteApplied, Meta, error) {
	var out api.SiteApplied
	m, err := c.send(ctx, http.MethodDelete, sitePath(name), nil, nil, &out)
	return out, m, err
}

// ReleaseObject says that an object whose home is gone holds nothing.
func (c *Client) ReleaseObject(ctx context.Context, name, object, reason string) (Meta, error) {
	return c.send(ctx, http.MethodPost, sitePath(name)+"/release", nil, api.ReleaseBody{Object: object, Reason: reason}, nil)
}
