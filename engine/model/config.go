package model

import (
	"maps"
	"reflect"
)

// How a request's configuration meets the one there is.
const (
	// ConfigMerge merges deeply (the default).
	ConfigMerge = "merge"
	// ConfigReplace takes the request's alone, as the original did.
	ConfigReplace = "replace"
)

// MergeConfig returns base with over laid on it: objects are merged key by key at every depth;
// any other value of over takes the place of base's; null in over removes the key. Neither
// argument is changed, but the result may share parts with both: it is not to be changed
// either.
//
// The original replaced the template's configuration as a whole, which users complained about
// (COOPR-586): changing one key lost all the others.
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

// RebaseConfig returns a configuration that was made from old defaults as it would be from new
// ones: values that are still the old defaults become the new ones, all others stay. Nothing
// given is changed.
func RebaseConfig(old, defaults, config map[string]any) map[string]any {
	out := make(map[string]any, len(config))
	for k, v := range config {
		was, had := old[k]
		is, has := defaults[k]
		wasMap, ok1 := was.(map[string]any)
		isMap, ok2 := is.(map[string]any)
		vMap, ok3 := v.(map[string]any)
		switch {
		case ok1 && ok2 && ok3:
			out[k] = RebaseConfig(wasMap, isMap, vMap)
		case had && reflect.DeepEqual(was, v):
			if has {
				out[k] = is
			}
		default:
			out[k] = v
		}
	}
	for k, is := range defaults {
		_, had := old[k]
		if _, there := out[k]; !there && !had {
			out[k] = is
		}
	}
	return out
}
