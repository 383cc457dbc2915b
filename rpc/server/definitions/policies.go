package definitions

import (
	"context"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Forced is the parameter of routes that change policies.
type Forced struct {
	Force bool `query:"force" doc:"Change the policies even if no user can change them afterwards"`
}

// policyRoutes registers the routes of policy documents: of those of a tenant, or of those of the mesh.
func policyRoutes(s *rest.Server, path, id, word string) {
	readRoutes[model.Policies](s, model.KindPolicies, path, id, word)
	one := path + "/{name}"
	put := func(ctx context.Context, c *rest.Call, name string, b rest.Raw[model.Policies], createOnly, force bool) (
		*model.Policies, api.Written, error) {
		return putDefinition[model.Policies](ctx, s, c, model.KindPolicies, name, b.Data, rest.PutOptions{CreateOnly: createOnly, Force: force})
	}
	rest.Write(
		s,
		rest.Route{ID: "create" + id, Method: http.MethodPost, Path: path, Status: http.StatusCreated, Tag: tag,
			Summary: "Create a " + word + ", which must not exist yet"},
		func(ctx context.Context, c *rest.Call, in *struct {
			Forced
			Body rest.Raw[model.Policies]
		}) (*model.Policies, api.Written, error) {
			return put(ctx, c, "", in.Body, true, in.Force)
		},
	)
	rest.Write(
		s,
		rest.Route{ID: "put" + id, Method: http.MethodPut, Path: one, Tag: tag,
			Summary: "Write a new version of a " + word + ", or the first one"},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByName
			Forced
			Body rest.Raw[model.Policies]
		}) (*model.Policies, api.Written, error) {
			return put(ctx, c, in.Name, in.Body, false, in.Force)
		},
	)
	rest.Write(
		s,
		rest.Route{ID: "delete" + id, Method: http.MethodDelete, Path: one, Tag: tag, Summary: "Delete all versions of a " + word},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByName
			Forced
		}) (api.Deleted, api.Written, error) {
			v, done, err := s.Before(ctx, c)
			if err == nil && done == nil {
				err = checkPolicies(c, v, nil, in.Name, in.Force)
			}
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			w, err := s.Definitions.Delete(ctx, c.Who, model.KindPolicies, in.Name, 0, in.Force)
			return api.Deleted{Kind: model.KindPolicies, Name: in.Name}, w, err
		},
	)
}

// checkPolicies returns the faults that policy documents have among the others, once some are written or one is
// deleted. Without force it refuses a change after which no user could change the policies.
func checkPolicies(c *rest.Call, v rest.View, written []model.StoredDefinition, deleted string, force bool) error {
	written = slices.DeleteFunc(slices.Clone(written), func(d model.StoredDefinition) bool { return d.Kind != model.KindPolicies })
	if len(written) == 0 && deleted == "" {
		return nil
	}
	tenant := c.Who.Tenant
	if faults := policyFaults(v, tenant, written); len(faults) > 0 {
		return faults
	}
	mine := slices.DeleteFunc(v.Definitions(tenant, model.KindPolicies), func(old model.StoredDefinition) bool {
		return old.Name == deleted || slices.ContainsFunc(written, func(d model.StoredDefinition) bool { return d.Name == old.Name })
	})
	mine = append(mine, written...)
	mesh := mine
	if tenant == "" {
		mine = nil
	} else {
		mesh = v.Definitions("", model.KindPolicies)
	}
	// Documents that have become faulty do not stop the repair of others.
	next, faults := access.SetOf(mesh, mine, tenant)
	if len(faults) > 0 {
		return faults
	}
	if !force && c.LocksOut(next, principals(v, tenant)) {
		whose := "tenant " + tenant
		if tenant == "" {
			whose = "the mesh"
		}
		return problem.New(problem.Conflict, "after this, no user could change the policies of %s: use force if you mean it", whose)
	}
	return nil
}

// policyFaults returns the faults that policy documents have by themselves.
func policyFaults(v rest.View, tenant string, docs []model.StoredDefinition) (faults model.Faults) {
	known := knownTo(v, tenant)
	for _, d := range docs {
		_, fs := access.ParseStored(d, tenant, known)
		faults = append(faults, fs...)
	}
	return faults
}

// principals returns the principals of a tenant, or with "" those of the mesh.
func principals(v rest.View, tenant string) []*access.Principal {
	var out []*access.Principal
	users := v.Users(tenant)
	for _, u := range users {
		out = append(out, access.OfCaller(v.Acting(u.Tenant, u.Name)))
	}
	for _, t := range v.Tokens(tenant) {
		if !slices.ContainsFunc(users, func(u model.User) bool { return u.Tenant == t.Tenant && u.Name == t.Actor }) {
			out = append(out, access.OfCaller(model.Caller{Tenant: t.Tenant, Actor: t.Actor, Role: t.Role}))
		}
	}
	return out
}

// knownTo returns the names that policies of a tenant may use.
func knownTo(v rest.View, tenant string) access.Known {
	k := access.Known{access.TypeGroup: slices.Clone(access.BuiltinNames)}
	know := func(of access.Type, name string) {
		if !slices.Contains(k[of], name) {
			k[of] = append(k[of], name)
		}
	}
	for _, u := range v.Users(tenant) {
		of := access.TypeUser
		if u.Method == model.MethodAccount {
			of = access.TypeAccount
		}
		know(of, u.Name)
		for _, g := range u.Groups {
			know(access.TypeGroup, access.GroupID(u.Tenant, g))
		}
	}
	for _, t := range v.Tokens(tenant) {
		if !slices.Contains(k[access.TypeAccount], t.Actor) {
			know(access.TypeUser, t.Actor)
		}
	}
	if tenant != "" { // which learns of no others
		k[access.TypeTenant] = []string{tenant}
		return k
	}
	for _, t := range v.Tenants() {
		k[access.TypeTenant] = append(k[access.TypeTenant], t.Name)
	}
	return k
}
