package sealed

import (
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
)

// RevealedBy returns the texts in opened, which are the fields of a provider, where fields has references: they are to be hidden.
func RevealedBy(fields, opened map[string]any) (texts []string) {
	for name, v := range fields {
		texts = append(texts, revealed(v, opened[name])...)
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func revealed(v, opened any) (texts []string) {
	if _, ok := model.ParseSealedRef(v); ok {
		return mask.Texts(opened)
	}
	switch v := v.(type) {
	case map[string]any:
		if o, ok := opened.(map[string]any); ok {
			return RevealedBy(v, o)
		}
	case []any:
		if o, ok := opened.([]any); ok && len(o) == len(v) {
			for i := range v {
				texts = append(texts, revealed(v[i], o[i])...)
			}
		}
	}
	return texts
}
