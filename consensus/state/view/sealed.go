package view

import (
	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
)

// SealedView reads data keys and encrypted values.
type SealedView struct{ txn *memdb.Txn }

// DataKey returns the latest data key of a tenant, or of the mesh if tenant is "".
func (v SealedView) DataKey(tenant string) (out table.DataKeyRow, ok bool) {
	table.Each(v.txn, table.DataKeys, "id_prefix", func(r *table.DataKeyRow) bool {
		out, ok = *r, true
		return true
	}, tenant)
	return out, ok
}

// DataKeyOf finds a data key by its number.
func (v SealedView) DataKeyOf(tenant string, number uint32) (table.DataKeyRow, bool) {
	return table.Found[table.DataKeyRow](v.txn, table.DataKeys, tenant, number)
}

// MeshKeys returns the fingerprints of the mesh keys that encrypt data keys, by number.
func (v SealedView) MeshKeys() map[uint32][]byte {
	out := map[uint32][]byte{}
	table.Each(v.txn, table.DataKeys, "id", func(r *table.DataKeyRow) bool {
		out[r.MeshKey] = r.MeshPrint
		return true
	})
	return out
}

// Sealed finds a version of an encrypted value.
func (v SealedView) Sealed(tenant, id string, version uint32) (table.SealedRow, bool) {
	return table.Found[table.SealedRow](v.txn, table.Sealed, tenant, id, version)
}

// LatestSealed finds the latest version of an encrypted value.
func (v SealedView) LatestSealed(tenant, id string) (out table.SealedRow, ok bool) {
	table.Each(v.txn, table.Sealed, "id_prefix", func(r *table.SealedRow) bool {
		out, ok = *r, true
		return true
	}, tenant, id)
	return out, ok
}
