package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/rpc/api"
)

// AuditQuery selects records of the audit log.
type AuditQuery struct {
	// Filter selects by content. An empty tenant is the client's; "*" is every tenant, for
	// superadmins.
	audit.Filter
	// Oldest puts the oldest records first.
	Oldest bool
	// From is where an earlier page ended (its Next).
	From  string
	Limit int
}

func (q *AuditQuery) query() url.Values {
	v := values(
		"tenant",
		q.Tenant,
		"cluster",
		q.Cluster,
		"operation",
		q.Operation,
		"node",
		q.Node,
		"actor",
		q.Actor,
		"type",
		strings.Join(q.Types, ","),
	)
	for name, n := range map[string]int64{"since": q.Since, "until": q.Until} {
		if n > 0 {
			v.Set(name, strconv.FormatInt(n, 10))
		}
	}
	return v
}

// Audit returns a page of the audit log.
func (c *Client) Audit(ctx context.Context, q AuditQuery, read Read) (api.AuditPage, Meta, error) {
	v := q.query()
	if q.Oldest {
		v.Set("order", "oldest")
	}
	if q.From != "" {
		v.Set("from", q.From)
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var out api.AuditPage
	m, err := c.get(ctx, "/v1/audit", read, v, &out)
	return out, m, err
}

// AuditExport returns the audit log as lines of JSON, from the record after the one with the
// number after. The caller closes it.
func (c *Client) AuditExport(ctx context.Context, f audit.Filter, after uint64) (io.ReadCloser, error) {
	v := (&AuditQuery{Filter: f}).query()
	if after > 0 {
		v.Set("after", strconv.FormatUint(after, 10))
	}
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/audit/export", query: v})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// AuditSinks returns how far the sinks of the audit log have come.
func (c *Client) AuditSinks(ctx context.Context) ([]model.AuditSink, error) {
	var out []model.AuditSink
	_, err := c.ask(ctx, "/v1/audit/sinks", nil, &out)
	return out, err
}

// SigningKeys returns the public keys with which the mesh signs.
func (c *Client) SigningKeys(ctx context.Context, read Read) (signing.Chain, error) {
	var out signing.Chain
	_, err := c.get(ctx, "/v1/audit/keys", read, nil, &out)
	return out, err
}

// AuditVerify makes an agent verify the chain of hashes: the leader, or with a stale read the
// agent that is asked, which verifies its own copy.
func (c *Client) AuditVerify(ctx context.Context, read Read) (audit.Verification, error) {
	var out audit.Verification
	_, err := c.get(ctx, "/v1/audit/verify", read, nil, &out)
	return out, err
}
