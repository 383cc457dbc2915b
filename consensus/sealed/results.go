package sealed

import (
	"context"
	"slices"

	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
)

// reach are the results that decide which machine a node is. They are never encrypted: rules about control hosts and searches for
// orphans read them in the state.
var reach = []string{"transport", "providerid", model.ResultMachine, "zone", "host"}

// Marked returns the names of results and saved values that the descriptions of a plugin's type mark as sensitive, besides those
// that sound like secrets. plugin is the key of the type, "provider/NAME" or "automator/NAME". The names are those of fields of the
// type in either scope, in order.
func Marked(v view.SealedView, tenant, plugin string) (names []string) {
	offered, defined := v.TypesOf(tenant, plugin)
	for _, t := range []model.PluginType{offered, defined} {
		for _, scope := range []model.PluginFields{t.Parameters.Admin, t.Parameters.User} {
			for name, f := range scope.Fields {
				if f.Secret() && !slices.Contains(reach, name) {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SensitiveResults reports whether SealResults would encrypt some values.
func SensitiveResults(marked []string, values map[string]any) (found bool) {
	_, _ = replacedResults(marked, values, func(any) (any, error) { found = true; return nil, nil }) // it does not fail
	return found
}

// SealResults returns a copy of results or saved values in which the sensitive ones are references to encrypted values of the
// tenant; see SealFields. Values that sound like secrets are encrypted, and those that are marked. Leader only.
func (b *Box) SealResults(ctx context.Context, tenant string, marked []string, values map[string]any) (map[string]any, error) {
	return b.sealAll(ctx, tenant, values, func(seal func(any) (any, error)) (map[string]any, error) {
		return replacedResults(marked, values, seal)
	})
}

func replacedResults(marked []string, values map[string]any, seal func(any) (any, error)) (map[string]any, error) {
	return sealing{seal}.fields(slices.Concat(marked, model.Sensitive(model.PluginType{}, values)), values)
}
