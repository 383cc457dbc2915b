package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// Literals returns a warning for each value of a definition that is a secret by the name of its field, and written out: whoever reads the
// file that it is imported from knows it. References to secrets and values that the mesh has encrypted are none.
func Literals(d model.Definition) (warnings model.Faults) {
	parts := d.Parts()
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		warnings = append(warnings, LiteralsIn(path, parts[path].Fields)...)
	}
	return warnings.About(d.ID())
}

// LiteralsIn is Literals for values, such as those of a cluster's configuration. path is where they are. No value is in a warning.
func LiteralsIn(path string, fields map[string]any) (warnings model.Faults) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := path + "." + name
		switch v := fields[name].(type) {
		case string:
			_, sealed := model.ParseSealedRef(v)
			if model.SoundsSecret(name) && v != "" && v != model.Redacted && !sealed && !model.SecretReference.MatchString(v) {
				warnings.Add(at, "is a secret that is written out: store it with `coopr secret put NAME`, and write ${secure(NAME)} here")
			}
		default:
			warnings = append(warnings, literalsWithin(at, v)...)
		}
	}
	return warnings
}

func literalsWithin(path string, v any) (warnings model.Faults) {
	switch v := v.(type) {
	case map[string]any:
		return LiteralsIn(path, v)
	case []any:
		for i, item := range v {
			warnings = append(warnings, literalsWithin(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	}
	return warnings
}
