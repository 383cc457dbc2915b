package view

import (
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
)

// ResourceView reads plugin resources and the sets of their versions.
type ResourceView struct{ txn *memdb.Txn }

// SetKey identifies a set of versions among those of all tenants.
type SetKey struct {
	Tenant string
	Number uint64
}

// NeededSets returns the sets that kept operations and living clusters refer to.
func (v ResourceView) NeededSets() map[SetKey]bool {
	out := map[SetKey]bool{}
	table.Each(v.txn, table.Operations, "id", func(o *model.Operation) bool {
		if o.Resources > 0 {
			out[SetKey{o.Tenant, o.Resources}] = true
		}
		return true
	})
	table.Each(v.txn, table.Clusters, "id", func(c *model.Cluster) bool {
		if c.Resources > 0 && c.Status != model.ClusterTerminated {
			out[SetKey{c.Tenant, c.Resources}] = true
		}
		return true
	})
	return out
}

// PluginResources returns a tenant's resources, in the order of their keys.
func (v ResourceView) PluginResources(tenant string) []*model.PluginResource {
	return table.List[model.PluginResource](v.txn, table.Resources, "id_prefix", tenant)
}

// PluginResource finds a resource.
func (v ResourceView) PluginResource(tenant string, k model.ResourceKey) (*model.PluginResource, bool) {
	r := table.Get[model.PluginResource](v.txn, table.Resources, "id", table.ResourceArgs(tenant, k)...)
	return r, r != nil
}

// ResourceSet finds a set of versions with which plans were made.
func (v ResourceView) ResourceSet(tenant string, number uint64) (*model.ResourceSet, bool) {
	s := table.Get[model.ResourceSet](v.txn, table.ResourceSets, "id", tenant, table.SetID(number))
	return s, s != nil
}

// ResourcesInForce returns the set of versions that is in force now, or false if there never was
// one.
func (v ResourceView) ResourcesInForce(tenant string) (*model.ResourceSet, bool) {
	var last *model.ResourceSet
	table.Each(v.txn, table.ResourceSets, "id_prefix", func(s *model.ResourceSet) bool { last = s; return true }, tenant)
	return last, last != nil
}

// Blobs returns the sizes of all contents that are needed, by checksum: those of every version, and
// those of every set that a kept operation or a living cluster refers to.
func (v ResourceView) Blobs() map[string]int64 {
	out := map[string]int64{}
	table.Each(v.txn, table.Resources, "id", func(r *model.PluginResource) bool {
		for _, x := range r.Versions {
			out[x.SHA256] = x.Size
		}
		return true
	})
	needed := v.NeededSets()
	table.Each(v.txn, table.ResourceSets, "id", func(s *model.ResourceSet) bool {
		if needed[SetKey{s.Tenant, s.Number}] {
			for _, p := range s.Pins {
				out[p.SHA256] = p.Size
			}
		}
		return true
	})
	return out
}

// HasBlob reports whether a content belongs to a version of a tenant's resources that is on record.
func (v ResourceView) HasBlob(tenant, sum string) bool {
	found := false
	table.Each(v.txn, table.Resources, "id_prefix", func(r *model.PluginResource) bool {
		found = r.Tenant == tenant && slices.ContainsFunc(r.Versions, func(x model.ResourceVersion) bool { return x.SHA256 == sum })
		return !found
	}, tenant)
	if found {
		return true
	}
	table.Each(v.txn, table.ResourceSets, "id_prefix", func(s *model.ResourceSet) bool {
		found = s.Tenant == tenant && slices.ContainsFunc(s.Pins, func(p model.ResourcePin) bool { return p.SHA256 == sum })
		return !found
	}, tenant)
	return found
}
