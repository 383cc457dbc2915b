package view

import (
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
)

// TenantView reads tenants and tokens.
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

// Acting returns the caller for what the mesh does later in a user's name, with the role that the user has in
// this state.
func (v TenantView) Acting(tenant, actor string) model.Caller {
	return hostexec.Acting(v.Tokens(""), tenant, actor)
}

// Tokens returns a tenant's tokens, or all tokens if tenant is "".
func (v TenantView) Tokens(tenant string) []model.Token {
	var out []model.Token
	table.Each(v.txn, table.Tokens, "id", func(t *table.TokenRow) bool {
		if tenant == "" || t.Tenant == tenant {
			out = append(out, t.Token)
		}
		return true
	})
	return out
}

// TokenByHash finds a token by its SHA-256 in hexadecimal.
func (v TenantView) TokenByHash(hash string) (model.Token, bool) {
	if t := table.Get[table.TokenRow](v.txn, table.Tokens, "hash", hash); t != nil {
		return t.Token, true
	}
	return model.Token{}, false
}
