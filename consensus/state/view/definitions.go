package view

import (
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
)

// DefinitionView reads the versions of definitions.
type DefinitionView struct{ txn *memdb.Txn }

// Definitions returns the latest version of each definition of a kind, by name.
func (v DefinitionView) Definitions(tenant string, kind model.Kind) []model.StoredDefinition {
	var out []model.StoredDefinition
	table.Each(v.txn, table.Definitions, "id_prefix", func(r *table.DefinitionRow) bool {
		if n := len(out); n > 0 && out[n-1].Name == r.Name {
			out[n-1] = r.StoredDefinition
		} else {
			out = append(out, r.StoredDefinition)
		}
		return true
	}, tenant, string(kind))
	slices.SortFunc(out, func(a, b model.StoredDefinition) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Edition returns a value that is another once a definition of a kind has changed. Values of different views can be
// compared.
func (v DefinitionView) Edition(tenant string, kind model.Kind) any {
	return table.Edition(v.txn, table.Definitions, "id_prefix", tenant, string(kind))
}

// Versions returns every version of one definition, oldest first.
func (v DefinitionView) Versions(tenant string, kind model.Kind, name string) []model.StoredDefinition {
	var out []model.StoredDefinition
	table.Each(v.txn, table.Definitions, "id_prefix", func(r *table.DefinitionRow) bool {
		out = append(out, r.StoredDefinition)
		return true
	}, tenant, string(kind), name)
	return out
}

// Definition returns one version of a definition; version 0 is the latest.
func (v DefinitionView) Definition(tenant string, kind model.Kind, name string, version int) (model.StoredDefinition, bool) {
	all := v.Versions(tenant, kind, name)
	for i := len(all) - 1; i >= 0; i-- {
		if version == 0 || all[i].Version == version {
			return all[i], true
		}
	}
	return model.StoredDefinition{}, false
}
