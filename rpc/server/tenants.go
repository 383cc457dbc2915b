package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

func (s *server) tenantRoutes() {
	const tag, path, one = "tenants", "/v1/tenants", "/v1/tenants/{name}"
	super := rule{need: model.RoleSuperadmin}

	read(s, route{id: "listTenants", path: path, tag: tag, rule: rule{need: model.RoleRead}, summary: "List tenants: all for superadmins, the caller's own for others"},
		func(_ context.Context, c *call, v View, _ *none) ([]model.Tenant, error) {
			out := []model.Tenant{}
			for _, t := range v.Tenants() {
				if c.who.Role == model.RoleSuperadmin || t.Name == c.who.Tenant {
					out = append(out, t)
				}
			}
			return out, nil
		})
	read(s, route{id: "getTenant", path: one, tag: tag, rule: rule{need: model.RoleRead}, summary: "Get a tenant"},
		func(_ context.Context, c *call, v View, in *ByName) (model.Tenant, error) {
			t, ok := v.Tenant(in.Name)
			if !ok || c.who.Role != model.RoleSuperadmin && t.Name != c.who.Tenant {
				return t, notFound("there is no tenant %q", in.Name)
			}
			return t, nil
		})
	write(s, route{id: "createTenant", method: http.MethodPost, path: path, status: http.StatusCreated, tag: tag, rule: super, summary: "Create a tenant"},
		func(ctx context.Context, c *call, in *struct {
			Body raw[model.Tenant]
		}) (model.Tenant, api.Written, error) {
			return s.putTenant(ctx, c, "", in.Body, true)
		})
	write(s, route{id: "putTenant", method: http.MethodPut, path: one, tag: tag, rule: super, summary: "Create or change a tenant"},
		func(ctx context.Context, c *call, in *struct {
			ByName
			Body raw[model.Tenant]
		}) (model.Tenant, api.Written, error) {
			return s.putTenant(ctx, c, in.Name, in.Body, false)
		})
	write(s, route{id: "deleteTenant", method: http.MethodDelete, path: one, tag: tag, rule: super, summary: "Delete a tenant that has no clusters"},
		func(ctx context.Context, c *call, in *ByName) (api.Deleted, api.Written, error) {
			w, err := s.Tenants.Delete(ctx, c.who, in.Name)
			return api.Deleted{Name: in.Name}, w, err
		})
}

func (s *server) putTenant(ctx context.Context, c *call, name string, body raw[model.Tenant], createOnly bool) (model.Tenant, api.Written, error) {
	t, err := body.value()
	if err != nil {
		return t, api.Written{}, err
	}
	var faults model.Faults
	switch {
	case name != "" && t.Name == "":
		t.Name = name
	case name != "" && t.Name != name:
		faults.Add("name", fmt.Sprintf("is %q, but the path says %q: they must be equal", t.Name, name))
	}
	if why := model.CheckName(t.Name); why != "" {
		faults.Add("name", why)
	}
	for path, n := range map[string]int{"maxClusters": t.MaxClusters, "maxNodes": t.MaxNodes, "weight": t.Weight} {
		if n < 0 {
			faults.Add(path, fmt.Sprintf("must not be negative, but is %d", n))
		}
	}
	if len(faults) > 0 {
		return t, api.Written{}, invalid(faults)
	}
	w, err := s.Tenants.Put(ctx, c.who, t, createOnly)
	if err != nil {
		return t, w, err
	}
	if v, err := s.now(ctx); err == nil {
		if got, ok := v.Tenant(t.Name); ok {
			t = got
		}
	}
	return t, w, nil
}
