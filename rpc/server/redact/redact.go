// Package redact removes secrets from the answers of the API.
package redact

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Redactor removes secrets from answers, by the plugins' descriptions of their fields and by the
// fields' names (model.Sensitive).
type Redactor struct {
	types map[string]model.PluginType // provider types by name
}

// For returns a redactor of the definitions of a tenant.
func For(v rest.View, tenant string) *Redactor {
	r := &Redactor{types: map[string]model.PluginType{}}
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

// Provider returns a copy without secrets.
func (r *Redactor) Provider(p model.Provider) model.Provider {
	p.Provisioner = model.RedactFields(r.types[p.ProviderType], p.Provisioner)
	return p
}

// Cluster returns a copy without secrets.
func (r *Redactor) Cluster(c *model.Cluster) model.Cluster {
	out := *c
	out.Provider = r.Provider(c.Provider)
	return out
}

// Node returns a copy without the secrets that plugins returned.
func Node(n *model.Node) model.Node {
	out := *n
	out.Results = model.RedactFields(model.PluginType{}, n.Results)
	return out
}

// Restore replaces redacted values of a provider by the stored ones. A provider has redacted
// values if a client has read it, edited it and sends it back. A stored value is kept only while its
// receivers stay the same: if the type changes, or a field that determines where the value is sent
// and for whom, the value has to be given again. Otherwise anyone who may write a provider could have
// its password sent to a server of their own.
func (r *Redactor) Restore(p *model.Provider, stored *model.Provider) model.Faults {
	var faults model.Faults
	var old, shown map[string]any
	moved := ""
	if stored != nil {
		old, shown = stored.Provisioner, r.Provider(*stored).Provisioner
		moved = movedTo(p, stored)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Provisioner)) {
		at := "provisioner." + k
		switch v := p.Provisioner[k]; {
		case !Redacted(v):
		case old[k] == nil:
			faults.Add(at, fmt.Sprintf("is %s, but no value is stored: write the value itself", model.Redacted))
		case moved != "":
			faults.Add(at, fmt.Sprintf("is %s, but %s has changed: write the value itself, because the stored one is never sent to a new receiver",
				model.Redacted, moved))
		case !reflect.DeepEqual(v, shown[k]):
			faults.Add(at, fmt.Sprintf("contains %s, but the rest of it has changed: write the values themselves", model.Redacted))
		default:
			p.Provisioner[k] = old[k]
		}
	}
	return faults
}

// movedTo returns the first part of a provider that receives its secrets and differs from the stored
// one; "" if there is none.
func movedTo(p, stored *model.Provider) string {
	if p.ProviderType != stored.ProviderType {
		return "providertype"
	}
	keys := slices.Concat(slices.Collect(maps.Keys(p.Provisioner)), slices.Collect(maps.Keys(stored.Provisioner)))
	slices.Sort(keys)
	for _, k := range keys {
		now, was := p.Provisioner[k], stored.Provisioner[k]
		if model.SoundsLikeReceiver(k) && !Redacted(now) && !reflect.DeepEqual(now, was) {
			return "provisioner." + k
		}
	}
	return ""
}

// Redacted reports whether a value has a redacted one in it.
func Redacted(v any) bool {
	switch v := v.(type) {
	case string:
		return v == model.Redacted
	case map[string]any:
		for _, item := range v {
			if Redacted(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, Redacted)
	}
	return false
}
