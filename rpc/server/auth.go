package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

var requestID = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,128}$`)

// roles are all roles, the one with the most rights first.
var roles = []model.Role{model.RoleSuperadmin, model.RoleAdmin, model.RoleUser, model.RoleRead}

// atLeast reports whether a role includes another.
func atLeast(have, need model.Role) bool {
	h := slices.Index(roles, have)
	return h >= 0 && h <= slices.Index(roles, need)
}

// tokenOf returns the token of a request: from "Authorization: Bearer T", from "Authorization:
// token=T", or from ?token=T for clients that cannot set headers, such as a browser's
// EventSource.
func tokenOf(r *http.Request, query url.Values) string {
	h := strings.TrimSpace(r.Header.Get("Authorization"))
	scheme, rest, ok := strings.Cut(h, " ")
	switch {
	case ok && strings.EqualFold(scheme, "Bearer"):
		h = strings.TrimSpace(rest)
	case ok && strings.EqualFold(scheme, "token"):
		h = strings.TrimSpace(rest)
	case ok:
		return ""
	case h == "":
		return query.Get("token")
	}
	if t, ok := strings.CutPrefix(h, "token="); ok {
		return strings.Trim(t, `"`)
	}
	return h
}

// call is a request whose caller is known.
type call struct {
	who         model.Caller
	consistency api.Consistency
	// after and wait make a read wait for a newer state; after 0 does not wait.
	after uint64
	wait  waitTime
	note  *note
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		panic("api: a handler was reached without authentication")
	}
	return c
}

// authenticate determines the caller and the tenant of a request.
func (s *server) authenticate(ctx context.Context, r *http.Request, query url.Values, ru rule, c *call) error {
	token := tokenOf(r, query)
	if token == "" {
		return problem.New(problem.Unauthorized, "send a token, as \"Authorization: Bearer TOKEN\"")
	}
	who, err := s.Tokens.Authenticate(ctx, token)
	if err != nil {
		return err
	}
	c.note.tenant, c.note.actor = who.Tenant, who.Actor
	if id := r.Header.Get(api.HeaderRequest); id != "" {
		if !requestID.MatchString(id) {
			return invalid(model.Faults{{Path: api.HeaderRequest, Message: "must be 1 to 128 letters, digits and . _ : / -"}})
		}
		who.Request, c.note.request = id, id
	}
	tenant := r.Header.Get(api.HeaderTenant)
	if q := query.Get("tenant"); q != "" {
		if tenant != "" && tenant != q {
			return invalid(model.Faults{{Path: "tenant", Message: fmt.Sprintf("the query says %q and the header %s says %q: name one", q, api.HeaderTenant, tenant)}})
		}
		tenant = q
	}
	if tenant != "" && tenant != who.Tenant {
		if who.Role != model.RoleSuperadmin {
			return forbidden("the token is of tenant %s: only a superadmin may name another tenant (%s)", who.Tenant, tenant)
		}
		switch {
		case tenant == api.AllTenants && ru.allTenants:
		case ru.local:
			// The status of this agent belongs to no tenant.
		default:
			v, err := s.State.View(ctx, c.consistency, 0)
			if err != nil {
				return err
			}
			if _, ok := v.Tenant(tenant); !ok {
				return notFound("there is no tenant %q: `coopr tenant list` (GET /v1/tenants) shows them", tenant)
			}
		}
		who.Tenant, c.note.tenant = tenant, tenant
	}
	if !atLeast(who.Role, ru.need) {
		return forbidden("%s has the role %s: this needs the role %s", who.Actor, who.Role, ru.need)
	}
	c.who = who
	return nil
}
