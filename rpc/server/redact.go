package server

import (
	"fmt"

	"github.com/coopr/coopr/engine/model"
)

// redactor removes secrets from answers, by the plugins' descriptions of their fields and by the
// fields' names (model.Sensitive).
type redactor struct {
	types map[string]model.PluginType // provider types by name
}

func newRedactor(v View, tenant string) *redactor {
	r := &redactor{types: map[string]model.PluginType{}}
	for _, d := range v.Definitions(tenant, model.KindProviderType) {
		if def, err := model.Restore(d.Kind, d.Body); err == nil {
			if t, ok := def.Value.(*model.PluginType); ok {
				r.types[t.Name] = *t
			}
		}
	}
	// The types that agents offer are more recent than the definitions.
	for _, t := range v.PluginTypes() {
		if t.Class != "automator" {
			r.types[t.Name] = t
		}
	}
	return r
}

// provider returns a copy without secrets.
func (r *redactor) provider(p model.Provider) model.Provider {
	p.Provisioner = model.RedactFields(r.types[p.ProviderType], p.Provisioner)
	return p
}

// cluster returns a copy without secrets.
func (r *redactor) cluster(c *model.Cluster) model.Cluster {
	out := *c
	out.Provider = r.provider(c.Provider)
	return out
}

// redactNode returns a copy without the secrets that plugins returned.
func redactNode(n *model.Node) model.Node {
	out := *n
	out.Results = model.RedactFields(model.PluginType{}, n.Results)
	return out
}

// unredact replaces redacted values of a provider by the stored ones. A provider has redacted
// values if a client has read it, edited it and sends it back. A redacted value without a stored
// one is a fault.
func unredact(p *model.Provider, stored *model.Provider) model.Faults {
	var faults model.Faults
	for k, v := range p.Provisioner {
		var old any
		if stored != nil {
			old = stored.Provisioner[k]
		}
		p.Provisioner[k] = restoreTree(v, old, "provisioner."+k, &faults)
	}
	return faults
}

func restoreTree(v, stored any, path string, faults *model.Faults) any {
	switch v := v.(type) {
	case string:
		if v != model.Redacted {
			return v
		}
		if stored == nil {
			faults.Add(path, fmt.Sprintf("is %s, and no value is stored: replace it by the value itself", model.Redacted))
			return v
		}
		return stored
	case map[string]any:
		old, _ := stored.(map[string]any)
		for k, item := range v {
			v[k] = restoreTree(item, old[k], path+"."+k, faults)
		}
	}
	return v
}
