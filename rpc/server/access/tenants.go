package access

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func tenantRoutes(s *rest.Server) {
	const tag, path, one = "tenants", "/v1/tenants", "/v1/tenants/{name}"

	rest.List(
		s,
		rest.Route{
			ID: "listTenants", Order: "name",
			Path:    path,
			Tag:     tag,
			Summary: "List tenants: all for superadmins, the caller's own for others",
		},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]model.Tenant, error) {
			return rest.Listed(c, access.TypeTenant, v.Tenants(), func(t model.Tenant) string { return t.Name })
		},
	)
	rest.Read(s, rest.Route{ID: "getTenant", Path: one, Tag: tag, Summary: "Get a tenant, and how much of its limits it uses"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByName) (api.TenantUse, error) {
			t, ok := v.Tenant(in.Name)
			if !ok {
				return api.TenantUse{}, rest.NotFound("there is no tenant %q", in.Name)
			}
			return api.TenantUse{Tenant: t, Use: use(s, v, t)}, nil
		})
	rest.Write(
		s,
		rest.Route{
			ID:      "createTenant",
			Method:  http.MethodPost,
			Path:    path,
			Status:  http.StatusCreated,
			Tag:     tag,
			Summary: "Create a tenant",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.TenantUse]
		}) (model.Tenant, api.Written, error) {
			return putTenant(ctx, s, c, "", in.Body, true)
		},
	)
	rest.Write(s, rest.Route{ID: "putTenant", Method: http.MethodPut, Path: one, Tag: tag, Summary: "Create or change a tenant"},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByName
			Body rest.Raw[api.TenantUse]
		}) (model.Tenant, api.Written, error) {
			return putTenant(ctx, s, c, in.Name, in.Body, false)
		})
	rest.Write(
		s,
		rest.Route{
			ID:      "deleteTenant",
			Method:  http.MethodDelete,
			Path:    one,
			Tag:     tag,
			Summary: "Delete a tenant that has no clusters",
		},
		func(ctx context.Context, c *rest.Call, in *rest.ByName) (api.Deleted, api.Written, error) {
			w, err := s.Tenants.Delete(ctx, c.Who, in.Name)
			return api.Deleted{Name: in.Name}, w, err
		},
	)
}

// use returns how much of its limits a tenant uses.
func use(s *rest.Server, v rest.View, t model.Tenant) []model.Use {
	all := v.Use(t)
	for i := range all {
		u := &all[i]
		switch u.Limit {
		case model.LimitStreams.Name:
			if n, ok := s.Streams(t.Name); ok {
				u.Used, u.Near = &n, model.Near(n, u.Max)
			}
		case model.LimitResourceBytes.Name:
			if u.Max == 0 {
				u.Max = s.Resources.MostBytes()
				u.Near = u.Used != nil && model.Near(*u.Used, u.Max)
			}
		}
	}
	return all
}

func putTenant(
	ctx context.Context,
	s *rest.Server,
	c *rest.Call,
	name string,
	body rest.Raw[api.TenantUse],
	createOnly bool,
) (model.Tenant, api.Written, error) {
	given, err := body.Value()
	t := given.Tenant
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
	if t.Weight < 0 {
		faults.Add("weight", fmt.Sprintf("must not be negative, but is %d", t.Weight))
	}
	for _, l := range model.TenantLimits {
		if n := l.Given(&t); n < 0 {
			faults.Add(l.Name, fmt.Sprintf("must not be negative, but is %d; 0 stands for the default", n))
		}
	}
	if t.MaxPolicies > model.MaxPolicies {
		faults.Add(model.LimitPolicies.Name, fmt.Sprintf("must be at most %d, but is %d", model.MaxPolicies, t.MaxPolicies))
	}
	if len(faults) > 0 {
		return t, api.Written{}, rest.Invalid(faults)
	}
	v, err := s.Latest(ctx)
	if err != nil {
		return t, api.Written{}, err
	}
	if _, there := v.Tenant(t.Name); !createOnly {
		if err := c.MayWrite(access.TypeTenant, t.Name, there); err != nil {
			return t, api.Written{}, err
		}
	}
	w, err := s.Tenants.Put(ctx, c.Who, t, createOnly)
	if err != nil {
		return t, w, err
	}
	t, err = rest.Wrote(w, w.Effect.Tenant)
	return t, w, err
}
