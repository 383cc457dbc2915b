package operation

import (
	"maps"

	"github.com/coopr/coopr/engine/model"
)

// withCredentials returns a cluster's provider with what its definition says today of who
// asks: a cluster outlives passwords, and one that was made with a wrong one must be
// removable. All else (a region, a network) stays as the cluster was made with. Fields that a
// user may give stay, too: they may be the user's.
func withCredentials(p model.Provider, known model.Lookup) model.Provider {
	d, found := known.Definition(model.KindProvider, p.Name)
	t, typed := known.Definition(model.KindProviderType, p.ProviderType)
	if !found || !typed {
		return p // it has been removed: the cluster goes on with what it has
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
