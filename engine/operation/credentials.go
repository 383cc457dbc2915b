package operation

import (
	"maps"

	"github.com/coopr/coopr/engine/model"
)

// withCredentials returns a cluster's provider with the credentials of its current definition.
// A cluster outlives passwords, and a cluster that was created with a wrong password must be
// removable. All other fields (a region, a network) stay as they were when the cluster was
// created. Fields that a user may set stay as well, because the value may be the user's.
func withCredentials(p model.Provider, known model.Lookup) model.Provider {
	d, found := known.Definition(model.KindProvider, p.Name)
	t, typed := known.Definition(model.KindProviderType, p.ProviderType)
	if !found || !typed {
		return p // the provider's definition was deleted: keep what the cluster has
	}
	now, schema := d.Value.(*model.Provider), t.Value.(*model.PluginType)
	if now.ProviderType != p.ProviderType {
		return p
	}
	p.Provisioner = maps.Clone(p.Provisioner)
	if p.Provisioner == nil {
		p.Provisioner = map[string]any{}
	}
	for name, f := range schema.Parameters.Admin.Fields {
		if !f.Secret() && !f.Credential || f.Override {
			continue
		}
		if v, given := now.Provisioner[name]; given {
			p.Provisioner[name] = v
		} else {
			delete(p.Provisioner, name)
		}
	}
	return p
}
