package server

import (
	"fmt"

	"github.com/coopr/coopr/engine/model"
)

// redactor takes secrets out of answers, by what the plugins say of their
// fields and by the fields' names (model.Sensitive).
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
	// What an agent offers is closer to the truth than a file about it.
	for _, t := range v.PluginTypes() {
		if t.Class != "automator" {
			r.types[t.Name] = t
		}
	}
	return r
}

// provider gives a copy without secrets.
func (r *redactor) provider(p model.Provider) model.Provider {
	p.Provisioner = model.RedactFields(r.types[p.ProviderType], p.Provisioner)
	return p
}

// cluster gives a copy without secrets.
func (r *redactor) cluster(c *model.Cluster) model.Cluster {
	out := *c
	out.Provider = r.provider(c.Provider)
	return out
}

// redactNode gives a copy without the secrets that plugins returned.
func redactNode(n *model.Node) model.Node {
	out := *n
	out.Results = model.RedactFields(model.PluginType{}, n.Results)
	return out
}

// unredact puts the stored values back where a provider comes with redacted
// ones: it was read, edited and written back. Where nothing is stored the
// value is missing, which is a fault.
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
			faults.Add(path, fmt.Sprintf("is %s, and no value is stored: give the value itself", model.Redacted))
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
