package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

func (s *server) orphanRoutes() {
	const tag, path = "orphans", "/v1/orphans"
	reads := rule{need: model.RoleAdmin, allTenants: true}
	report := func(look bool) func(context.Context, *call, *none) (model.OrphanReport, error) {
		return func(ctx context.Context, c *call, _ *none) (model.OrphanReport, error) {
			r, err := s.Orphans.Report(ctx, look)
			return orphansOf(r, c.who.Tenant), err
		}
	}
	ask(s, route{id: "getOrphans", method: http.MethodGet, path: path, tag: tag, rule: reads, summary: "Get the result of the last search for machines that belong to no node, and for nodes without machines",
		description: "The leader compares the machines of every provider with its records from time to time. A machine is never an orphan if a node may use it, or if an operation may be creating it."}, report(false))
	ask(s, route{id: "lookForOrphans", method: http.MethodPost, path: path + "/look", tag: tag, rule: reads, summary: "Search for orphans now"}, report(true))
	write(s, route{id: "removeOrphan", method: http.MethodPost, path: path + "/remove", tag: tag, rule: rule{need: model.RoleAdmin}, summary: "Remove a machine that belongs to no node",
		description: "Only a machine that the last search found can be removed, and only if it still belongs to no node."},
		func(ctx context.Context, c *call, in *struct {
			Body raw[api.RemoveOrphanBody]
		}) (api.Removed, api.Written, error) {
			body, err := in.Body.value()
			if err == nil && body.ID == "" {
				err = invalid(model.Faults{{Path: "id", Message: "is missing: name the machine"}})
			}
			if err != nil {
				return api.Removed{}, api.Written{}, err
			}
			w, err := s.Orphans.Remove(ctx, c.who, body.ID)
			return api.Removed(body), w, err
		})
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
