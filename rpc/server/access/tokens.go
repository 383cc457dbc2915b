package access

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func tokenRoutes(s *rest.Server) {
	const tag, path = "tokens", "/v1/tokens"

	rest.List(s, rest.Route{ID: "listTokens", Order: "id", Path: path, Tag: tag, Summary: "List the tenant's tokens, without their secrets"},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]model.Token, error) {
			return rest.Listed(c, access.TypeToken, v.Tokens(c.Who.Tenant), func(t model.Token) string { return t.ID })
		})
	rest.Write(
		s,
		rest.Route{
			ID:          "createToken",
			Method:      http.MethodPost,
			Path:        path,
			Status:      http.StatusCreated,
			Tag:         tag,
			Rule:        rest.Rule{Secret: true},
			Summary:     "Issue a token for the tenant",
			Description: "If the request is repeated with the same request id, no other token is issued, and the secret is not shown again.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.NewToken]
		}) (api.IssuedToken, api.Written, error) {
			var out api.IssuedToken
			req, err := in.Body.Value()
			if err != nil {
				return out, api.Written{}, err
			}
			if req.Role == "" {
				req.Role = model.RoleUser
			}
			var faults model.Faults
			if why := model.CheckName(req.Actor); why != "" {
				faults.Add("actor", why)
			} else if model.Reserved(req.Actor) {
				faults.Add("actor", fmt.Sprintf("%q means the mesh itself in records: choose another name", req.Actor))
			}
			if !slices.Contains(model.Roles, req.Role) {
				faults.Add("role", fmt.Sprintf("must be one of %s, but is %q", roleNames(), req.Role))
			}
			expires := endOf(&faults, s.Millis(), req.TTL)
			sources := model.ParseSources(&faults, req.Sources, c.Who.Sources)
			if len(faults) > 0 {
				return out, api.Written{}, rest.Invalid(faults)
			}
			if c.Who.Child {
				return out, api.Written{}, rest.Forbidden("this token was made with a token: it makes no further ones")
			}
			if c.Who.Expires != 0 && !c.Who.Session {
				expires = min(cmp.Or(expires, c.Who.Expires), c.Who.Expires)
			}
			if !c.Who.Role.AtLeast(req.Role) {
				return out, api.Written{}, rest.Forbidden(
					"%s has the role %s and cannot issue a token with the role %s",
					c.Who.Actor,
					c.Who.Role,
					req.Role,
				)
			}
			before, err := s.Latest(ctx)
			if err != nil {
				return out, api.Written{}, err
			}
			if err := mayName(before, c.Who, req.Actor, req.Role); err != nil {
				return out, api.Written{}, err
			}
			secret, w, err := s.Tokens.Create(ctx, c.Who, model.Token{
				Actor: req.Actor, Tenant: c.Who.Tenant, Role: req.Role, Expires: expires, Description: req.Description,
				Sources: sources,
			})
			if err != nil {
				return out, w, err
			}
			out.Secret = secret
			out.Token, err = rest.Wrote(w, w.Effect.Token)
			return out, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{ID: "deleteToken", Method: http.MethodDelete, Path: path + "/{id}", Tag: tag, Summary: "Revoke a token"},
		func(ctx context.Context, c *rest.Call, in *struct {
			ID string `path:"id" doc:"The token's id, as the list shows it"`
		}) (api.Deleted, api.Written, error) {
			v, done, err := s.Before(ctx, c)
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			if done != nil {
				return api.Deleted{Name: in.ID}, *done, nil
			}
			tokens := v.Tokens(c.Who.Tenant)
			i := slices.IndexFunc(tokens, func(t model.Token) bool { return t.ID == in.ID })
			if i < 0 {
				return api.Deleted{}, api.Written{}, rest.NotFound("there is no token with the id %q in tenant %s", in.ID, c.Who.Tenant)
			}
			u, _ := v.User(c.Who.Tenant, tokens[i].Actor)
			if role := cmp.Or(tokens[i].Role, u.Role, model.RoleRead); !c.Who.Role.AtLeast(role) {
				return api.Deleted{}, api.Written{}, rest.Forbidden("%s has the role %s and cannot revoke a token with the role %s", c.Who.Actor,
					c.Who.Role, role)
			}
			w, err := s.Tokens.Delete(ctx, c.Who, in.ID)
			return api.Deleted{Name: in.ID}, w, err
		},
	)
}

// mayName returns why the caller cannot issue a token for an actor, or nil. A second token of the
// same actor is fine, so that a token can be replaced. But records must not show two people as
// one. So no name differs only in case from one of the tenant or of a superadmin, and no superadmin has
// the name of a user of another tenant. An administrator
// issues no token in the name of another administrator of the tenant, or of a superadmin.
func mayName(v rest.View, who model.Caller, actor string, role model.Role) error {
	for _, t := range holders(v) {
		here, super := t.Tenant == who.Tenant, t.Role == model.RoleSuperadmin
		switch {
		case strings.EqualFold(t.Name, actor) && !here && t.Method != "" && (super || role == model.RoleSuperadmin):
			return problem.New(problem.Conflict, "%s is a user of tenant %s: choose another name", t.Name, t.Tenant)
		case !strings.EqualFold(t.Name, actor) || !here && !super && role != model.RoleSuperadmin:
		case !here && !super:
			return problem.New(problem.Conflict, "tenant %s has a user %s: a superadmin needs another name", t.Tenant, t.Name)
		case t.Name != actor:
			return problem.New(problem.Conflict, "there is a user %s already, and %s differs from that name only in case", t.Name, actor)
		case actor != who.Actor && t.Role.AtLeast(who.Role) && who.Role != model.RoleSuperadmin:
			return problem.New(problem.Conflict, "there is a user %s already: only %[1]s or a superadmin may issue a token in that name", actor)
		}
	}
	return nil
}

// holders returns the users, also the deleted ones, and those who have tokens without being users.
func holders(v rest.View) []model.User {
	out := v.AllUsers()
	for _, t := range v.Tokens("") {
		if t.Role != "" { // one without a role has its user's
			out = append(out, model.User{Name: t.Actor, Tenant: t.Tenant, Role: t.Role})
		}
	}
	return out
}
