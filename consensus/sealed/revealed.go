package sealed

import (
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
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
		return textsIn(opened)
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

// textsIn returns the texts and numbers within a value.
func textsIn(v any) (texts []string) {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			texts = append(texts, textsIn(item)...)
		}
	case []any:
		for _, item := range v {
			texts = append(texts, textsIn(item)...)
		}
	case nil, bool:
	default:
		if text := fmt.Sprint(v); text != "" {
			return []string{text}
		}
	}
	return texts
}
