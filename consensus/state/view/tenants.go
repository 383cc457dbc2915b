package view

import (
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
)

// TenantView reads tenants, users and tokens.
type TenantView struct{ txn *memdb.Txn }

// Tenants returns all tenants, by name.
func (v TenantView) Tenants() []model.Tenant {
	out := values(table.List[model.Tenant](v.txn, table.Tenants, "id")) // the shortest names first
	slices.SortFunc(out, func(a, b model.Tenant) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Tenant finds a tenant by name.
func (v TenantView) Tenant(name string) (model.Tenant, bool) {
	return table.Found[model.Tenant](v.txn, table.Tenants, name)
}
