package model

import (
	"maps"
)

// How a request's configuration meets the one there is.
const (
	// ConfigMerge merges deeply (the default).
	ConfigMerge = "merge"
	// ConfigReplace takes the request's alone, as the original did.
	ConfigReplace = "replace"
)

// MergeConfig gives base with over laid on it: objects are merged key by key
// at every depth; any other value of over takes the place of base's; null in
// over removes the key. Neither argument is changed, but the result may share
// parts with both: it is not to be changed either.
//
// The original replaced the template's configuration as a whole, which users
// complained about (COOPR-586): changing one key lost all the others.
func MergeConfig(base, over map[string]any) map[string]any {
	if len(over) == 0 {
		return base
	}
	out := make(map[string]any, len(base)+len(over))
	maps.Copy(out, base)
	for k, v := range over {
		if v == nil {
			delete(out, k)
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			out[k] = v
			continue
		}
		under, _ := out[k].(map[string]any)
		if merged := MergeConfig(under, m); merged != nil {
			out[k] = merged
		} else {
			out[k] = map[string]any{}
		}
	}
	return out
}

// CombineConfig lays a request's configuration over the one there is in the
// given mode; "" is ConfigMerge. A nil request leaves all as it is.
func CombineConfig(base, over map[string]any, mode string) map[string]any {
	if over == nil {
		return base
	}
	if mode == ConfigReplace {
		return over
	}
	return MergeConfig(base, over)
}
