package view

import (
	"slices"
	"strings"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// UseView reads what uses definitions.
type UseView struct{ txn *memdb.Txn }

// UsedBy returns descriptions of what uses a definition: clusters that are not terminated, and the
// latest versions of other definitions, then profiles. Plugin types have no users: agents report
// those of their plugins.
func (v UseView) UsedBy(tenant string, kind model.Kind, name string) []string {
	var out []string
	for _, cl := range ClusterView(v).Clusters(tenant) {
		if cl.Status != model.ClusterTerminated && v.clusterUses(cl, kind, name) {
			out = append(out, "cluster "+cl.Name)
		}
	}
	for _, t := range latest[model.ClusterTemplate](v.txn, tenant, model.KindClusterTemplate) {
		if (kind != model.KindClusterTemplate || t.Name != name) && templateUses(t, kind, name) {
			out = append(out, "template "+t.Name)
		}
	}
	for _, t := range latest[model.PartialTemplate](v.txn, tenant, model.KindPartialTemplate) {
		if templateUses(&t.ClusterTemplate, kind, name) {
			out = append(out, "partial template "+t.Name)
		}
	}
	if kind == model.KindService {
		out = append(out, v.dependents(tenant, name)...)
	}
	for _, p := range RunView(v).Profiles(tenant, true) {
		if profileUses(&p, kind, name) {
			out = append(out, "profile "+p.Scope+":"+p.Name)
		}
	}
	return out
}

// latest returns the latest versions of the definitions of a kind that can be read.
func latest[T any](txn *memdb.Txn, tenant string, kind model.Kind) []*T {
	var out []*T
	for _, d := range (DefinitionView{txn}).Definitions(tenant, kind) {
		if def, err := model.Restore(kind, d.Body); err == nil {
			if value, ok := def.Value.(*T); ok {
				out = append(out, value)
			}
		}
	}
	return out
}

func (v UseView) clusterUses(cl *model.Cluster, kind model.Kind, name string) bool {
	switch kind {
	case model.KindProvider:
		return cl.Provider.Name == name
	case model.KindClusterTemplate:
		return cl.Template.Name == name
	case model.KindService:
		return slices.Contains(cl.Services, name)
	case model.KindHardwareType, model.KindImageType:
		return slices.ContainsFunc(ClusterView(v).Nodes(cl.Tenant, cl.ID), func(n *model.Node) bool {
			return kind == model.KindHardwareType && n.HardwareType == name || kind == model.KindImageType && n.ImageType == name
		})
	}
	return false
}

// templateUses reports whether a template itself names the definition in its defaults, its
// compatibility, or as what it is made from.
func templateUses(t *model.ClusterTemplate, kind model.Kind, name string) bool {
	switch kind {
	case model.KindProvider:
		return t.Defaults.Provider == name
	case model.KindHardwareType:
		return t.Defaults.HardwareType == name || slices.Contains(t.Compatibility.HardwareTypes, name)
	case model.KindImageType:
		return t.Defaults.ImageType == name || slices.Contains(t.Compatibility.ImageTypes, name)
	case model.KindService:
		return slices.Contains(t.Compatibility.Services, name) ||
			slices.ContainsFunc(t.Defaults.Services, func(s model.DefaultService) bool { return s.Name == name })
	case model.KindClusterTemplate:
		return t.Extends != nil && t.Extends.Name == name
	case model.KindPartialTemplate:
		return slices.ContainsFunc(t.Includes, func(r model.Reference) bool { return r.Name == name })
	}
	return false
}

// dependents returns the services that require a service, or a name that it alone provides.
func (v UseView) dependents(tenant, name string) []string {
	all := latest[model.Service](v.txn, tenant, model.KindService)
	offers := func(s *model.Service, what string) bool {
		return s.Name == what || slices.Contains(s.Dependencies.Provides, what)
	}
	lost := func(what string) bool {
		at := slices.IndexFunc(all, func(s *model.Service) bool { return s.Name == name })
		return at >= 0 && offers(all[at], what) &&
			!slices.ContainsFunc(all, func(s *model.Service) bool { return s.Name != name && offers(s, what) })
	}
	var out []string
	for _, s := range all {
		needs := slices.Concat(s.Dependencies.Install.Requires, s.Dependencies.Runtime.Requires)
		if s.Name != name && slices.ContainsFunc(needs, lost) {
			out = append(out, "service "+s.Name)
		}
	}
	return out
}

// profileUses reports whether the clusters of a profile are made from the definition.
func profileUses(p *profile.Profile, kind model.Kind, name string) bool {
	property := map[model.Kind]string{
		model.KindClusterTemplate: profile.PropTemplate, model.KindProvider: "provider", model.KindHardwareType: "hardwaretype",
		model.KindImageType: "imagetype", model.KindService: "services",
	}[kind]
	return p.Provisioner.Name == "cluster" && property != "" &&
		slices.ContainsFunc(p.Provisioner.Properties, func(has profile.Property) bool {
			if has.Name != property {
				return false
			}
			return has.Value == name || kind == model.KindService &&
				slices.ContainsFunc(strings.Split(has.Value, ","), func(s string) bool { return strings.TrimSpace(s) == name })
		})
}
