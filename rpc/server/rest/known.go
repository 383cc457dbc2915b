package rest

import "github.com/coopr/coopr/engine/model"

// Known returns a tenant's definitions, and the plugin types on offer, for the engine.
func Known(v View, tenant string) model.Lookup {
	offered := model.Set{}
	for _, t := range v.PluginTypes() {
		kind := model.KindProviderType
		if t.Class == "automator" {
			kind = model.KindAutomatorType
		}
		offered.Add(model.Define(kind, &t))
	}
	return model.Over(stored{v, tenant}, offered)
}

// stored reads the definitions of a tenant.
type stored struct {
	v      View
	tenant string
}

// Definition returns the latest version of a definition.
func (s stored) Definition(kind model.Kind, name string) (model.Definition, bool) {
	d, ok := s.v.Definition(s.tenant, kind, name, 0)
	if !ok {
		return model.Definition{}, false
	}
	def, err := model.Restore(d.Kind, d.Body)
	def.SetOrigin(d)
	return def, err == nil // it was decoded before it was stored
}

// Names returns the names of the definitions of a kind.
func (s stored) Names(kind model.Kind) []string {
	var out []string
	for _, d := range s.v.Definitions(s.tenant, kind) {
		out = append(out, d.Name)
	}
	return out
}
