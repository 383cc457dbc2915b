package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/engine/signing"
)

// SealedView reads data keys and encrypted values.
type SealedView struct{ txn *memdb.Txn }

// Opener decrypts values of a view. It belongs to a voter: the state has no keys.
type Opener interface {
	Open(v SealedView, r table.SealedRow) ([]byte, error)
	// OpenFields returns a provider's fields with the values that references in them stand for.
	OpenFields(v SealedView, tenant string, fields map[string]any) (map[string]any, error)
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

// OldestDataKey returns the oldest data key of a tenant.
func (v SealedView) OldestDataKey(tenant string) (out table.DataKeyRow, ok bool) {
	table.Each(v.txn, table.DataKeys, "id_prefix", func(r *table.DataKeyRow) bool {
		out, ok = *r, true
		return false
	}, tenant)
	return out, ok
}

// DataKeyOf finds a data key by its number.
func (v SealedView) DataKeyOf(tenant string, number uint32) (table.DataKeyRow, bool) {
	return table.Found[table.DataKeyRow](v.txn, table.DataKeys, tenant, number)
}

// DataKeys returns all data keys, by tenant and number.
func (v SealedView) DataKeys() (out []table.DataKeyRow) {
	table.Each(v.txn, table.DataKeys, "id", func(r *table.DataKeyRow) bool {
		out = append(out, *r)
		return true
	})
	return out
}

// EachSealed calls fn for the encrypted values of all tenants until it returns false.
func (v SealedView) EachSealed(fn func(table.SealedRow) bool) {
	table.Each(v.txn, table.Sealed, "id", func(r *table.SealedRow) bool { return fn(*r) })
}

// MeshIdentity returns how agents and the root token are known, or nil if the agents share a secret.
func (v SealedView) MeshIdentity() *table.MeshIdentity { return table.Mesh(v.txn).Identity }

// Rotation returns the latest rotation of a kind of key.
func (v SealedView) Rotation(kind string) (roster.Rotation, bool) {
	return table.Found[roster.Rotation](v.txn, table.Rotations, kind)
}

// Rotations returns the latest rotations, by kind.
func (v SealedView) Rotations() (out []roster.Rotation) {
	table.Each(v.txn, table.Rotations, "id", func(r *roster.Rotation) bool {
		out = append(out, *r)
		return true
	})
	return out
}

// ActiveMeshKey returns the number of the mesh key with which data keys are encrypted now. ok is false in a mesh that has no key yet.
func (v SealedView) ActiveMeshKey() (number uint32, ok bool) {
	if r, rotates := v.Rotation(roster.KindKeyring); rotates && r.InUse() {
		return r.MeshKey, true
	}
	k, ok := v.DataKey("")
	return k.MeshKey, ok
}

// KeyringExported returns when the keyring was last exported since the mesh key that is in use is active, in Unix milliseconds; 0 if it
// was not.
func (v SealedView) KeyringExported() int64 {
	active, ok := v.ActiveMeshKey()
	e := table.Mesh(v.txn).Export
	if !ok || e == nil || e.Number != active || !bytes.Equal(e.Print, v.MeshKeys()[active]) {
		return 0
	}
	return e.At
}

// Rotated reports whether a newer mesh key than the one with a number is in use.
func (v SealedView) Rotated(number uint32) bool {
	active, ok := v.ActiveMeshKey()
	return ok && number < active
}

// MeshKeys returns the fingerprints of the mesh keys that encrypt data keys, by number, and that of a key that is about to.
func (v SealedView) MeshKeys() map[uint32][]byte {
	out := map[uint32][]byte{}
	if r, ok := v.Rotation(roster.KindKeyring); ok && r.Print != nil {
		out[r.MeshKey] = r.Print
	}
	table.Each(v.txn, table.DataKeys, "id", func(r *table.DataKeyRow) bool {
		out[r.MeshKey] = r.MeshPrint
		return true
	})
	return out
}

// SigningKeys returns the public keys with which the mesh signs and has signed, in the order of their numbers.
func (v SealedView) SigningKeys() (out signing.Chain) {
	table.Each(v.txn, table.SigningKeys, "id", func(r *table.SigningKeyRow) bool {
		out = append(out, r.PublicKey)
		return true
	})
	return out
}

// NextSigningKey returns the number of the next signing key, and the key that signs it. The first key has none before it.
func (v SealedView) NextSigningKey() (number uint32, before signing.PublicKey) {
	before, _ = v.SigningKeys().Latest()
	return before.Number + 1, before
}

// TaskKeys returns the keys with which the mesh signs tokens of tasks, in the order of their numbers.
func (v SealedView) TaskKeys() (out signing.TaskKeys) {
	table.Each(v.txn, table.TaskKeys, "id", func(r *table.TaskKeyRow) bool {
		out = append(out, r.TaskKey)
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

// ProviderTypes returns the descriptions of a provider type; see TypesOf.
func (v SealedView) ProviderTypes(tenant, name string) (offered, defined model.PluginType) {
	return v.TypesOf(tenant, "provider/"+name)
}

// TypesOf returns the descriptions of a plugin's type: the one that agents offer, and the tenant's definition. A missing one is the
// zero value. key is "provider/NAME" or "automator/NAME".
func (v SealedView) TypesOf(tenant, key string) (offered, defined model.PluginType) {
	if r := table.Get[table.PluginRow](v.txn, table.PluginTypes, "id", key); r != nil {
		offered = r.Type
	}
	kind := model.KindProviderType
	name, provider := strings.CutPrefix(key, "provider/")
	if !provider {
		kind, name = model.KindAutomatorType, strings.TrimPrefix(key, "automator/")
	}
	if d := table.Latest(v.txn, tenant, string(kind), name); d != nil {
		if def, err := model.Restore(d.Kind, d.Body); err == nil {
			if t, ok := def.Value.(*model.PluginType); ok {
				defined = *t
			}
		}
	}
	return offered, defined
}

// UnusedSealed returns encrypted values from before a time, in Unix milliseconds, that nothing names, up to a number of them.
func (v SealedView) UnusedSealed(before int64, most int) (out []table.SealedRow) {
	var old []table.SealedRow
	table.Each(v.txn, table.Sealed, "id", func(r *table.SealedRow) bool {
		if r.Created < before && r.Tenant != "" {
			old = append(old, *r)
		}
		return true
	})
	if len(old) == 0 {
		return nil
	}
	named := v.NamedSealed()
	for _, r := range old {
		if !named[SealedKey{r.Tenant, model.SealedRef{ID: r.ID, Version: r.Version}}] {
			if out = append(out, r); len(out) == most {
				break
			}
		}
	}
	return out
}

// SealedKey identifies a version of an encrypted value.
type SealedKey struct {
	Tenant string
	model.SealedRef
}

// NamedSealed returns the encrypted values that secrets, definitions, clusters, their history, queued requests, results and saved
// values of nodes, and the generations of sites name.
func (v SealedView) NamedSealed() map[SealedKey]bool {
	named := map[SealedKey]bool{}
	add := func(tenant string, refs ...model.SealedRef) {
		for _, r := range refs {
			named[SealedKey{tenant, r}] = true
		}
	}
	fields := func(tenant string, f map[string]any) {
		if !model.HasSealedRef(f) {
			return
		}
		if b, err := json.Marshal(f); err == nil {
			add(tenant, model.SealedRefs(b)...)
		}
	}
	table.Each(v.txn, table.Secrets, "id", func(r *table.SecretRow) bool {
		add(r.Tenant, model.SealedRef{ID: r.ID, Version: r.Version})
		return true
	})
	table.Each(v.txn, table.Definitions, "id", func(r *table.DefinitionRow) bool {
		add(r.Tenant, model.SealedRefs(r.Body)...)
		return true
	})
	table.Each(v.txn, table.Clusters, "id", func(c *model.Cluster) bool { add(c.Tenant, c.SealedRefs()...); return true })
	table.Each(v.txn, table.History, "id", func(s *model.Snapshot) bool { add(s.Tenant, s.State.SealedRefs()...); return true })
	tenants := map[string]string{} // of nodes
	table.Each(v.txn, table.Nodes, "id", func(n *model.Node) bool {
		tenants[n.ID] = n.Tenant
		fields(n.Tenant, n.Results)
		return true
	})
	table.Each(v.txn, table.Values, "id", func(r *table.ValueRow) bool {
		add(tenants[r.Node], model.SealedRefs(r.Value)...)
		return true
	})
	table.Each(v.txn, table.Operations, "id", func(o *model.Operation) bool { fields(o.Tenant, o.Config); return true })
	table.Each(v.txn, table.Queue, "id", func(q *table.QueueRow) bool {
		op := table.Get[model.Operation](v.txn, table.Operations, "id", q.Operation)
		if op != nil {
			fields(op.Tenant, q.Request.ProviderFields)
			fields(op.Tenant, q.Request.Config)
		}
		return true
	})
	if table.Mesh(v.txn).FeatureLevel >= logformat.RotationLevel { // below, voters of older builds do not look there
		table.Each(v.txn, table.Generations, "id", func(g *site.Generation) bool {
			add(g.Tenant, model.SealedRefs(g.Document)...)
			return true
		})
	}
	return named
}

// ClearProvider is a provider whose sensitive fields are in the clear: that of a definition, of a cluster, or of a cluster at an
// earlier time.
type ClearProvider struct {
	Tenant     string
	Provider   model.Provider
	Definition *table.DefinitionRow
	Cluster    *model.Cluster
	Snapshot   *model.Snapshot
}

// ClearProviders returns providers that are in the clear according to a function, up to a number of them.
func (v SealedView) ClearProviders(inClear func(tenant string, p *model.Provider) bool, most int) (out []ClearProvider) {
	add := func(c ClearProvider) bool {
		if inClear(c.Tenant, &c.Provider) {
			out = append(out, c)
		}
		return len(out) < most
	}
	table.Each(v.txn, table.Definitions, "id", func(r *table.DefinitionRow) bool {
		if r.Kind != model.KindProvider {
			return true
		}
		def, err := model.Restore(r.Kind, r.Body)
		if err != nil {
			return true
		}
		return add(ClearProvider{Tenant: r.Tenant, Provider: *def.Value.(*model.Provider), Definition: r})
	})
	table.Each(v.txn, table.Clusters, "id", func(c *model.Cluster) bool {
		return len(out) < most && add(ClearProvider{Tenant: c.Tenant, Provider: c.Provider, Cluster: c})
	})
	table.Each(v.txn, table.History, "id", func(s *model.Snapshot) bool {
		return len(out) < most && add(ClearProvider{Tenant: s.Tenant, Provider: s.State.Provider, Snapshot: s})
	})
	return out
}
