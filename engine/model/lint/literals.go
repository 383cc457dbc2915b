package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// Types returns the descriptions of a plugin's type, "provider/NAME" or "automator/NAME": the one that agents offer, and the tenant's
// definition. A missing one is the zero value.
type Types func(plugin string) (offered, defined model.PluginType)

// Literals returns a warning for each value of a definition that is secret and written out: whoever reads the file that it is imported from
// knows it. A value is secret by its field's name, by the description of the plugin's type, or because it is within such a field.
// References to secrets and values that the mesh has encrypted are none. Without types, names decide alone.
func Literals(d model.Definition, types Types) (warnings model.Faults) {
	parts := d.Parts()
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		p := parts[path]
		if types == nil || p.Plugin == "" {
			warnings = append(warnings, LiteralsIn(path, p.Fields)...)
			continue
		}
		offered, defined := types(p.Plugin)
		warnings = append(warnings, literals(path, p.Fields, func(name string) secrecy {
			if d.Kind == model.KindProvider && !model.SoundsSecret(name) && model.SoundsLikeReceiver(name) {
				return open // it decides which machine is reached, and must not refer to a secret
			}
			return max(secrecyIn(offered, name), secrecyIn(defined, name))
		})...)
	}
	return warnings.About(d.ID())
}

// LiteralsIn is Literals for values, such as those of a cluster's configuration. path is where they are. No value is in a warning.
func LiteralsIn(path string, fields map[string]any) (warnings model.Faults) {
	return literals(path, fields, func(name string) secrecy { return secrecyIn(model.PluginType{}, name) })
}

// secrecy is how sure it is that a field has secrets.
type secrecy int

const (
	open   secrecy = iota
	named          // by its name. Its numbers are not secret: token_ttl
	marked         // by the description of its type
)

// secrecyIn returns the secrecy of a field. What the type describes without a mark is open, whatever its name is.
func secrecyIn(t model.PluginType, name string) secrecy {
	described := false
	for _, of := range []model.PluginFields{t.Parameters.Admin, t.Parameters.User} {
		field, ok := of.Fields[name]
		if ok && field.Secret() {
			return marked
		}
		described = described || ok
	}
	if !described && model.SoundsSecret(name) {
		return named
	}
	return open
}

func literals(path string, fields map[string]any, of func(name string) secrecy) (warnings model.Faults) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		warnings = append(warnings, literalsWithin(path+"."+name, fields[name], of(name))...)
	}
	return warnings
}

func literalsWithin(path string, v any, s secrecy) (warnings model.Faults) {
	literal := false
	switch v := v.(type) {
	case map[string]any:
		return literals(path, v, func(name string) secrecy { return max(s, secrecyIn(model.PluginType{}, name)) })
	case []any:
		for i, item := range v {
			warnings = append(warnings, literalsWithin(fmt.Sprintf("%s[%d]", path, i), item, s)...)
		}
		return warnings
	case string:
		_, sealed := model.ParseSealedRef(v)
		literal = s > open && v != "" && v != model.Redacted && !sealed && !model.SecretReference.MatchString(v)
	case nil:
	default:
		literal = s == marked
	}
	if literal {
		warnings.Add(path, "is a secret that is written out: store it with `coopr secret put NAME`, and write ${secure(NAME)} here")
	}
	return warnings
}
