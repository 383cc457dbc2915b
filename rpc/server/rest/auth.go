package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/bounds"
	"github.com/coopr/coopr/rpc/api"
)

var requestID = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,128}$`)

// tokenOf returns the token of a request: from "Authorization: Bearer T", or from "Authorization:
// token=T".
func tokenOf(r *http.Request) string {
	h := strings.TrimSpace(r.Header.Get("Authorization"))
	scheme, rest, ok := strings.Cut(h, " ")
	switch {
	case ok && (strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "token")):
		h = strings.TrimSpace(rest)
	case ok:
		return ""
	}
	if t, ok := strings.CutPrefix(h, "token="); ok {
		return strings.Trim(t, `"`)
	}
	return h
}

// Bearer is what the caller of a request authenticates with: a token, and the address from which the caller asks, which is the zero Addr
// if it is not known.
type Bearer struct {
	Token string
	From  netip.Addr
}

// Header returns the headers of a question to another agent in the caller's name.
func (b Bearer) Header() http.Header {
	h := http.Header{"Authorization": {"Bearer " + b.Token}}
	nameClient(h, b.From)
	return h
}

// bearerOf returns the token of a request and the address of its client.
func bearerOf(r *http.Request) Bearer { return Bearer{Token: tokenOf(r), From: clientOf(r)} }

// clientOf returns the address of the client that made a request. An agent that forwards a request names its client; nobody
// else is believed.
func clientOf(r *http.Request) netip.Addr {
	if ofAgent(r.Context()) {
		return bounds.Address(r.Header.Get(api.HeaderClient))
	}
	return bounds.Address(r.RemoteAddr)
}

// nameClient sets the header that names the client of a forwarded request, in place of what the client sent.
func nameClient(h http.Header, from netip.Addr) {
	h.Del(api.HeaderClient)
	if from.IsValid() {
		h.Set(api.HeaderClient, from.String())
	}
}

// checkQuery refuses every request with a token in its URL. URLs are kept in the logs of proxies and
// in the histories of shells and browsers.
func checkQuery(query url.Values) error {
	if !query.Has("token") {
		return nil
	}
	return Invalid(model.Faults{{
		Path:    "query.token",
		Message: "a token in a URL is kept in logs: send it as \"Authorization: Bearer TOKEN\", and revoke this one",
	}})
}

// Call is a request whose caller is known.
type Call struct {
	Who model.Caller
	// Bearer is what the caller authenticates with, for questions to other agents in the caller's name.
	Bearer      Bearer
	consistency api.Consistency
	// after and wait make a read wait for a newer state; after 0 does not wait.
	after uint64
	wait  waitTime
	note  *note
	// path and parameters are those of the request.
	path       string
	parameters url.Values
	// check returns an error once the token is not valid any more, and question is what a policy must still permit. Both are
	// nil if the call does not wait.
	check    func(context.Context) error
	question *atomic.Pointer[question]
	// retried is true for a request of which a copy may be under way (api.HeaderRetry).
	retried bool
	// ready waits until a call that waited for a state may make its answer. It is nil for all others.
	ready func() error
	decider
}

// Fail records the error of an answer that has begun already.
func (c *Call) Fail(err error) { c.note.err = err }

// BodyProblem returns the problem of a body that could not be read to its end, or nil.
func (c *Call) BodyProblem() error {
	if c.note.body == nil {
		return nil
	}
	return bodyProblem(c.note.body)
}

type callKey struct{}

func callOf(ctx context.Context) *Call {
	c, ok := ctx.Value(callKey{}).(*Call)
	if !ok {
		panic("api: a handler was reached without authentication")
	}
	return c
}

// authorize determines the tenant of a request, and decides whether its caller may use the route.
func (s *Server) authorize(ctx context.Context, r *http.Request, query url.Values, route string, ru Rule, c *Call) error {
	who := c.Who
	if id := r.Header.Get(api.HeaderRequest); id != "" {
		if !requestID.MatchString(id) {
			return Invalid(model.Faults{{Path: api.HeaderRequest, Message: "must be 1 to 128 letters, digits and . _ : / -"}})
		}
		who.Request, c.note.request = id, id
		c.retried = r.Header.Get(api.HeaderRetry) != ""
	}
	tenant := r.Header.Get(api.HeaderTenant)
	if q := query.Get("tenant"); q != "" {
		if tenant != "" && tenant != q {
			return Invalid(
				model.Faults{
					{Path: "tenant", Message: fmt.Sprintf("the query says %q and the header %s says %q: name one", q, api.HeaderTenant, tenant)},
				},
			)
		}
		tenant = q
	}
	if ru.Later && who.Maker != nil {
		return Forbidden("this token may do less than %s, and the mesh would go on in the name of %[1]s: use a session, or a token without "+
			"a role of its own", who.Actor)
	}
	if tenant != "" && tenant != who.Tenant {
		if ru.Own {
			return Invalid(model.Faults{{Path: "tenant", Message: "this is about yourself, in your own tenant: name no other"}})
		}
		if who.Role != model.RoleSuperadmin {
			return Forbidden("the token is of tenant %s: only a superadmin may name another tenant (%s)", who.Tenant, tenant)
		}
		switch {
		case tenant == api.AllTenants && ru.AllTenants:
		case ru.Local:
			// The status of this agent belongs to no tenant.
		default:
			v, err := s.State.View(ctx, c.consistency, 0)
			if err != nil {
				return err
			}
			if _, ok := v.Tenant(tenant); !ok {
				return NotFound("there is no tenant %q: `coopr tenant list` (GET /v1/tenants) shows them", tenant)
			}
		}
		who.Tenant, c.note.tenant = tenant, tenant
	}
	own := c.Who.Tenant
	c.Who = who
	return s.decide(r, route, ru, c, own)
}
