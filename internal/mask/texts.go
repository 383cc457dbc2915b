package mask

import (
	"fmt"
	"strconv"
)

// Texts returns the texts and numbers within a value of JSON, at every depth, as programs print them. Empty texts are left out.
func Texts(v any) (texts []string) {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			texts = append(texts, Texts(item)...)
		}
	case []any:
		for _, item := range v {
			texts = append(texts, Texts(item)...)
		}
	case nil, bool:
	case float64: // in JSON, 12345678 is not 1.2345678e+07
		return []string{strconv.FormatFloat(v, 'f', -1, 64)}
	default:
		if text := fmt.Sprint(v); text != "" {
			return []string{text}
		}
	}
	return texts
}
