package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
)

// ErrAlready says that an order about a plan changes nothing: it has been given
// already, or there is nothing left to do.
var ErrAlready = errors.New("already done")

// Plans gives the names of a cluster's plans, in the order of their priority.
func (c *Client) Plans(ctx context.Context, cluster string, read Read) ([]string, Meta, error) {
	var out []string
	m, err := c.sdk(ctx, request{method: http.MethodGet, path: plansPath(cluster), query: read.query(nil)}, &out)
	return out, m, err
}

// Plan gets a plan: its phases and steps and where they stand.
func (c *Client) Plan(ctx context.Context, cluster, plan string, read Read) (tree.Info, Meta, error) {
	var out tree.Info
	m, err := c.sdk(ctx, request{method: http.MethodGet, path: plansPath(cluster) + "/" + seg(plan), query: read.query(nil)}, &out)
	return out, m, err
}

// PlansAtAGlance gets all plans of a cluster, with what each comes to.
func (c *Client) PlansAtAGlance(ctx context.Context, cluster string, read Read) (tree.Debug, Meta, error) {
	var out tree.Debug
	m, err := c.sdk(ctx, request{method: http.MethodGet, path: "/v1/clusters/" + seg(cluster) + "/debug/plans", query: read.query(nil)}, &out)
	return out, m, err
}

// OrderPlan gives an order about a plan of a cluster, or a part of it. It fails
// with ErrAlready where the order changes nothing.
func (c *Client) OrderPlan(ctx context.Context, cluster string, o tree.Order) (api.Said, Meta, error) {
	var out api.Said
	q := url.Values{}
	for name, value := range map[string]string{"phase": o.Phase, "step": o.Step} {
		if value != "" {
			q.Set(name, value)
		}
	}
	r := request{method: http.MethodPost, path: plansPath(cluster) + "/" + seg(o.Plan) + "/" + o.Command, query: q}
	if o.Command == "start" {
		r.body = []byte("{}")
		if len(o.Params) > 0 {
			var err error
			if r.body, err = json.Marshal(o.Params); err != nil {
				return out, Meta{}, err
			}
		}
	}
	m, err := c.sdk(ctx, r, &out)
	return out, m, err
}

// Explain says why an operation does not go on: what its waiting steps wait for,
// at most so many of them (0: 100).
func (c *Client) Explain(ctx context.Context, operation string, steps int, read Read) (tree.Explanation, Meta, error) {
	var out tree.Explanation
	q := url.Values{}
	if steps > 0 {
		q.Set("limit", strconv.Itoa(steps))
	}
	m, err := c.get(ctx, "/v1/operations/"+seg(operation)+"/explain", read, q, &out)
	return out, m, err
}

func plansPath(cluster string) string { return "/v1/clusters/" + seg(cluster) + "/plans" }

// sdk asks a route that answers as the DC/OS SDK's scheduler does.
func (c *Client) sdk(ctx context.Context, r request, into any) (Meta, error) {
	r.sdk = true
	return c.json(ctx, r, into)
}

// sdkAnswer tells what such a route says by its status: nil for an answer to be
// read (a plan with errors is one), else what is refused.
func sdkAnswer(resp *http.Response) error {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	switch kind {
	case "application/json":
		return nil
	case "text/plain":
	default:
		return errorOf(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	switch {
	case err != nil:
		return err
	case resp.StatusCode == tree.CodeAlready:
		return fmt.Errorf("%w: %s", ErrAlready, text)
	}
	return &Error{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode), Detail: string(text)}
}
