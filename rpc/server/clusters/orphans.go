package clusters

import (
	"context"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func orphanRoutes(s *rest.Server) {
	const tag, path = "orphans", "/v1/orphans"
	reads := rest.Rule{AllTenants: true}
	report := func(search bool) func(context.Context, *rest.Call, *rest.None) (model.OrphanReport, error) {
		return func(ctx context.Context, c *rest.Call, _ *rest.None) (model.OrphanReport, error) {
			r, err := s.Orphans.Report(ctx, search)
			return orphansOf(r, c.Who.Tenant), err
		}
	}
	rest.Ask(
		s,
		rest.Route{
			ID:      "getOrphans",
			Method:  http.MethodGet,
			Path:    path,
			Tag:     tag,
			Rule:    reads,
			Summary: "Get the result of the last search for machines that belong to no node, and for nodes without machines",
			Description: "The leader compares the machines of every provider with its records from time to time. " +
				"A machine is never an orphan if a node may use it, or if an operation may be creating it.",
		},
		report(false),
	)
	rest.Ask(
		s,
		rest.Route{
			ID:      "searchOrphans",
			Method:  http.MethodPost,
			Path:    path + "/search",
			Tag:     tag,
			Rule:    reads,
			Summary: "Search for orphans now",
		},
		report(true),
	)
	rest.Write(
		s,
		rest.Route{
			ID:          "removeOrphan",
			Method:      http.MethodPost,
			Path:        path + "/remove",
			Tag:         tag,
			Summary:     "Remove a machine that belongs to no node",
			Description: "Only a machine that the last search found can be removed, and only if it still belongs to no node.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.RemoveOrphanBody]
		}) (api.Removed, api.Written, error) {
			body, err := in.Body.Value()
			if err == nil && body.ID == "" {
				err = rest.Invalid(model.Faults{{Path: "id", Message: "is missing: name the machine"}})
			}
			if err != nil {
				return api.Removed{}, api.Written{}, err
			}
			w, err := s.Orphans.Remove(ctx, c.Who, body.ID)
			return api.Removed(body), w, err
		},
	)
}

// orphansOf returns the part of a report that belongs to a tenant.
func orphansOf(r model.OrphanReport, tenant string) model.OrphanReport {
	if tenant == api.AllTenants {
		return r
	}
	r.Providers = slices.DeleteFunc(slices.Clone(r.Providers), func(x model.ProviderListing) bool { return x.Tenant != tenant })
	r.Orphans = slices.DeleteFunc(slices.Clone(r.Orphans), func(x model.Orphan) bool { return x.Tenant != tenant })
	r.Missing = slices.DeleteFunc(slices.Clone(r.Missing), func(x model.MissingMachine) bool { return x.Tenant != tenant })
	return r
}
