package sealed

import (
	"context"
	"slices"

	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/change/builtin"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
)

// SensitiveObjects reports whether SealObjects would encrypt something in a document.
func SensitiveObjects(v view.SealedView, tenant string, doc *site.Document) (found bool) {
	_, _ = replacedObjects(v, tenant, doc, func(any) (any, error) { found = true; return nil, nil }) // it does not fail
	return found
}

// SealObjects returns a copy of a site's document in which the sensitive fields of the contents and actions of objects are references to
// encrypted values of the tenant; see SealFields. Sensitive is what the type of an object's automator marks, and what sounds like a
// secret. File trees stay as they are: agents keep their history. Leader only.
func (b *Box) SealObjects(ctx context.Context, tenant string, doc *site.Document) (*site.Document, error) {
	v, out := b.machine.View(), doc
	_, err := b.sealAll(ctx, tenant, nil, func(seal func(any) (any, error)) (_ map[string]any, err error) {
		out, err = replacedObjects(v.SealedView, tenant, doc, seal)
		return nil, err
	})
	return out, err
}

// replacedObjects returns a copy of a document in which seal replaces sensitive values.
func replacedObjects(v view.SealedView, tenant string, doc *site.Document, seal func(any) (any, error)) (*site.Document, error) {
	types := map[string][2]model.PluginType{} // of automators, offered and defined
	return doc.MapFields(func(o *site.Object, part string, fields map[string]any) (map[string]any, error) {
		if o.Type == builtin.TypeFileTree {
			return fields, nil
		}
		automator, ok := builtin.Automator(o.Type)
		if !ok {
			return sealing{seal}.fields(model.Sensitive(model.PluginType{}, fields), fields)
		}
		t, ok := types[automator]
		if !ok {
			t[0], t[1] = v.TypesOf(tenant, "automator/"+automator)
			types[automator] = t
		}
		if part != site.ContentPart {
			return replacedAction(t[0], t[1], fields, seal)
		}
		out := make(map[string]any, len(fields))
		for name, value := range fields {
			var err error
			if action, ok := value.(map[string]any); ok && slices.Contains(builtin.AutomatedActions, name) {
				out[name], err = replacedAction(t[0], t[1], action, seal)
			} else {
				out[name], err = sealing{seal}.value(value, false)
			}
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}
