package view

import (
	"fmt"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
)

// SealedView reads data keys and encrypted values.
type SealedView struct{ txn *memdb.Txn }

// Opener decrypts values of a view. It belongs to a voter: the state has no keys.
type Opener interface {
	Open(v SealedView, r table.SealedRow) ([]byte, error)
}

// Mesh returns the mesh's own name. Machines that providers make carry it, because
// ids of clusters and nodes are unique within one mesh only.
func (v SealedView) Mesh() string { return table.Mesh(v.txn).Mesh }

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

// reveal returns the value of a secret.
func (v SealedView) reveal(o Opener, r *table.SecretRow) (string, error) {
	if r.ID == "" {
		return r.Value, nil
	}
	row, ok := v.Sealed(r.Tenant, r.ID, r.Version)
	if !ok {
		return "", fmt.Errorf("secret %s has lost its value: write it again", r.Name)
	}
	value, err := o.Open(v, row)
	if err != nil {
		return "", fmt.Errorf("secret %s: %w", r.Name, err)
	}
	return string(value), nil
}

// ClearSecrets returns secrets whose values are not encrypted yet, up to a number of them.
func (v SealedView) ClearSecrets(most int) (out []table.SecretRow) {
	table.Each(v.txn, table.Secrets, "id", func(r *table.SecretRow) bool {
		if r.ID == "" {
			out = append(out, *r)
		}
		return len(out) < most
	})
	return out
}

// Secret finds a secret.
func (v SealedView) Secret(tenant, name string) (table.SecretRow, bool) {
	return table.Found[table.SecretRow](v.txn, table.Secrets, tenant, name)
}
