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

// ErrAlready is returned for an order about a plan that changes nothing, because it was given
// before or nothing is left to do.
var ErrAlready = errors.New("already done")

// Plans returns the names of a cluster's plans, the one with the highest priority first.
func (c *Client) Plans(ctx context.Context, cluster string, read Read) ([]string, Meta, error) {
	var out []string
	m, err := c.sdk(ctx, request{method: http.MethodGet, path: plansPath(cluster), query: read.query(nil)}, &out)
	return out, m, err
}

// Plan returns a plan with the status of its phases and steps.
func (c *Client) Plan(ctx context.Context, cluster, plan string, read Read) (tree.Info, Meta, error) {
	var out tree.Info
	m, err := c.sdk(ctx, request{method: http.MethodGet, path: plansPath(cluster) + "/" + seg(plan), query: read.query(nil)}, &out)
	return out, m, err
}

// PlansAtAGlance returns all plans of a cluster with their status.
func (c *Client) PlansAtAGlance(ctx context.Context, cluster string, read Read) (tree.Debug, Meta, error) {
	var out tree.Debug
	m, err := c.sdk(ctx, request{method: http.MethodGet, path: "/v1/clusters/" + seg(cluster) + "/debug/plans", query: read.query(nil)}, &out)
	return out, m, err
}

// OrderPlan carries out an order about a plan of a cluster, or about a part of it. It fails with
// ErrAlready if the order changes nothing.
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

// Explain returns what the waiting steps of an operation wait for, for at most so many steps (0:
// 100).
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

// sdk sends a request to a route that answers like the scheduler of the DC/OS SDK.
func (c *Client) sdk(ctx context.Context, r request, into any) (Meta, error) {
	r.sdk = true
	return c.json(ctx, r, into)
}

// sdkAnswer returns nil if such an answer is to be read, and else the error in it. The status
// alone does not decide: a plan with errors has an error status.
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
