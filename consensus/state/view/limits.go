package view

import (
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
)

// LimitView reads how much of its limits a tenant uses.
type LimitView struct {
	txn    *memdb.Txn
	counts func(tenant string) table.Counts
}

// Counting returns a view that reads counts of tenants from a function. Without one, Use counts the rows.
func (v *View) Counting(counts func(tenant string) table.Counts) *View {
	v.LimitView.counts = counts
	return v
}

// Use returns how much a tenant has of what each limit is about, and how much it may have. Limits that the tenant's
// document does not have are the defaults.
func (v LimitView) Use(t model.Tenant) []model.Use {
	var c table.Counts
	if v.counts != nil {
		c = v.counts(t.Name)
	} else {
		c = table.Tally(v.txn)[t.Name]
	}
	resources, bytes := table.ResourceUse(v.txn, t.Name)
	var out []model.Use
	add := func(l *model.Limit, what string, used *int64) {
		u := model.Use{Limit: l.Name, What: what, Used: used, Max: l.Of(&t)}
		u.Near = used != nil && !l.Rolling && model.Near(*used, u.Max)
		out = append(out, u)
	}
	for _, l := range model.TenantLimits {
		used := c[l.Name]
		switch l {
		case model.LimitDefinitions:
			shown := false
			for _, kind := range countedKinds {
				if n := c[kind]; n > 0 {
					add(l, kind, &n)
					shown = true
				}
			}
			if shown {
				continue
			}
		case model.LimitPolicies:
			used = table.Policies(v.txn, t.Name, nil)
		case model.LimitResources:
			used = resources
		case model.LimitResourceBytes:
			used = bytes
		case model.LimitVersions, model.LimitDocumentBytes, model.LimitRequests, model.LimitStreams:
			add(l, l.What, nil)
			continue
		}
		add(l, l.What, &used)
	}
	return out
}

// countedKinds are the keys of counts of definitions.
var countedKinds = func() []string {
	out := []string{table.KindProgram, table.CountProfiles, table.CountSchedules, table.CountSites}
	for _, k := range model.Kinds {
		out = append(out, string(k))
	}
	slices.Sort(out)
	return out
}()
