package view

import (
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/change/site"
)

// SiteView reads the sites of change objects.
type SiteView struct{ txn *memdb.Txn }

// Sites returns a tenant's sites, or those of all tenants if tenant is "".
func (v SiteView) Sites(tenant string) []*site.Record {
	if tenant == "" {
		return table.List[site.Record](v.txn, table.Sites, "id")
	}
	return table.List[site.Record](v.txn, table.Sites, "id_prefix", tenant)
}

// Site returns a site's record.
func (v SiteView) Site(tenant, name string) (*site.Record, bool) {
	r := table.Get[site.Record](v.txn, table.Sites, "id", tenant, name)
	return r, r != nil
}

// Generations returns the generations of a site that are kept, newest first.
func (v SiteView) Generations(tenant, name string) []*site.Generation {
	out := table.List[site.Generation](v.txn, table.Generations, "id_prefix", tenant, name)
	slices.Reverse(out)
	return out
}

// Generation returns one generation of a site.
func (v SiteView) Generation(tenant, name string, number uint64) (*site.Generation, bool) {
	g := table.Get[site.Generation](v.txn, table.Generations, "id", tenant, name, uint32(number))
	return g, g != nil
}
