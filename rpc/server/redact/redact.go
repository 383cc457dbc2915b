// Package redact removes secrets from the answers of the API.
package redact

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Redactor removes secrets from answers, by the plugins' descriptions of their fields and by the
// fields' names (model.Sensitive).
type Redactor struct {
	types map[string]model.PluginType // by key, "provider/NAME" or "automator/NAME"
}

// For returns a redactor of the definitions of a tenant.
func For(v rest.View, tenant string) *Redactor {
	r := &Redactor{types: map[string]model.PluginType{}}
	for kind, prefix := range map[model.Kind]string{model.KindProviderType: "provider/", model.KindAutomatorType: "automator/"} {
		for _, d := range v.Definitions(tenant, kind) {
			if def, err := model.Restore(d.Kind, d.Body); err == nil {
				if t, ok := def.Value.(*model.PluginType); ok {
					r.types[prefix+t.Name] = *t
				}
			}
		}
	}
	// The types that agents offer are more recent than the definitions.
	for _, t := range v.PluginTypes() {
		prefix := "provider/"
		if t.Class == "automator" {
			prefix = "automator/"
		}
		r.types[prefix+t.Name] = t
	}
	return r
}

// fields returns a copy of the fields of a part without secrets. Configurations show what is not encrypted.
func (r *Redactor) fields(p model.Part) map[string]any {
	if p.Plugin == "" {
		return Config(p.Fields)
	}
	return model.RedactFields(r.types[p.Plugin], p.Fields)
}

// Definition returns a copy without secrets.
func (r *Redactor) Definition(d model.Definition) model.Definition {
	d, _ = d.MapParts(func(p model.Part) (map[string]any, error) { return r.fields(p), nil }) // it does not fail
	return d
}

// Provider returns a copy without secrets.
func (r *Redactor) Provider(p model.Provider) model.Provider {
	return *r.Definition(model.Define(model.KindProvider, &p)).Value.(*model.Provider)
}

// Cluster returns a copy without secrets.
func (r *Redactor) Cluster(c *model.Cluster) model.Cluster {
	out := *c
	out.Provider, out.Config = r.Provider(c.Provider), Config(c.Config)
	out.Template = *r.Definition(model.Define(model.KindClusterTemplate, &c.Template)).Value.(*model.ClusterTemplate)
	out.Definitions = r.services(c.Definitions)
	out.Earlier = slices.Clone(c.Earlier)
	for i := range out.Earlier {
		t := &out.Earlier[i]
		t.Config, t.Definitions = Config(t.Config), r.services(t.Definitions)
	}
	return out
}

// services returns copies without secrets.
func (r *Redactor) services(all map[string]model.Service) map[string]model.Service {
	if all == nil {
		return nil
	}
	out := make(map[string]model.Service, len(all))
	for name, s := range all {
		out[name] = *r.Definition(model.Define(model.KindService, &s)).Value.(*model.Service)
	}
	return out
}

// Config returns a copy of a configuration without what is encrypted.
func Config(config map[string]any) map[string]any {
	if !model.HasSealedRef(config) {
		return config
	}
	out, _ := model.MapFields(config, func(v any) (any, error) { // it does not fail
		if _, sealed := model.ParseSealedRef(v); sealed {
			return model.Redacted, nil
		}
		return v, nil
	})
	return out
}

// Node returns a copy without the secrets that plugins returned.
func Node(n *model.Node) model.Node {
	out := *n
	out.Results = model.RedactFields(model.PluginType{}, n.Results)
	return out
}

// Restore returns a copy of a definition with the stored values in place of redacted ones; stored is nil if there is none. A definition has
// redacted values if a client has read it, edited it and sends it back. A stored value is kept only while its
// receivers stay the same: if the type of the plugin changes, or a field that determines where the value is sent
// and for whom, the value has to be given again. Otherwise anyone who may write a provider could have
// its password sent to a server of their own. Every field of an action of a service may decide what becomes of
// a value, scripts among them: a caller who is no administrator, and so cannot export the value, must change none of them.
func (r *Redactor) Restore(d model.Definition, stored *model.Definition, role model.Role) (model.Definition, model.Faults) {
	var faults model.Faults
	var old map[string]model.Part
	if stored != nil {
		old = stored.KeyedParts()
	}
	d, _ = d.MapParts(func(p model.Part) (map[string]any, error) { // it does not fail
		if !Redacted(p.Fields) {
			return p.Fields, nil
		}
		was := old[p.Key]
		k := keeping{faults: &faults, within: p.Plugin == ""}
		if p.Plugin != "" && was.Fields != nil {
			k.moved = movedTo(p, was, func(field string) bool {
				return model.SoundsLikeReceiver(field) || strings.HasPrefix(p.Plugin, "automator/") && !Reveals(role)
			})
		}
		return k.fields(p.Path, p.Fields, was.Fields, r.fields(was)), nil
	})
	return d, faults
}

// RestoreConfig is Restore for the configuration of a cluster. A value that is not encrypted was never shown as redacted.
func RestoreConfig(config, stored map[string]any) (map[string]any, error) {
	if !Redacted(config) {
		return config, nil
	}
	var faults model.Faults
	k := keeping{faults: &faults, within: true}
	out := k.fields("config", config, stored, Config(stored))
	return out, faults.Err()
}

// keeping puts stored values in place of redacted ones.
type keeping struct {
	moved  string // what has changed that receives the values; "": nothing
	within bool   // also in objects. Those of plugins are kept as a whole, as their other fields may receive the value.
	faults *model.Faults
}

// fields returns a copy of fields. old are the stored ones, and shown what users see of these.
func (k keeping) fields(path string, fields, old, shown map[string]any) map[string]any {
	out := make(map[string]any, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		out[name] = k.value(path+"."+name, fields[name], old[name], shown[name])
	}
	return out
}

func (k keeping) value(at string, v, old, shown any) any {
	if !Redacted(v) {
		return v
	}
	if v, ok := v.(map[string]any); ok && k.within {
		old, ok1 := old.(map[string]any)
		shown, ok2 := shown.(map[string]any)
		if ok1 && ok2 {
			return k.fields(at, v, old, shown)
		}
	}
	switch {
	case old == nil:
		k.faults.Add(at, fmt.Sprintf("is %s, but no value is stored: write the value itself", model.Redacted))
	case k.moved != "":
		k.faults.Add(at, fmt.Sprintf("is %s, but %s has changed: write the value itself, because the stored one is never sent to a new receiver",
			model.Redacted, k.moved))
	case !reflect.DeepEqual(v, shown):
		k.faults.Add(at, fmt.Sprintf("contains %s, but the rest of it has changed: write the values themselves", model.Redacted))
	default:
		return old
	}
	return v
}

// Reveals reports whether a role has the secrets of definitions in exports.
func Reveals(role model.Role) bool { return role == model.RoleAdmin || role == model.RoleSuperadmin }

// movedTo returns the first field of a part that receives its secrets and differs from the stored
// one; "" if there is none.
func movedTo(p, stored model.Part, receives func(field string) bool) string {
	if p.Plugin != stored.Plugin {
		if strings.HasPrefix(p.Plugin, "provider/") {
			return "providertype"
		}
		return strings.TrimSuffix(p.Path, "fields") + "type"
	}
	keys := slices.Concat(slices.Collect(maps.Keys(p.Fields)), slices.Collect(maps.Keys(stored.Fields)))
	slices.Sort(keys)
	for _, k := range keys {
		now, was := p.Fields[k], stored.Fields[k]
		if receives(k) && !Redacted(now) && !reflect.DeepEqual(now, was) {
			return p.Path + "." + k
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
