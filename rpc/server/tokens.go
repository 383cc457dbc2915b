package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

func (s *server) tokenRoutes() {
	const tag, path = "tokens", "/v1/tokens"
	admin := rule{need: model.RoleAdmin}

	read(s, route{id: "listTokens", path: path, tag: tag, rule: admin, summary: "List the tenant's tokens, without their secrets"},
		func(_ context.Context, c *call, v View, _ *none) ([]model.Token, error) {
			return append([]model.Token{}, v.Tokens(c.who.Tenant)...), nil
		})
	write(s, route{id: "createToken", method: http.MethodPost, path: path, status: http.StatusCreated, tag: tag, rule: rule{need: admin.need, secret: true}, summary: "Issue a token for the tenant",
		description: "If the request is repeated with the same request id, no other token is issued, and the secret is not shown again."},
		func(ctx context.Context, c *call, in *struct {
			Body raw[api.NewToken]
		}) (api.IssuedToken, api.Written, error) {
			var out api.IssuedToken
			req, err := in.Body.value()
			if err != nil {
				return out, api.Written{}, err
			}
			if req.Role == "" {
				req.Role = model.RoleUser
			}
			var faults model.Faults
			if why := model.CheckName(req.Actor); why != "" {
				faults.Add("actor", why)
			}
			if !slices.Contains(roles, req.Role) {
				names := make([]string, len(roles))
				for i, r := range roles {
					names[i] = string(r)
				}
				faults.Add("role", fmt.Sprintf("must be one of %s, but is %q", strings.Join(names, ", "), req.Role))
			}
			if len(faults) > 0 {
				return out, api.Written{}, invalid(faults)
			}
			if !atLeast(c.who.Role, req.Role) {
				return out, api.Written{}, forbidden("%s has the role %s and cannot issue a token with the role %s", c.who.Actor, c.who.Role, req.Role)
			}
			secret, w, err := s.Tokens.Create(ctx, c.who, model.Token{Actor: req.Actor, Tenant: c.who.Tenant, Role: req.Role})
			if err != nil {
				return out, w, err
			}
			out.Secret = secret
			out.Token = model.Token{Actor: req.Actor, Tenant: c.who.Tenant, Role: req.Role}
			v, err := s.now(ctx)
			if err != nil {
				return out, w, nil // the secret must reach the caller
			}
			// The new token is the latest one that matches.
			for _, t := range v.Tokens(c.who.Tenant) {
				if t.Actor == req.Actor && t.Role == req.Role && t.Created >= out.Created {
					out.Token = t
				}
			}
			return out, w, nil
		})
	write(s, route{id: "deleteToken", method: http.MethodDelete, path: path + "/{id}", tag: tag, rule: admin, summary: "Revoke a token"},
		func(ctx context.Context, c *call, in *struct {
			ID string `path:"id" doc:"The token's id, as the list shows it"`
		}) (api.Deleted, api.Written, error) {
			v, err := s.now(ctx)
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			if !slices.ContainsFunc(v.Tokens(c.who.Tenant), func(t model.Token) bool { return t.ID == in.ID }) {
				return api.Deleted{}, api.Written{}, notFound("there is no token with the id %q in tenant %s", in.ID, c.who.Tenant)
			}
			w, err := s.Tokens.Delete(ctx, c.who, in.ID)
			return api.Deleted{Name: in.ID}, w, err
		})
}
