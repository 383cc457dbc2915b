package apitest

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// orphan is the only machine of the test mesh's providers that belongs to no node.
var orphan = model.Orphan{Tenant: "acme", Provider: "cloud", ID: "i-0815", Cluster: "00000001", Node: "n9", Fence: 7,
	Why: model.OrphanNoNode, Since: 1}

// Orphans returns a report, which has the orphan only after a new search.
func (a *Agent) Orphans(_ context.Context, look bool) (model.OrphanReport, error) {
	r := model.OrphanReport{Providers: []model.ProviderListing{}, Orphans: []model.Orphan{}, Missing: []model.MissingMachine{}}
	if look {
		r.At, r.Orphans = 1, append(r.Orphans, orphan)
	}
	return r, nil
}

// RemoveOrphan succeeds for the id of the orphan, and changes nothing.
func (a *Agent) RemoveOrphan(_ context.Context, _ model.Caller, id string) (api.Written, error) {
	if id != orphan.ID {
		return api.Written{}, fmt.Errorf("machine %s: %w", id, problem.NotFound)
	}
	return api.Written{}, nil
}
